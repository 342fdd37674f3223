"""Files on S3 → files here: listed, checked for size, fetched in ranges that go on where they stopped, verified."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from curate.core.atomic_io import read_json, sync_folder, write_json
from curate.core.errors import BadConfig, BadInput, DriftlineError, IntegrityError
from curate.core.run_log import RunLog

RANGE = 64 << 20  # bytes of one request
TRIES = 8  # failures in a row without a byte


@dataclass(frozen=True)
class S3Rules:
    """profile: of the AWS configuration; None: no key at all (public buckets). requester_pays: the account of
    `profile` pays for the transfer. endpoint: another server that speaks S3. md5: of the one file, in hexadecimal."""

    profile: str | None = None
    requester_pays: bool = False
    endpoint: str | None = None
    region: str = "us-west-2"
    md5: str | None = None


def client(rules: S3Rules, keys: bool = False) -> Any:
    """A boto3 client: with the keys of a profile; else anonymous, or with the usual variables' keys where `keys`."""
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config
    from botocore.exceptions import ProfileNotFound

    if rules.requester_pays and rules.profile is None:
        raise BadConfig(
            "collection.s3.requester_pays is true without a profile.",
            "Expected the account that pays.",
            "Set collection.s3.profile.",
        )
    signed = keys or rules.profile is not None
    settings = Config(
        retries={"max_attempts": 3, "mode": "standard"}, connect_timeout=10, read_timeout=30,
        signature_version="s3v4" if signed else UNSIGNED,
    )  # fmt: skip
    try:
        session = boto3.Session(profile_name=rules.profile, region_name=rules.region)
    except ProfileNotFound:
        raise BadConfig(f"There is no AWS profile {rules.profile!r}.", "", "See ~/.aws/config.") from None
    if keys and session.get_credentials() is None:
        raise BadConfig(
            "There are no AWS credentials.", "Expected a profile or the usual variables.", "See aws configure."
        )
    return session.client("s3", endpoint_url=rules.endpoint, config=settings)


def fetch(uri: str, into: Path, rules: S3Rules, run_log: RunLog) -> Path:
    """Fetch `s3://bucket/key`, or all of `s3://bucket/prefix/`, below `into`; returns the file or folder.

    A file that is there with the size and version that the server names is not asked for again. Raises BadInput
    (no such file, no access), IntegrityError (checksum), DriftlineError (the connection fails again and again).
    """
    parts = urlsplit(uri)
    bucket, key = parts.netloc, parts.path.lstrip("/")
    if parts.scheme != "s3" or not bucket or not key:
        raise BadInput(
            f"collection.path is {uri!r}.", "Expected s3://bucket/key, or s3://bucket/prefix/ for all of it."
        )
    from botocore.exceptions import BotoCoreError

    try:
        return _fetch_all(uri, bucket, key, into / bucket, rules, run_log)
    except BotoCoreError as error:
        raise DriftlineError(
            f"{uri} cannot be reached ({error}).",
            "Expected a server that speaks S3.",
            "Run the same command again: what is here is kept.",
        ) from None


def _fetch_all(uri: str, bucket: str, key: str, base: Path, rules: S3Rules, run_log: RunLog) -> Path:
    server = client(rules)
    payer = {"RequestPayer": "requester"} if rules.requester_pays else {}
    if not key.endswith("/"):
        return _fetch_one(server, bucket, key, _place(base, key), rules, payer, run_log)
    listed = _asked(
        uri,
        lambda: [
            entry["Key"]
            for page in server.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key, **payer)
            for entry in page.get("Contents", [])
            if not entry["Key"].endswith("/")
        ],
    )
    if not listed:
        raise BadInput(f"{uri} is empty.", "Expected files below it.")
    for name in listed:
        _fetch_one(server, bucket, name, _place(base, name), rules, payer, run_log)
    return _place(base, key)


def _place(base: Path, key: str) -> Path:
    """Where a key is kept: never outside `base`."""
    if any(part in ("..", ".", "") for part in key.rstrip("/").split("/")) or "\x00" in key:
        raise BadInput(f"The key {key!r} is no path.", "Expected names without '..'.")
    return base / PurePosixPath(key)


def _fetch_one(
    server: Any, bucket: str, key: str, path: Path, rules: S3Rules, payer: dict[str, str], run_log: RunLog
) -> Path:
    uri = f"s3://{bucket}/{key}"
    head = _asked(uri, lambda: server.head_object(Bucket=bucket, Key=key, **payer))
    size, version = int(head["ContentLength"]), str(head["ETag"]).strip('"')
    facts = {"uri": uri, "size": size, "etag": version}
    note = path.with_name(path.name + ".s3.json")
    if path.is_file() and path.stat().st_size == size and note.is_file() and read_json(note) == facts:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{version[:16].replace('/', '_')}.part")  # of this version only
    with part.open("ab") as file, run_log.progress(f"fetch {path.name}", size, "bytes") as tick:
        done = file.tell()
        tick(done)
        failures = 0
        while done < size:
            got = _range(server, bucket, key, done, min(done + RANGE, size), version, payer, file, tick)
            file.flush()
            os.fsync(file.fileno())
            failures = 0 if got else failures + 1
            done += got
            if failures == TRIES:
                raise DriftlineError(
                    f"{uri} gave no byte {TRIES} times in a row after {done:,} of {size:,}.",
                    "Expected the rest.",
                    "Run the same command again: what is here is kept.",
                )
    _verify(part, uri, size, version, rules)
    os.replace(part, path)
    write_json(note, facts)
    sync_folder(path.parent)
    return path


def _range(
    server: Any, bucket: str, key: str, start: int, stop: int, version: str, payer: dict[str, str], file: Any,
    tick: Callable[[int], None],
) -> int:  # fmt: skip
    """Append bytes [start, stop) to `file`; returns how many came before the connection ended."""
    from botocore.exceptions import BotoCoreError
    from urllib3.exceptions import HTTPError

    got = 0
    try:
        answer = _asked(
            f"s3://{bucket}/{key}",
            lambda: server.get_object(
                Bucket=bucket, Key=key, Range=f"bytes={start}-{stop - 1}", IfMatch=f'"{version}"', **payer
            ),
        )
        while piece := answer["Body"].read(min(1 << 20, stop - start - got)):
            file.write(piece)
            got += len(piece)
            tick(len(piece))
            if got >= stop - start:
                break
    except (BotoCoreError, HTTPError, ConnectionError, TimeoutError):
        pass  # a connection that was cut: the next range begins where this one ended
    return got


def _asked(uri: str, question: Callable[[], Any]) -> Any:
    from botocore.exceptions import ClientError

    try:
        return question()
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code in ("404", "NoSuchKey", "NoSuchBucket"):
            raise BadInput(f"There is no {uri}.", "Expected a file on S3.", "Check collection.path.") from None
        if code in ("403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"):
            raise BadInput(
                f"{uri} may not be read ({code}).",
                "Expected a public file, or keys that may read it.",
                "Set collection.s3.profile; for requester-pays buckets also collection.s3.requester_pays.",
            ) from None
        if code in ("412", "PreconditionFailed"):
            raise IntegrityError(
                f"{uri} was changed while it was fetched.", "", "Run the same command again."
            ) from None
        raise DriftlineError(f"{uri} cannot be read ({code}: {error}).") from None


def _verify(part: Path, uri: str, size: int, version: str, rules: S3Rules) -> None:
    """Size, and MD5: the given one, else the ETag where it is one (files that were uploaded in one piece)."""
    found = part.stat().st_size
    wanted = rules.md5 or (version if "-" not in version and len(version) == 32 else None)
    digest = None
    if found == size and wanted is not None:
        with part.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != size or digest != (wanted and wanted.lower()):
        part.unlink()
        raise IntegrityError(
            f"{uri} came as {found:,} bytes with MD5 {digest}.", f"Expected {size:,} bytes with MD5 {wanted}.",
            "It was deleted; run the same command again.",
        )  # fmt: skip
