"""Releases in a bucket: side by side, complete when SHA256SUMS is there, whatever the service answers on the way."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.published import exported
from support.s3_server import BUCKET, Bucket, bucket

from driftline.curate.core.errors import BadConfig, BadInput, IntegrityError, Unfinished
from driftline.curate.publishing import PUBLISHERS, Plan, Published, Settings

SUMS = "cars/1.0.0/SHA256SUMS"
ALL = [SUMS[:11] + name for name in ("README.md", "SHA256SUMS", "data/a.jpg", "data/b.jpg", "release.json")]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0)
    with bucket(monkeypatch) as state:
        yield state


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return exported(tmp_path / "cars")


def publish(plan: Plan, place: str = f"{BUCKET}/cars", public: bool = False) -> Published:
    return PUBLISHERS["s3"](plan, place, Settings(public))


def test_versions_stand_side_by_side(server: Bucket, plan: Plan, tmp_path: Path) -> None:
    publish(plan)
    publish(exported(tmp_path / "next", version="1.1.0"))
    assert server.names() == sorted([*ALL, *(key.replace("1.0.0", "1.1.0") for key in ALL)])
    data = server.client.get_object(Bucket=BUCKET, Key=ALL[2])["Body"].read()  # type: ignore[attr-defined]
    assert data == (plan.folder / "data" / "a.jpg").read_bytes()
    again = publish(plan)
    assert (again.sent, again.note) == (0, "This version is there already.")
    with pytest.raises(BadInput, match=r"has version 1\.0\.0 with other content"):
        publish(exported(tmp_path / "other", {"data/z.jpg": b"z"}))


@pytest.mark.parametrize("fault", [(503, "SlowDown")])
@pytest.mark.parametrize("operation", ["ListObjectsV2", "PutObject", "GetObject"])
def test_after_any_failure_the_same_command_goes_on_and_the_version_is_complete_last(server, plan, operation, fault):
    for times in (1, 3, 9):
        server.faults = [[operation, fault, times]]
        done = None
        with suppress(Unfinished, IntegrityError, BadInput):
            done = publish(plan)
        server.faults = []
        assert done is None or server.names() == ALL, "what is said to be there is there"
        assert SUMS not in server.names() or server.names() == ALL
    publish(plan)
    assert server.names() == ALL


def test_an_outage_leaves_the_rest_to_the_next_run_which_reads_a_list_of_many_pages(server: Bucket, plan: Plan) -> None:
    server.page, server.faults = 1, [["PutObject", lambda: None, 3], ["PutObject", (503, "SlowDown"), 99]]
    with pytest.raises(Unfinished, match=r"is not complete \(SlowDown\)\. Run the same command again"):
        publish(plan)
    assert len(server.names()) == 3
    server.faults = []
    assert publish(plan).sent == 2
    assert server.names() == ALL


@pytest.mark.parametrize(
    "code", ["ExpiredToken", "InvalidToken", "AccessDenied", "SignatureDoesNotMatch", "RequestTimeTooSkewed"]
)
def test_keys_that_end_halfway_are_one_sentence_and_the_upload_goes_on(server: Bucket, plan: Plan, code: str) -> None:
    server.faults = [["PutObject", lambda: None, 2], ["PutObject", (403, code), 9]]
    with pytest.raises(BadConfig, match=rf"s3://benchmarks cannot be written \({code}\)"):
        publish(plan)
    server.faults = []
    assert publish(plan).sent == 3


def test_a_bucket_without_acls_cannot_be_made_public_file_by_file(server: Bucket, plan: Plan) -> None:
    with pytest.raises(BadConfig, match=r"has ACLs disabled.*a policy of the bucket.*without --public"):
        publish(plan, public=True)
    server.acls = True
    assert publish(plan, public=True).public


def test_a_bucket_that_is_not_there(server: Bucket, plan: Plan) -> None:
    with pytest.raises(BadConfig, match="NoSuchBucket"):
        publish(plan, "nobody")
