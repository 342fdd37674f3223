"""S3 by moto, made as strict as https://docs.aws.amazon.com/AmazonS3/latest, read on 27 November 2026,
where moto is kind: user guide, "Controlling ownership of objects and disabling ACLs";
API reference, "Error responses" and ListObjectsV2.

boto3, the service's own client, is what speaks to it.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

BUCKET = "benchmarks"
ERROR = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{0}</Code><Message>{0}</Message></Error>'


class Bucket:
    """client: of boto3. faults: [operation, fault, times left]; a fault is the status and code of an error, bytes that
    are answered with status 200, or a function. page: keys of a page of a list."""

    def __init__(self) -> None:
        self.page, self.client = 1000, None
        self.faults: list[list[Any]] = []
        self.acls = False  # whether the bucket's owner enabled them
        self.asked: list[str] = []

    def listen(self, client: Any) -> Any:
        """The client, whose requests are looked at before moto answers them."""
        client.meta.events.register("before-parameter-build.s3.*", self._paged)
        client.meta.events.register_first("before-send.s3.*", self._answer)
        return client

    def names(self) -> list[str]:
        """All keys of the bucket."""
        return sorted(entry["Key"] for entry in self.client.list_objects_v2(Bucket=BUCKET).get("Contents", ()))

    def _paged(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        if model.name == "ListObjectsV2":
            params["MaxKeys"] = self.page

    def _answer(self, request: Any, event_name: str, **_: Any) -> Any:
        operation = event_name.rpartition(".")[2]
        self.asked.append(operation)
        for entry in self.faults:
            if entry[0] == operation and entry[2] > 0:
                entry[2] -= 1
                return entry[1]() if callable(entry[1]) else self._reply(request, entry[1])
        if not self.acls and request.headers.get("x-amz-acl"):
            return self._reply(request, (400, "AccessControlListNotSupported"))
        return None

    def _reply(self, request: Any, fault: Any) -> Any:
        from botocore.awsrequest import AWSResponse

        request.method = "HEAD"  # moto is asked in any case, and must not carry it out
        status, data = (200, fault) if isinstance(fault, bytes) else (fault[0], ERROR.format(fault[1]).encode())
        raw = io.BytesIO(data)
        raw.stream = lambda *_, **__: iter([data])  # type: ignore[attr-defined]
        return AWSResponse(request.url, status, {"Content-Length": str(len(data))}, raw)


@contextmanager
def bucket(patch: Any) -> Iterator[Bucket]:
    """An empty bucket, which the publisher's client sees, too."""
    import boto3
    from moto import mock_aws

    from driftline.curate.publishing import targets

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        patch.setenv(name, "testing")
    state, client = Bucket(), targets.client
    patch.setattr(targets, "client", lambda *words, **named: state.listen(client(*words, **named)))
    with mock_aws():
        state.client = boto3.client("s3", region_name="us-west-2")
        state.client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
        yield state
