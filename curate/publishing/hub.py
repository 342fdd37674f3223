"""`hf:USER/NAME`: a dataset on the Hugging Face Hub, through its own client.

Large files go to the Hub's store first; what is there already is not sent again. Then one commit makes the version
visible, on top of the revision that was there when the upload began.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline.curate.core.errors import BadConfig, BadInput, DriftlineError, Unfinished, reason
from driftline.curate.core.outside.documents import sums_of
from driftline.curate.core.outside.http import limit_hub
from driftline.curate.publishing.plan import AGAIN, CONTINUE, SUMS, Plan, Published, Settings, other_content, token_of

if TYPE_CHECKING:
    from huggingface_hub import HfApi

TRIES = 4
PAUSES = (1.0, 4.0, 10.0)  # seconds before each further try
KIND = "dataset"


def publish(plan: Plan, place: str, settings: Settings) -> Published:
    """A dataset on the Hugging Face Hub, private by default; one commit at the end.

    Files of the version before that this one no longer has, such as those with withdrawn images, leave the current
    revision in the same commit; files that driftline did not write stay. A version that is there with other content is
    refused. Raises what `Publisher` names.
    """
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", place):
        raise BadConfig(f"--to is 'hf:{place}'.", "Expected hf:USER/NAME.")
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    api = HfApi(settings.endpoint or os.environ.get("HF_ENDPOINT"), token=token_of(settings))
    address = f"{api.endpoint}/datasets/{place}"
    _call(place, lambda: api.create_repo(place, repo_type=KIND, private=not settings.public, exist_ok=True))
    info = _call(place, lambda: api.repo_info(place, repo_type=KIND))
    before, version = _call(place, lambda: _published(api, place, info.sha))
    tag = f"v{plan.version}"

    def mark() -> None:
        _call(place, lambda: api.create_tag(place, tag=tag, repo_type=KIND, exist_ok=True))

    if before == plan.sums:
        mark()  # a kill after the commit left it out
        return Published(address, 0, public=not info.private, note="This version is there already.")
    if version == plan.version:
        raise other_content(place, plan)
    changed = [name for name in plan.files if name == SUMS or before.get(name) != plan.sums[name]]
    gone = sorted(set(before) - set(plan.files))
    adds = [CommitOperationAdd(name, str(plan.folder / name)) for name in changed]
    _call(place, lambda: api.preupload_lfs_files(place, adds, repo_type=KIND))
    operations: list[Any] = [*adds, *(CommitOperationDelete(name) for name in gone)]
    title = f"{plan.name} {plan.version}"

    def commit() -> Any:
        if _published(api, place, "main")[0] == plan.sums:
            return None  # an earlier try arrived, only its answer was lost
        return api.create_commit(
            place, operations, commit_message=title, repo_type=KIND, parent_commit=info.sha, revision="main"
        )

    _call(place, commit)
    mark()
    return Published(address, len(changed), len(gone), public=not info.private)


def _published(api: HfApi, place: str, revision: str) -> tuple[dict[str, str], str | None]:
    """Checksums of the version that is there, and its number; ({}, None) if there is none of driftline.

    The files are asked for by name: lists of a repository end somewhere.
    """
    from huggingface_hub.errors import RemoteEntryNotFoundError

    with tempfile.TemporaryDirectory() as folder:
        try:
            paths = [
                Path(api.hf_hub_download(place, name, repo_type=KIND, revision=revision, local_dir=folder))
                for name in (SUMS, "release.json")
            ]
        except RemoteEntryNotFoundError:
            return {}, None
        try:
            version = json.loads(paths[1].read_text(encoding="utf-8")).get("version")
        except (ValueError, AttributeError):
            version = None
        return sums_of(paths[0].read_bytes(), f"{place}/{SUMS}", AGAIN), version


def _call(place: str, function: Callable[[], Any]) -> Any:
    """What the function returns; a failure that may pass is tried again. Raises BadConfig, BadInput, Unfinished.

    The client's messages hold no token, and only their first line is kept.
    """
    from huggingface_hub.errors import LocalTokenNotFoundError

    for number in range(TRIES):
        limit_hub()
        try:
            return function()
        except LocalTokenNotFoundError:
            raise BadConfig("There is no access token.", "", "Set HF_TOKEN, or use --token-file FILE.") from None
        except Exception as raised:  # the client's, of its HTTP library, and of answers that are not what it expects
            inner = raised.__cause__ if type(raised) is RuntimeError else None  # around the upload of a file
            error = inner or raised
            if isinstance(error, DriftlineError):
                raise error from None
            status = getattr(getattr(error, "response", None), "status_code", None)
            if status in (401, 403):
                raise BadConfig(
                    f"The Hub does not let you write {place} (status {status}).",
                    "Expected a token with the right to write.",
                    "Set HF_TOKEN, or use --token-file FILE.",
                ) from None
            if status in (409, 412):
                raise Unfinished(
                    f"{place} changed while the upload ran (status {status}).", "Nothing was published.", CONTINUE
                ) from None
            # Not JSON, or without the fields that the client reads: what a proxy says, or an error with status 200.
            odd = isinstance(error, json.JSONDecodeError | KeyError | TypeError | AttributeError)
            lost = isinstance(error, OSError) or type(error).__module__.startswith("httpx")
            passes = status is None and (odd or lost)
            if not passes and (status is None or (status < 500 and status not in (408, 429))):
                raise BadInput(f"The Hub refused {place} ({reason(error)}).") from None
            if number + 1 == TRIES:
                why = f"status {status}" if status else "an answer of another form" if odd else reason(error)
                raise Unfinished(f"The Hub cannot be reached ({why}).", "", CONTINUE) from None
            time.sleep(PAUSES[number])
    raise AssertionError  # the loop returns or raises
