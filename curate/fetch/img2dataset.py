"""The downloader img2dataset: its own requests and retries, on threads of this process."""

import multiprocessing
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from functools import cache, partial
from multiprocessing.pool import ThreadPool
from types import ModuleType
from typing import Any

from driftline.curate.fetch.address_guard import names_private
from driftline.curate.fetch.outcome import OPT_OUT, Download
from driftline.curate.fetch.settings import FetchSettings

BAGGAGE = ("albumentations", "wandb", "webdataset")
REASONS = (  # words in its messages → reason
    (r"http error 5", "http_5xx"),
    (r"infinite loop", "redirect_loop"),
    (r"certificate|ssl", "tls_failed"),
    (r"timed out|timeout", "timeout"),
    (r"incompleteread", "truncated_body"),
    (r"use of image disallowed", "opted_out"),
    (r"refused|reset|unreachable|remote end closed|name or service|resolution|no address", "connection_failed"),
)


def download(
    rows: Sequence[tuple[int, str]], settings: FetchSettings, keep: Callable[[int, Download], None]
) -> None:  # fmt: skip
    """Request every (row, url) through img2dataset; `keep(row, outcome)` is called exactly once for each."""
    left = dict(rows)
    if settings.private_addresses == "refuse":
        for row in [row for row, url in rows if names_private(url)]:
            keep(row, Download(None, "private_address", left.pop(row)[:200]))
    ask = partial(
        one_image(), timeout=settings.timeout, retries=settings.retries, user_agent_token="driftline",
        disallowed_header_directives=set(OPT_OUT),
    )  # fmt: skip
    # Every image has its own deadline; after their sum what is left hangs, and its threads end with the process.
    rounds = (settings.retries + 1) * (2 + len(left) / settings.threads)
    end = time.monotonic() + settings.deadline * rounds
    with redirect_stdout(sys.stderr), ThreadPool(settings.threads) as pool, suppress(multiprocessing.TimeoutError):
        answers = pool.imap_unordered(ask, list(left.items()))
        while left:
            row, stream, error = answers.next(max(0.0, end - time.monotonic()))
            del left[row]
            keep(row, failure(error or "") if stream is None else _within(stream.read(), settings.max_bytes))
    for row in left:
        keep(row, Download(None, "no_result", "img2dataset gave no answer for this row"))


def _within(data: bytes, most: int) -> Download:
    return Download(data) if len(data) <= most else Download(None, "too_many_bytes", f"{len(data):,} bytes")


def failure(message: str) -> Download:
    """img2dataset's message → a failure with its reason.

    >>> failure("HTTP Error 404: Not Found").fault, failure("something new").fault
    ('http_404', 'download_failed')
    """
    text = message.lower()
    for pattern, reason in REASONS:
        if re.search(pattern, text):
            return Download(None, reason, message[:200])
    code = re.search(r"http error ([0-9]{3})", text)
    return Download(None, f"http_{code[1]}" if code else "download_failed", message[:200])


@cache
def one_image() -> Callable[..., tuple[int, Any, str | None]]:
    """img2dataset's function that requests one image: ((row, url), …) → row, stream or None, message.

    What the package imports and this does not use is kept out: albumentations asks PyPI for a newer version, wandb
    brings opentelemetry, and webdataset brings torch.
    """
    stand_ins = {name: ModuleType(name) for name in BAGGAGE if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        from img2dataset.downloader import download_image_with_retry
    finally:
        for name in stand_ins:
            del sys.modules[name]
    ask: Callable[..., tuple[int, Any, str | None]] = download_image_with_retry
    return ask
