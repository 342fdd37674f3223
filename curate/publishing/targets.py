"""Where releases are published.

`hf:USER/NAME`: a dataset on the Hugging Face Hub, through its own client. One commit makes the version visible, on top
of the revision that was there when the upload began.

`s3:BUCKET/PREFIX`: each version in a folder of its own; SHA256SUMS is written last and marks it as complete.
"""

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from driftline.curate.core.errors import BadConfig, BadInput, DriftlineError, Unfinished, reason
from driftline.curate.core.late import exceptions, huggingface_hub
from driftline.curate.foreign.documents import sums_of
from driftline.curate.foreign.http import limit_hub
from driftline.curate.foreign.s3 import DENIED, S3, client, code_of
from driftline.curate.publishing import AGAIN, CONTINUE, SUMS, Plan, Published, Settings, other_content, token_of

DATASET: dict[str, Any] = {"repo_type": "dataset"}


def hub(plan: Plan, place: str, settings: Settings) -> Published:
    """A dataset on the Hugging Face Hub, private by default; one commit at the end.

    Files of the version before that this one no longer has, such as those with withdrawn images, leave the current
    revision in the same commit; files that driftline did not write stay. A version that is there with other content is
    refused. Raises what a target raises.
    """
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", place):
        raise BadConfig(f"--to is 'hf:{place}'.", "Expected hf:USER/NAME.")
    api = huggingface_hub.HfApi(settings.endpoint or os.environ.get("HF_ENDPOINT"), token=token_of(settings))
    limit_hub()
    try:
        api.create_repo(place, private=not settings.public, exist_ok=True, **DATASET)
        published = _commit(api, plan, place)
        api.create_tag(place, tag=f"v{plan.version}", exist_ok=True, **DATASET)  # a kill may have left it out
    except DriftlineError:
        raise
    except Exception as error:  # the client's, of its HTTP library, and of answers that are not what it expects
        raise _failure(place, error) from None
    return published


def _commit(api: "huggingface_hub.HfApi", plan: Plan, place: str) -> Published:
    info = api.repo_info(place, **DATASET)
    address = f"{api.endpoint}/datasets/{place}"
    before, version = _published(api, place, info.sha)
    if before == plan.sums:
        return Published(address, 0, public=not info.private, note="This version is there already.")
    if version == plan.version:
        raise other_content(place, plan)
    changed = [name for name in plan.files if name == SUMS or before.get(name) != plan.sums[name]]
    gone = sorted(set(before) - set(plan.files))
    api.create_commit(
        place,
        [
            *(huggingface_hub.CommitOperationAdd(name, plan.folder / name) for name in changed),
            *map(huggingface_hub.CommitOperationDelete, gone),
        ],
        commit_message=f"{plan.name} {plan.version}",
        parent_commit=info.sha,
        **DATASET,
    )
    return Published(address, len(changed), len(gone), public=not info.private)


def _published(api: "huggingface_hub.HfApi", place: str, revision: str | None) -> tuple[dict[str, str], str | None]:
    """Checksums of the version that is there, and its number; ({}, None) if there is none of driftline."""
    from huggingface_hub.errors import RemoteEntryNotFoundError

    with tempfile.TemporaryDirectory() as folder:
        try:
            sums, facts = (
                Path(api.hf_hub_download(place, name, revision=revision, local_dir=folder, **DATASET)).read_bytes()
                for name in (SUMS, "release.json")
            )
        except RemoteEntryNotFoundError:
            return {}, None
    return sums_of(sums, f"{place}/{SUMS}", AGAIN), json.loads(facts).get("version")


def _failure(place: str, error: Exception) -> DriftlineError:
    """The client's error in a sentence; its messages hold no token, and only their first line is kept."""
    from huggingface_hub.errors import LocalTokenNotFoundError

    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, LocalTokenNotFoundError) or status in (401, 403):
        return BadConfig(
            f"The Hub does not let you write {place} (status {status}).",
            "Expected a token with the right to write.",
            "Set HF_TOKEN, or use --token-file FILE.",
        )
    if status in (409, 412):
        why = f"{place} changed while the upload ran (status {status})."
        return Unfinished(why, "Nothing was published.", CONTINUE)
    if status is not None and status < 500 and status not in (408, 429):
        return BadInput(f"The Hub rejected {place} ({reason(error)}).")
    return Unfinished(f"The Hub cannot be reached ({f'status {status}' if status else reason(error)}).", "", CONTINUE)


def s3(plan: Plan, place: str, settings: Settings) -> Published:
    """A folder PREFIX/VERSION of an S3 bucket; objects that are there with the same checksum are not sent again.

    Nothing is deleted. A version that is complete with other content is refused. Raises what a target raises.
    """
    bucket, _, prefix = place.strip("/").partition("/")
    if not bucket:
        raise BadConfig(f"--to is 's3:{place}'.", "Expected s3:BUCKET/PREFIX.")
    from boto3.exceptions import Boto3Error

    root = "/".join(filter(None, [prefix, plan.version])) + "/"
    address = f"s3://{bucket}/{root}"
    try:
        server = client(S3(profile=settings.profile, endpoint=settings.endpoint), keys=True)
        pages = server.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=root)
        there = {entry["Key"]: entry["Size"] for page in pages for entry in page.get("Contents", ())}
        if root + SUMS in there:
            body = server.get_object(Bucket=bucket, Key=root + SUMS)["Body"].read()
            if sums_of(body, address + SUMS, AGAIN) == plan.sums:
                return Published(address, 0, note="This version is there already.")
            raise other_content(address, plan)
        access = {"ACL": "public-read"} if settings.public else {}
        sent = 0
        for name, digest in plan.sums.items():
            if there.get(root + name) == plan.files[name]:
                noted = server.head_object(Bucket=bucket, Key=root + name)["Metadata"]  # by the uploader
                if noted.get("sha256") == digest:
                    continue
            extra = {"Metadata": {"sha256": digest}, **access}
            server.upload_file(str(plan.folder / name), bucket, root + name, ExtraArgs=extra)
            sent += 1
        server.upload_file(str(plan.folder / SUMS), bucket, root + SUMS, ExtraArgs=access)
    except (exceptions.ClientError, exceptions.BotoCoreError, Boto3Error, OSError) as error:
        code = code_of(error)
        if code == "AccessControlListNotSupported":  # the setting of new buckets since April 2023
            problem = f"s3://{bucket} has ACLs disabled, so that no single file can be made public."
            way_out = "Run the same command without --public."
            raise BadConfig(problem, "Expected a policy of the bucket that lets everybody read.", way_out) from None
        if code in DENIED:
            raise BadConfig(f"s3://{bucket} cannot be written ({code}).", "", "Check bucket and --profile.") from None
        raise Unfinished(f"{address} is not complete ({code or reason(error)}).", "", CONTINUE) from None
    return Published(address, sent + 1, public=settings.public)
