"""Addresses → answers, in rounds: a temporary failure is asked for again."""

import asyncio
import math
from collections.abc import Callable, Mapping

from driftline.curate.core.errors import without_secrets
from driftline.curate.fetch import img2dataset, native
from driftline.curate.fetch.job import Shard
from driftline.curate.fetch.outcome import SLOW, TEMPORARY_REASONS, Download
from driftline.curate.foreign.http import one_address

SLOW_HOSTS = "slow_hosts.txt"  # what any worker saw to be slow; the last pass asks these, too
Keep = Callable[[int, Download], None]


async def ask_all(urls: Mapping[int, str], shard: Shard, failures: Mapping[int, Download], keep: Keep) -> None:
    """Download all; then, after a pause, again those with a temporary failure; rows of a host that is too slow become
    SLOW. failures: where `keep` puts them.
    """
    left, settings = dict(urls), shard.settings
    for attempt in range(settings.retries + 1 if settings.downloader == "native" else 1):  # img2dataset has its own
        if attempt:
            # one server that asks to wait for long must not hold the shard
            left = {row: url for row, url in left.items() if failures[row].retry_after <= settings.deadline}
            retry_after = max((failures[row].retry_after for row in left), default=0.0)
            await asyncio.sleep(max(retry_after, settings.backoff * 2 ** (attempt - 1)) if left else 0.0)
        await _download(left, shard, keep)
        temporary = {row for row, failure in failures.items() if failure.fault in TEMPORARY_REASONS}
        left = {row: url for row, url in left.items() if row in temporary}
        if not left:
            break


async def _download(urls: Mapping[int, str], shard: Shard, keep: Keep) -> None:
    """Ask for every address once, but of slow hosts."""
    rows = [(row, address) for row, url in urls.items() if (address := one_address(url))]
    for row in urls.keys() - dict(rows).keys():
        keep(row, Download(None, "malformed_url", without_secrets(urls[row])[:200]))
    if shard.settings.downloader == "img2dataset":
        img2dataset.download(rows, shard.settings, keep)
        return
    hosts = {row: native.host_of(address) for row, address in rows}
    seen = shard.out / SLOW_HOSTS
    slow = set(seen.read_text("utf-8").split("\n")) if shard.patience < math.inf and seen.is_file() else set[str]()
    lasting: set[int] = set()
    asked_to_wait: set[str] = set()

    def take(row: int, outcome: Download) -> None:
        keep(row, outcome)
        if outcome.fault not in TEMPORARY_REASONS:
            lasting.add(row)
        if outcome.retry_after > shard.patience:
            asked_to_wait.add(hosts[row])

    now = [(row, address) for row, address in rows if hosts[row] not in slow]
    new = await native.download(now, shard.settings, take, shard.patience)
    new |= asked_to_wait
    for host in sorted(new):
        with open(seen, "a", encoding="utf-8") as file:
            file.write(f"\n{host}\n")
    for row, host in hosts.items():
        if host in slow | new and row not in lasting:
            keep(row, Download(None, SLOW))
