"""Download files from S3: in ranges, so that an interrupted download continues, with size and checksum verified."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field

from driftline.curate.core.atomic_io import read_json, write_json
from driftline.curate.core.errors import BadConfig, BadInput, DriftlineError, IntegrityError
from driftline.curate.core.late import exceptions
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.settings import Form, Section
from driftline.curate.core.system import sync_folder

RANGE = 64 << 20  # bytes per request
TRIES = 5  # of a request
DENIED = {  # [S3 API reference, Error responses]; "403" and "404" are of answers without a body
    "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "NoSuchBucket", "ExpiredToken", "InvalidToken",
    "RequestTimeTooSkewed", "403", "404",
}  # fmt: skip


class S3(Section):
    """How s3:// paths are read."""

    profile: str | None = None
    """AWS profile (null: no keys, for public buckets)"""
    endpoint: str | None = None
    """another server that speaks S3 (null: Amazon's)"""
    region: str = "us-west-2"
    """region of the bucket"""
    md5: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{32}$"), Form("32 hexadecimal digits")] | None = None
    """MD5 of the file, checked after the download (null: the server's ETag, if it is an MD5)"""


def code_of(error: BaseException) -> str:
    """The code of an error of S3, also where boto3 raises another one from it (uploads); "" of other errors."""
    inner = error if isinstance(error, exceptions.ClientError) else error.__context__
    return str(inner.response.get("Error", {}).get("Code", "")) if isinstance(inner, exceptions.ClientError) else ""


def client(settings: S3, keys: bool = False) -> Any:
    """A boto3 client with the credentials of `settings.profile`; without a profile anonymous, or with the default
    credentials if `keys`."""
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    signed = keys or settings.profile is not None
    options = Config(
        retries={"max_attempts": TRIES, "mode": "standard"}, connect_timeout=10, read_timeout=30,
        signature_version="s3v4" if signed else UNSIGNED,
    )  # fmt: skip
    try:
        session = boto3.Session(profile_name=settings.profile, region_name=settings.region)
    except exceptions.ProfileNotFound:
        raise BadConfig(f"There is no AWS profile {settings.profile!r}.", "", "See ~/.aws/config.") from None
    if keys and session.get_credentials() is None:
        raise BadConfig("There are no AWS credentials.", "Expected a profile or AWS_… variables.", "Run aws configure.")
    return session.client("s3", endpoint_url=settings.endpoint, config=options)


def fetch(uri: str, into: Path, settings: S3, run_log: RunLog) -> Path:
    """Download `s3://bucket/key`, or every file below `s3://bucket/prefix/`, into `into`; returns the file or folder.

    A local file with the server's size and ETag is not downloaded again. Raises BadInput (no such file, no access),
    IntegrityError (checksum), DriftlineError (the connection fails repeatedly).
    """
    parts = urlsplit(uri)
    bucket, key = parts.netloc, parts.path.lstrip("/")
    if parts.scheme != "s3" or not bucket or not key:
        raise BadInput(
            f"collection.path is {uri!r}.", "Expected s3://bucket/key, or s3://bucket/prefix/ for every file below it."
        )
    try:
        return _fetch_all(uri, bucket, key, into / bucket, settings, run_log)
    except exceptions.BotoCoreError as error:
        raise DriftlineError(
            f"{uri} cannot be reached ({error}).",
            "Expected an S3 server.",
            "Run the same command again: downloaded data is kept.",
        ) from None


def _fetch_all(uri: str, bucket: str, key: str, base: Path, settings: S3, run_log: RunLog) -> Path:
    server = client(settings)
    if not key.endswith("/"):
        return _fetch_one(server, {"Bucket": bucket, "Key": key}, _local_path(base, key), settings, run_log)
    listed = _call(
        uri,
        lambda: [
            entry["Key"]
            for page in server.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key)
            for entry in page.get("Contents", [])
            if not entry["Key"].endswith("/")
        ],
    )
    if not listed:
        raise BadInput(f"{uri} is empty.", "Expected files below it.")
    for name in listed:
        _fetch_one(server, {"Bucket": bucket, "Key": name}, _local_path(base, name), settings, run_log)
    return _local_path(base, key)


def _local_path(base: Path, key: str) -> Path:
    """The local file of a key, always below `base`. Raises BadInput for keys that would leave it."""
    if any(part in ("..", ".", "") for part in key.rstrip("/").split("/")) or "\x00" in key:
        raise BadInput(f"The key {key!r} is not a valid path.", "Expected names without '..'.")
    return base / PurePosixPath(key)


def _fetch_one(server: Any, place: dict[str, str], path: Path, settings: S3, run_log: RunLog) -> Path:
    uri = _uri(place)
    head = _call(uri, lambda: server.head_object(**place))
    size, version = int(head["ContentLength"]), str(head["ETag"]).strip('"')
    record = {"uri": uri, "size": size, "etag": version}
    record_path = path.with_name(path.name + ".s3.json")
    if path.is_file() and path.stat().st_size == size and record_path.is_file() and read_json(record_path) == record:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(
        f"{path.name}.{version[:16].replace('/', '_')}.part"
    )  # the ETag in the name separates versions
    with open(part, "ab") as file, run_log.progress(f"fetch {path.name}", size, "bytes") as tick:
        done = file.tell()
        tick(done)
        while done < size:
            wanted = {"Range": f"bytes={done}-{min(done + RANGE, size) - 1}", "IfMatch": f'"{version}"'}
            received = _range(server, place | wanted, min(RANGE, size - done), file, tick)
            file.flush()
            os.fsync(file.fileno())
            done += received
            if not received:  # botocore has asked several times
                problem = f"{uri} failed after {done:,} of {size:,} bytes."
                raise DriftlineError(problem, "", "Run the same command again: downloaded data is kept.")
    _verify(part, uri, size, version, settings)
    os.replace(part, path)
    write_json(record_path, record)
    sync_folder(path.parent)
    return path


def _range(server: Any, wanted: dict[str, str], size: int, file: IO[bytes], tick: Callable[[int], None]) -> int:
    """Append the `size` bytes asked for to `file`; returns how many arrived before the connection ended."""
    from urllib3.exceptions import HTTPError

    received = 0
    try:
        answer = _call(_uri(wanted), lambda: server.get_object(**wanted))
        while piece := answer["Body"].read(min(1 << 20, size - received)):
            file.write(piece)
            received += len(piece)
            tick(len(piece))
            if received >= size:
                break
    except (exceptions.BotoCoreError, HTTPError, ConnectionError, TimeoutError):
        pass  # the next request continues at this byte
    return received


def _uri(place: dict[str, str]) -> str:
    return f"s3://{place['Bucket']}/{place['Key']}"


def _call(uri: str, request: Callable[[], Any]) -> Any:
    """Send a request; errors of the server are raised as BadInput, IntegrityError or DriftlineError."""
    try:
        return request()
    except exceptions.ClientError as error:
        code = code_of(error)
        if code in ("404", "NoSuchKey", "NoSuchBucket"):
            raise BadInput(f"There is no {uri}.", "Expected a file on S3.", "Check collection.path.") from None
        if code in DENIED:
            raise BadInput(
                f"Access to {uri} is denied ({code}).",
                "Expected a public file, or credentials that may read it.",
                "Set collection.s3.profile.",
            ) from None
        if code in ("412", "PreconditionFailed"):
            raise IntegrityError(f"{uri} changed during the download.", "", "Run the same command again.") from None
        raise DriftlineError(f"{uri} cannot be read ({code}: {error}).") from None


def _verify(part: Path, uri: str, size: int, version: str, settings: S3) -> None:
    """Check the size and the MD5: `settings.md5`, or the ETag if it is one (files that were uploaded in one piece)."""
    actual = part.stat().st_size
    expected = settings.md5 or (version if "-" not in version and len(version) == 32 else None)
    digest = None
    if actual == size and expected is not None:
        with part.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if actual != size or digest != (expected and expected.lower()):
        part.unlink()
        raise IntegrityError(
            f"{uri} has {actual:,} bytes with MD5 {digest}.", f"Expected {size:,} bytes with MD5 {expected}.",
            "The download was deleted; run the same command again.",
        )  # fmt: skip
