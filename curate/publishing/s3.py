"""`s3:BUCKET/PREFIX`: each version in a folder of its own; SHA256SUMS is written last and marks it as complete."""

from __future__ import annotations

from typing import Any

from driftline.curate.core.errors import BadConfig, Unfinished, reason
from driftline.curate.core.outside.documents import sums_of
from driftline.curate.core.outside.s3 import DENIED, S3, client, code_of
from driftline.curate.publishing.plan import AGAIN, CONTINUE, SUMS, Plan, Published, Settings, other_content

NO_ACLS = "AccessControlListNotSupported"  # the setting of new buckets since April 2023


def publish(plan: Plan, place: str, settings: Settings) -> Published:
    """A folder PREFIX/VERSION of an S3 bucket; objects that are there with the same checksum are not sent again.

    Nothing is deleted. A version that is complete with other content is refused. Raises what `Publisher` names.
    """
    bucket, _, prefix = place.strip("/").partition("/")
    if not bucket:
        raise BadConfig(f"--to is 's3:{place}'.", "Expected s3:BUCKET/PREFIX.")
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    root = "/".join(filter(None, [prefix, plan.version])) + "/"
    try:
        server = client(S3(profile=settings.profile, endpoint=settings.endpoint), keys=True)
        there = _there(server, bucket, root)
        if SUMS in there:
            body = server.get_object(Bucket=bucket, Key=root + SUMS)["Body"].read()
            if sums_of(body, f"s3://{bucket}/{root}{SUMS}", AGAIN) == plan.sums:
                return Published(f"s3://{bucket}/{root}", 0, note="This version is there already.")
            raise other_content(f"s3://{bucket}/{root}", plan)
        sent = 0
        for name, size in plan.files.items():
            if name == SUMS:
                continue
            digest = plan.sums[name]
            if there.get(name) == size and _digest(server, bucket, root + name) == digest:
                continue
            extra = {"Metadata": {"sha256": digest}} | ({"ACL": "public-read"} if settings.public else {})
            server.upload_file(str(plan.folder / name), bucket, root + name, ExtraArgs=extra)
            sent += 1
        there = _there(server, bucket, root)  # of what a proxy took, nothing is there
        if lost := [name for name, size in plan.files.items() if name != SUMS and there.get(name) != size]:
            raise Unfinished(f"{lost[0]} was sent to s3://{bucket}/{root}, but is not there.", "", CONTINUE)
        public = {"ACL": "public-read"} if settings.public else {}
        stored = server.put_object(Bucket=bucket, Key=root + SUMS, Body=(plan.folder / SUMS).read_bytes(), **public)
        if "ETag" not in stored:
            raise Unfinished(f"s3://{bucket} did not confirm {root}{SUMS}.", "", CONTINUE)
    except (ClientError, BotoCoreError, Boto3Error, OSError) as error:
        code = code_of(error)
        if code == NO_ACLS:
            problem = f"s3://{bucket} has ACLs disabled, so that no single file can be made public."
            way_out = "Run the same command without --public."
            raise BadConfig(problem, "Expected a policy of the bucket that lets everybody read.", way_out) from None
        if code in DENIED:
            raise BadConfig(f"s3://{bucket} cannot be written ({code}).", "", "Check bucket and --profile.") from None
        why = code or reason(error)
        raise Unfinished(f"s3://{bucket}/{root} is not complete ({why}).", "", CONTINUE) from None
    return Published(f"s3://{bucket}/{root}", sent + 1, public=settings.public)


def _there(server: Any, bucket: str, root: str) -> dict[str, int]:
    """Name → bytes of the objects of a version."""
    pages = server.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=root)
    return {entry["Key"].removeprefix(root): entry["Size"] for page in pages for entry in page.get("Contents", ())}


def _digest(server: Any, bucket: str, key: str) -> str | None:
    """The checksum that the uploader noted."""
    value = server.head_object(Bucket=bucket, Key=key)["Metadata"].get("sha256")
    return None if value is None else str(value)
