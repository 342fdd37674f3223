"""A vision-language model behind an OpenAI-compatible endpoint as a judge: many requests in flight, none paid twice."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from driftline.curate.core.atomic_io import fingerprint, json_value
from driftline.curate.core.errors import BadConfig, DriftlineError, Unfinished, shortened
from driftline.curate.core.outside.http import AGAIN, Policy, Temporary, repeat_async, seconds_after
from driftline.curate.core.run_log import Tick
from driftline.curate.validation.judging.cache import AnswerCache
from driftline.curate.validation.judging.question import Question, read_answer
from driftline.curate.validation.judging.settings import JudgeSettings, key_of

LARGEST = 1 << 20  # bytes of a response; a stream without end stops here
BACKOFF, LONGEST_BACKOFF = 0.5, 30.0  # seconds
Load = Callable[[str], tuple[bytes, str]]  # id → image's bytes and extension


def ask_endpoint(
    settings: JudgeSettings, question: Question, images: Mapping[str, str], load: Load, cache: AnswerCache, tick: Tick
) -> dict[str, dict[str, Any]]:
    """id → entry of the cache, for every image; images with an entry are not asked.

    images: id → SHA-256. Images of equal bytes are asked once. Raises BadConfig where no request can succeed (key,
    model or address refused), Unfinished after all others were asked if some images have no answer or the budget is
    used up (by one answer at most): the answers so far are kept, and the same command continues.
    """
    work = _Work(settings, question, key_of(settings), load, cache, tick)
    work.dearest = max((e["usd"] for e in cache.entries.values() if e["judge"] == settings.name), default=None)
    open_ids: dict[str, str] = {}  # SHA-256 → one id
    for id_, digest in images.items():
        if work.key(digest) in cache.entries:
            tick(1)
        else:
            open_ids.setdefault(digest, id_)
    if open_ids:
        asyncio.run(work.ask_all([(id_, digest) for digest, id_ in open_ids.items()]))
    missing = [id_ for id_, digest in images.items() if work.key(digest) not in cache.entries]
    if missing:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in work.failed.most_common(4))
        if work.over_budget:
            spent = cache.spent.get(settings.name, 0.0)
            reasons = f"${spent:,.2f} of budget_usd {settings.budget_usd} are spent"
        raise Unfinished(
            f"{len(missing):,} of {len(images):,} images have no answer of the judge {settings.name!r} ({reasons}).",
            "Expected an answer to each.",
            "Raise its budget_usd, or remove the judge." if work.over_budget else "The same command asks only these.",
        )
    return {id_: cache.entries[work.key(digest)] for id_, digest in images.items()}


@dataclass
class _Work:
    settings: JudgeSettings
    question: Question
    secret: str | None
    load: Load
    cache: AnswerCache
    tick: Tick
    failed: Counter[str] = field(default_factory=Counter)
    over_budget: bool = False
    resume_at: float = 0.0
    """monotonic time before which no request starts: the server asked for a pause"""
    pending: int = 0
    """requests in flight"""
    dearest: float | None = None
    """US dollars of the most expensive answer so far"""

    def key(self, digest: str) -> tuple[str, str, str, str]:
        return digest, self.question.fingerprint, self.settings.name, self.settings.model or ""

    async def ask_all(self, todo: list[tuple[str, str]]) -> None:
        headers = {"Authorization": f"Bearer {self.secret}"} if self.secret else {}
        timeout = aiohttp.ClientTimeout(total=self.settings.timeout)
        connector = aiohttp.TCPConnector(limit=self.settings.in_flight)
        queue = iter(todo)
        async with aiohttp.ClientSession(headers=headers, timeout=timeout, connector=connector) as session:
            if self.settings.budget_usd is not None:  # one alone shows what an answer costs
                await self._some(session, iter([next(queue)]))
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(self.settings.in_flight, len(todo))):
                        group.create_task(self._some(session, queue))
            except BaseExceptionGroup as errors:  # the first one stopped the others
                raise errors.exceptions[0] from None

    async def _some(self, session: aiohttp.ClientSession, queue: Any) -> None:
        """Ask image after image until none is left."""
        for id_, digest in queue:
            if not self._affordable():
                self.over_budget = True
                return
            self.pending += 1
            try:
                await self._one(session, id_, digest)
            finally:
                self.pending -= 1
            self.tick(1)

    def _affordable(self) -> bool:
        """Whether one more request stays within the budget, if those in flight cost as much as the dearest so far."""
        if self.settings.budget_usd is None:
            return True
        spent = self.cache.spent.get(self.settings.name, 0.0)
        return spent + (self.pending + 1) * (self.dearest or 0.0) <= self.settings.budget_usd

    async def _one(self, session: aiohttp.ClientSession, id_: str, digest: str) -> None:
        image, extension = self.load(id_)
        body = self.question.body(self.settings.model or "", image, extension)

        async def once() -> dict[str, Any]:
            await asyncio.sleep(max(0.0, self.resume_at - time.monotonic()))
            try:
                return await self._post(session, body)
            except Temporary as failure:
                if failure.wait:
                    self.resume_at = max(self.resume_at, time.monotonic() + failure.wait)
                raise

        try:
            document = await repeat_async(once, Policy(self.settings.retries + 1, BACKOFF, LONGEST_BACKOFF))
        except Temporary as failure:
            self.failed[str(failure)] += 1
        else:
            self._store(digest, document)

    async def _post(self, session: aiohttp.ClientSession, body: dict[str, Any]) -> dict[str, Any]:
        address = f"{(self.settings.url or '').rstrip('/')}/chat/completions"
        try:
            async with session.post(address, json=body, allow_redirects=False) as response:
                data = await _at_most(response, LARGEST)
                if response.status == 429 and b"insufficient_quota" in data:
                    raise self._no_credit()
                if response.status in AGAIN:
                    raise Temporary(f"HTTP {response.status}", seconds_after(response.headers.get("Retry-After")))
                if response.status != 200:
                    raise self._refused(response.status, data)
        except TimeoutError:
            raise Temporary("time-outs") from None
        except aiohttp.InvalidURL:
            raise BadConfig(f"The address {address!r} of the judge {self.settings.name!r} is no URL.") from None
        except aiohttp.ClientError as error:
            raise Temporary(f"connections lost ({type(error).__name__})") from None
        return response_of(data)

    def _no_credit(self) -> DriftlineError:
        """The error for an account without credit, whose status is that of a rate limit [OpenAI, Error codes]."""
        return Unfinished(
            f"The account of the judge {self.settings.name!r} has no credit left (HTTP 429, insufficient_quota).",
            "",
            "Add credit, then run the same command: it asks only the open images.",
        )

    def _refused(self, status: int, data: bytes) -> DriftlineError:
        """The error for a status that every further request would get, too."""
        name = self.settings.name
        if status in (401, 403):
            which = self.settings.key_variable
            held = f"the key of the variable {which}" if which else "requests without a key"
            return BadConfig(
                f"The endpoint of the judge {name!r} refuses {held} (HTTP {status}).",
                "Expected one that it accepts.",
                f"Set {which} to a valid key." if which else "Name a variable with a key: key_variable.",
            )
        text = self._hidden(data.decode("utf-8", "replace"))
        return BadConfig(
            f"The endpoint of the judge {name!r} answers HTTP {status}: {shortened(text, 200)}",
            f"Expected it to know the model {self.settings.model!r}, images and response_format: json_schema.",
            "Check url and model.",
        )

    def _hidden(self, text: str) -> str:
        return text.replace(self.secret, "…") if self.secret else text

    def _store(self, digest: str, document: dict[str, Any]) -> None:
        settings, usage = self.settings, document.get("usage")
        tokens = [
            usage.get(name) if isinstance(usage, dict) else None for name in ("prompt_tokens", "completion_tokens")
        ]
        counted = [n if isinstance(n, int) and not isinstance(n, bool) and n >= 0 else None for n in tokens]
        if None in counted and settings.budget_usd is not None:
            raise BadConfig(
                f"The endpoint of the judge {settings.name!r} reports no token counts.",
                "Expected them, because budget_usd is set.",
                "Remove budget_usd.",
            )
        into, out = (n or 0 for n in counted)
        usd = (into * settings.usd_per_million_in + out * settings.usd_per_million_out) / 1e6
        self.dearest = max(self.dearest or 0.0, usd)
        reported = document.get("model")
        if not isinstance(reported, str) or not reported:
            reported = settings.model or ""
        reported = shortened(self._hidden(reported).encode("utf-8", "replace").decode(), 200)
        answer = read_answer(document["choices"][0], self.question)
        self.cache.add(
            image=digest,
            question=self.question.fingerprint,
            judge=settings.name,
            requested=settings.model,
            reported=reported,
            model=fingerprint([settings.model, reported]),
            labels=list(answer.labels),
            sensitive=answer.sensitive,
            confidence=answer.confidence,
            fault=answer.fault,
            tokens=[into, out],
            usd=usd,
        )


def response_of(data: bytes) -> dict[str, Any]:
    """A document with `choices`. Raises Temporary for anything else."""
    try:
        document = json_value(data)
    except (ValueError, RecursionError):
        raise Temporary("responses that are not JSON") from None
    if not isinstance(document, dict) or not isinstance(document.get("choices"), list) or not document["choices"]:
        raise Temporary("responses of another protocol")
    return document


async def _at_most(response: aiohttp.ClientResponse, most: int) -> bytes:
    """The body. Raises Temporary for a longer one."""
    parts, size = [], 0
    async for part in response.content.iter_chunked(1 << 16):
        size += len(part)
        if size > most:
            raise Temporary(f"responses longer than {most:,} bytes")
        parts.append(part)
    return b"".join(parts)
