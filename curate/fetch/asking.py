"""Addresses → answers, in rounds: a temporary failure is asked for again."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from driftline.curate.core.outside.http import one_address
from driftline.curate.core.outside.secrets import without_secrets
from driftline.curate.fetch import img2dataset, native
from driftline.curate.fetch.job import Shard
from driftline.curate.fetch.outcome import TEMPORARY_REASONS, Download
from driftline.curate.fetch.waiting import Address, Answers, add_slow, answers_path, slow_hosts

QUEUES = 64  # hosts that are asked at a time in a later turn
Keep = Callable[[int, Download], None]


async def ask_all(urls: Mapping[int, str], shard: Shard, failures: Mapping[int, Download], keep: Keep) -> set[int]:
    """Download all; then, after a pause, again those with a temporary failure; returns the rows without a lasting
    answer whose host is too slow for this turn. failures: where `keep` puts them.
    """
    left, settings = dict(urls), shard.settings
    waits: set[int] = set()
    for attempt in range(settings.retries + 1 if settings.downloader == "native" else 1):  # img2dataset has its own
        if attempt:
            # one server that asks to wait for long must not hold the shard
            left = {row: url for row, url in left.items() if failures[row].retry_after <= settings.deadline}
            retry_after = max((failures[row].retry_after for row in left), default=0.0)
            await asyncio.sleep(max(retry_after, settings.backoff * 2 ** (attempt - 1)) if left else 0.0)
        waits |= await _download(left, shard, keep)
        temporary = {row for row, failure in failures.items() if failure.fault in TEMPORARY_REASONS}
        left = {row: url for row, url in left.items() if row in temporary - waits}
        if not left:
            break
    return waits


async def _download(urls: Mapping[int, str], shard: Shard, keep: Keep) -> set[int]:
    """Ask for every address once; returns the rows that wait for a slow host."""
    rows = [(row, address) for row, url in urls.items() if (address := one_address(url))]
    for row in urls.keys() - dict(rows).keys():
        keep(row, Download(None, "malformed_url", without_secrets(urls[row])[:200]))
    hosts = {row: native.host_of(address) for row, address in rows}
    lasting: set[int] = set()
    asked_to_wait: set[str] = set()

    def take(row: int, outcome: Download) -> None:
        keep(row, outcome)
        if outcome.fault not in TEMPORARY_REASONS:
            lasting.add(row)
        if outcome.retry_after > shard.patience:
            asked_to_wait.add(hosts[row])

    slow = slow_hosts(shard.out, shard.patience) if shard.patience < math.inf else set()
    now = [(row, address) for row, address in rows if hosts[row] not in slow]
    if now and shard.settings.downloader == "img2dataset":
        img2dataset.download(now, shard.settings, take, shard.out)
    elif now:
        new = await native.download(now, shard.settings, take, shard.patience)
        add_slow(shard.out, shard.patience, new | asked_to_wait)
        slow |= new | asked_to_wait
    return {row for row, host in hosts.items() if host in slow and row not in lasting}


def take_up(shards: Sequence[Shard]) -> None:
    """Ask for what these shards wait for, in one queue a host."""
    queues: dict[str, dict[int, str]] = defaultdict(dict)
    places: list[tuple[Answers, Address]] = []
    for shard in shards:
        answers = Answers(answers_path(shard.out, shard.number), None)
        for address in answers.waits:
            queues[native.host_of(address[1])][len(places)] = address[1]
            places.append((answers, address))
    limit = asyncio.Semaphore(QUEUES)

    async def serve(queue: dict[int, str]) -> None:
        failures: dict[int, Download] = {}

        def keep(i: int, outcome: Download) -> None:
            failures.pop(i, None)
            if outcome.fault in TEMPORARY_REASONS:
                failures[i] = outcome
            else:
                answers, address = places[i]
                answers.add(address, outcome)

        async with limit:
            waits = await ask_all(queue, shards[0], failures, keep)
        for i in failures.keys() - waits:
            answers, address = places[i]
            answers.add(address, failures[i])

    async def serve_all() -> None:
        await asyncio.gather(*(serve(queue) for queue in queues.values()))

    asyncio.run(serve_all())
