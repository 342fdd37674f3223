"""`s3:BUCKET/PREFIX`: each version in a folder of its own; SHA256SUMS is written last and marks it as complete."""

from typing import Any

from driftline.curate.core.errors import BadConfig, Unfinished, reason
from driftline.curate.foreign.documents import sums_of
from driftline.curate.foreign.s3 import DENIED, S3, client, code_of
from driftline.curate.publishing import AGAIN, CONTINUE, SUMS, Plan, Published, Settings, other_content


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
            if there.get(root + name) == plan.files[name] and _digest(server, bucket, root + name) == digest:
                continue
            extra = {"Metadata": {"sha256": digest}, **access}
            server.upload_file(str(plan.folder / name), bucket, root + name, ExtraArgs=extra)
            sent += 1
        server.upload_file(str(plan.folder / SUMS), bucket, root + SUMS, ExtraArgs=access)
    except (ClientError, BotoCoreError, Boto3Error, OSError) as error:
        code = code_of(error)
        if code == "AccessControlListNotSupported":  # the setting of new buckets since April 2023
            problem = f"s3://{bucket} has ACLs disabled, so that no single file can be made public."
            way_out = "Run the same command without --public."
            raise BadConfig(problem, "Expected a policy of the bucket that lets everybody read.", way_out) from None
        if code in DENIED:
            raise BadConfig(f"s3://{bucket} cannot be written ({code}).", "", "Check bucket and --profile.") from None
        raise Unfinished(f"{address} is not complete ({code or reason(error)}).", "", CONTINUE) from None
    return Published(address, sent + 1, public=settings.public)


def _digest(server: Any, bucket: str, key: str) -> str | None:
    """The checksum that the uploader noted."""
    value = server.head_object(Bucket=bucket, Key=key)["Metadata"].get("sha256")
    return None if value is None else str(value)
