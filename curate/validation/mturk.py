"""Mechanical Turk's API: publish a batch without ever paying twice, collect answers, approve and reject with reasons.

Amazon has announced the end of the service; clones speak its protocol. Sandbox unless told otherwise. What was asked
for and what came of it stands in a run_log, on disk before and after each call: a crash between the two is resolved by
asking the service for the token, never by publishing again.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.core.atomic_io import write_text
from curate.core.errors import BadConfig, BadInput, DriftlineError
from curate.validation.answers import fields_of
from curate.validation.batches import estimate, table

SANDBOX = "https://mturk-requester-sandbox.us-east-1.amazonaws.com"
PRODUCTION = "https://mturk-requester.us-east-1.amazonaws.com"
SUBMIT = {
    False: "https://workersandbox.mturk.com/mturk/externalSubmit",
    True: "https://www.mturk.com/mturk/externalSubmit",
}
LARGEST = 65_535  # bytes of a question, white space included
HTML_QUESTION = "http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/2011-11-11/HTMLQuestion.xsd"
COLUMNS = (
    "HITId", "AssignmentId", "WorkerId", "AssignmentStatus", "WorkTimeInSeconds", "Input.batch", "Input.item",
    "Answer.labels", "Answer.sensitive",
)  # fmt: skip
# Fills the assignment's id from the address, as every page that MTurk shows in a frame must.
SCRIPT = (
    "<script>document.querySelector('[name=assignmentId]').value="
    "new URLSearchParams(location.search).get('assignmentId')||'';</script>"
)


@dataclass(frozen=True)
class Plan:
    """What a batch asks for. reward: US dollars an answer. lifetime, duration, auto_approval: seconds."""

    title: str
    description: str
    reward: float
    workers: int
    lifetime: int = 7 * 86_400
    duration: int = 600
    auto_approval: int = 3 * 86_400

    def cost(self, images: int) -> float:
        """US dollars for all answers, fees included."""
        return estimate(images, self.workers, self.reward)


class RunLog:
    """What was asked of the service, and what it gave: one line each, on disk when `add` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: list[dict[str, Any]] = []
        if path.is_file():
            data = path.read_bytes()
            whole = data.rfind(b"\n") + 1
            if whole < len(data):  # a crash in the middle of a line: the call it was for has not been made
                os.truncate(path, whole)
            self.entries = [json.loads(line) for line in data[:whole].decode("utf-8").splitlines()]

    def add(self, **entry: Any) -> None:
        """Append and sync."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, sort_keys=True) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.entries.append(entry)

    def hits(self) -> dict[str, str]:
        """item → HIT."""
        return {e["item"]: e["hit"] for e in self.entries if e["event"] == "hit"}

    def begun(self) -> set[str]:
        """Items whose HIT was asked for."""
        return {e["item"] for e in self.entries if e["event"] == "asking"}

    def place(self) -> str | None:
        """The endpoint of earlier calls."""
        return next((str(e["endpoint"]) for e in self.entries if e["event"] == "type"), None)


def client(endpoint: str, profile: str | None = None) -> Any:
    """A boto3 client of the service. Raises BadConfig where there are no credentials."""
    import boto3
    from botocore.config import Config

    session = boto3.Session(profile_name=profile)
    if session.get_credentials() is None:
        raise BadConfig(
            "There are no AWS credentials.", "Expected a profile or the usual variables.", "See aws configure."
        )
    # No retries of its own for writes that cost money: our journal decides what is asked again.
    settings = Config(retries={"total_max_attempts": 3, "mode": "standard"}, connect_timeout=10, read_timeout=30)
    return session.client("mturk", region_name="us-east-1", endpoint_url=endpoint, config=settings)


def question(page: str, image_url: str, item: str, submit: str) -> str:
    """HTMLQuestion XML of one image. Raises BadConfig where it is larger than the service takes."""
    hidden = f'<input type="hidden" name="assignmentId" value=""><input type="hidden" name="item" value="{item}">'
    shown = (
        page.replace("${image_url}", image_url.replace("&", "&amp;").replace('"', "&quot;"))
        .replace('action="/mturk/externalSubmit"', f'action="{submit}"')
        .replace("</form>", hidden + SCRIPT + "</form>", 1)
    )
    safe = shown.replace("]]>", "]]]]><![CDATA[>")
    whole = (
        f'<HTMLQuestion xmlns="{HTML_QUESTION}"><HTMLContent><![CDATA[{safe}]]></HTMLContent>'
        "<FrameHeight>0</FrameHeight></HTMLQuestion>"
    )
    if (size := len(whole.encode())) > LARGEST:
        raise BadConfig(
            f"The question page has {size:,} bytes.", f"MTurk takes {LARGEST:,}.", "Use fewer or shorter options."
        )
    return whole


def publish(
    service: Any,
    endpoint: str,
    batch: Mapping[str, Any],
    page: str,
    addresses: Mapping[str, str],
    plan: Plan,
    run_log: RunLog,
    tick: Callable[[int], None],
    production: bool = False,
    max_spend: float | None = None,
) -> int:
    """Publish every item of `batch` that has no HIT yet; returns how many were published now.

    addresses: item → address of its image (https). Raises BadConfig for production without enough `max_spend`, another
    endpoint than that of earlier calls, or addresses that workers' browsers refuse.
    """
    items = sorted(batch["items"])
    if production and (max_spend is None or plan.cost(len(items)) > max_spend):
        raise BadConfig(
            f"The batch costs about ${plan.cost(len(items)):,.2f}; --max-spend is {max_spend}.",
            "Expected at least the estimate before anything is published.",
        )
    if (before := run_log.place()) is not None and before != endpoint:
        raise BadConfig(f"This batch was published at {before}.", f"Asked for {endpoint}.", "Go on where it began.")
    if strange := [a for a in addresses.values() if not a.startswith("https://")]:
        raise BadConfig(
            f"The image address {strange[0]} is not https.",
            "Workers' browsers load nothing else.",
            "Set validation.image_base_url to where the images are.",
        )
    kind = _hit_type(service, endpoint, plan, run_log)
    known, begun = run_log.hits(), run_log.begun()
    lost = begun - set(known)
    found = _by_token(service) if lost else {}
    published = 0
    for item in items:
        if item not in known:
            token = f"{batch['batch']}-{item}"[:64]
            if item in lost and token in found:
                run_log.add(event="hit", item=item, hit=found[token])
            else:
                run_log.add(event="asking", item=item, token=token)
                text = question(page, addresses[item], item, SUBMIT[production])
                run_log.add(event="hit", item=item, hit=_create(service, kind, text, token, plan))
                published += 1
        tick(1)
    return published


def _hit_type(service: Any, endpoint: str, plan: Plan, run_log: RunLog) -> str:
    known = next((e["type"] for e in run_log.entries if e["event"] == "type"), None)
    if known is None:
        answer = service.create_hit_type(
            Title=plan.title,
            Description=plan.description,
            Reward=f"{plan.reward:.2f}",
            AssignmentDurationInSeconds=plan.duration,
            AutoApprovalDelayInSeconds=plan.auto_approval,
            Keywords="image, classification",
        )
        known = answer["HITTypeId"]  # equal properties give the same type: asking twice costs nothing
        run_log.add(event="type", type=known, endpoint=endpoint)
    return str(known)


def _create(service: Any, kind: str, text: str, token: str, plan: Plan) -> str:
    try:
        answer = service.create_hit_with_hit_type(
            HITTypeId=kind,
            MaxAssignments=plan.workers,
            LifetimeInSeconds=plan.lifetime,
            Question=text,
            RequesterAnnotation=token,
            UniqueRequestToken=token,
        )
    except service.exceptions.RequestError as error:
        told = re.search(r"HitAlreadyExists.*?\b([A-Z0-9]{20,})\b", str(error))
        if told is None:
            raise DriftlineError(f"MTurk refused: {error}.", "Expected a HIT.", "What is published is kept.") from None
        return told.group(1)
    return str(answer["HIT"]["HITId"])


def _by_token(service: Any) -> dict[str, str]:
    """Token → HIT of everything that is there."""
    found = {}
    for page in service.get_paginator("list_hits").paginate():
        for hit in page["HITs"]:
            if hit.get("RequesterAnnotation"):
                found[hit["RequesterAnnotation"]] = hit["HITId"]
    return found


def assignments(service: Any, run_log: RunLog) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (item, assignment) of everything that was submitted."""
    pages = service.get_paginator("list_assignments_for_hit")
    for item, hit in sorted(run_log.hits().items()):
        for page in pages.paginate(HITId=hit, PaginationConfig={"PageSize": 100}):
            for assignment in page["Assignments"]:
                yield item, assignment


def status(service: Any, run_log: RunLog, plan: Plan) -> dict[str, int]:
    """hits, expected answers, and answers by their state."""
    states = Counter(a["AssignmentStatus"] for _, a in assignments(service, run_log))
    hits = len(run_log.hits())
    return {"hits": hits, "expected": hits * plan.workers, **{s.lower(): n for s, n in sorted(states.items())}}


def collect(service: Any, run_log: RunLog, batch: str, path: Path) -> int:
    """Write all answers as a results CSV that `tally` reads; returns how many. Same answers, same bytes."""
    rows = []
    for item, a in assignments(service, run_log):
        fields = fields_of(a["Answer"])
        seconds = int((a["SubmitTime"] - a["AcceptTime"]).total_seconds()) if "AcceptTime" in a else ""
        rows.append(
            (a["HITId"], a["AssignmentId"], a["WorkerId"], a["AssignmentStatus"], seconds, batch, item,
             fields.get("labels", ""), fields.get("sensitive", ""))
        )  # fmt: skip
    write_text(path, table(COLUMNS, rows))
    return len(rows)


def approve(service: Any, run_log: RunLog, rejected: Mapping[str, str]) -> dict[str, int]:
    """Approve every submitted assignment but those of `rejected` (assignment → reason). Nothing is decided twice."""
    counts = Counter(approved=0, rejected=0)
    for _, a in assignments(service, run_log):
        if a["AssignmentStatus"] != "Submitted":
            continue
        if reason := rejected.get(a["AssignmentId"]):
            service.reject_assignment(AssignmentId=a["AssignmentId"], RequesterFeedback=reason)
            counts["rejected"] += 1
        else:
            service.approve_assignment(AssignmentId=a["AssignmentId"])
            counts["approved"] += 1
    return dict(counts)


def read_rejections(path: Path) -> dict[str, str]:
    """A CSV with the columns AssignmentId and Reject (the reason), as the requester's page takes it back."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        lacking = {"AssignmentId", "Reject"} - set(reader.fieldnames or [])
        if lacking:
            raise BadInput(f"{path} lacks the columns {sorted(lacking)}.", "Expected AssignmentId and Reject.")
        return {row["AssignmentId"]: row["Reject"].strip() for row in reader if (row["Reject"] or "").strip()}


__all__: Sequence[str] = [
    "PRODUCTION",
    "SANDBOX",
    "Plan",
    "RunLog",
    "approve",
    "client",
    "collect",
    "publish",
    "read_rejections",
    "status",
]  # fmt: skip
