"""Mechanical Turk's API: publish a batch without paying twice, collect answers, approve and reject with reasons.

Amazon has announced the end of the service; compatible services use its protocol. The sandbox is the default. A journal
on disk records each call before and after it is made: after a crash between the two, the service is asked for the
request's token, and nothing is published again.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.core.atomic_io import write_text
from curate.core.errors import BadConfig, BadInput, DriftlineError
from curate.core.outside.tables import csv_rows
from curate.validation.answers import fields_of
from curate.validation.batches import estimate, marketplace_csv

SANDBOX = "https://mturk-requester-sandbox.us-east-1.amazonaws.com"
PRODUCTION = "https://mturk-requester.us-east-1.amazonaws.com"
SUBMIT = {
    False: "https://workersandbox.mturk.com/mturk/externalSubmit",
    True: "https://www.mturk.com/mturk/externalSubmit",
}
LARGEST = 65_535  # bytes of a question
HTML_QUESTION = "http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/2011-11-11/HTMLQuestion.xsd"
COLUMNS = (
    "HITId", "AssignmentId", "WorkerId", "AssignmentStatus", "WorkTimeInSeconds", "Input.batch", "Input.item",
    "Answer.labels", "Answer.sensitive",
)  # fmt: skip
# MTurk shows the page in a frame and passes the assignment's id in its address; the form must send it back.
SCRIPT = (
    "<script>document.querySelector('[name=assignmentId]').value="
    "new URLSearchParams(location.search).get('assignmentId')||'';</script>"
)


@dataclass(frozen=True)
class Plan:
    """The properties of the HITs of a batch."""

    title: str
    description: str
    reward: float
    """US dollars per answer"""
    workers: int
    """answers per image"""
    lifetime: int = 7 * 86_400
    """seconds until a HIT expires"""
    duration: int = 600
    """seconds that a worker has for an answer"""
    auto_approval: int = 3 * 86_400
    """seconds until an answer is approved automatically"""

    def cost(self, images: int) -> float:
        """US dollars for all answers, fees included."""
        return estimate(images, self.workers, self.reward)


class Journal:
    """All calls to the service and their results, one JSON object per line; `add` returns when it is on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: list[dict[str, Any]] = []
        if path.is_file():
            data = path.read_bytes()
            complete = data.rfind(b"\n") + 1
            if complete < len(data):  # a crash in the middle of a line: its call was not made
                os.truncate(path, complete)
            self.entries = [self._entry(line, n) for n, line in enumerate(data[:complete].splitlines(), 1)]

    def _entry(self, line: bytes, number: int) -> dict[str, Any]:
        """One line. Raises BadInput: a call that is forgotten would be made, and paid, twice."""
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        kinds = {"asking": ("item",), "hit": ("item", "hit"), "type": ("type", "endpoint")}
        event = str(entry.get("event")) if isinstance(entry, dict) else ""
        if event not in kinds or not all(isinstance(entry.get(key), str) for key in kinds[event]):
            raise BadInput(
                f"{self.path}, line {number}: {line[:80]!r}.",
                "Expected a call to the service.",
                "Restore the line from a copy: a call that is forgotten would be paid twice.",
            )
        return entry

    def add(self, **entry: Any) -> None:
        """Append an entry and sync the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, sort_keys=True) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.entries.append(entry)

    def hits(self) -> dict[str, str]:
        """item → id of its HIT."""
        return {e["item"]: e["hit"] for e in self.entries if e["event"] == "hit"}

    def requested(self) -> set[str]:
        """Items whose HIT was requested."""
        return {e["item"] for e in self.entries if e["event"] == "asking"}

    def endpoint(self) -> str | None:
        """The endpoint of earlier calls, if any."""
        return next((str(e["endpoint"]) for e in self.entries if e["event"] == "type"), None)


def client(endpoint: str, profile: str | None = None) -> Any:
    """A boto3 client of the service. Raises BadConfig if there are no credentials."""
    import boto3
    from botocore.config import Config

    session = boto3.Session(profile_name=profile)
    if session.get_credentials() is None:
        raise BadConfig("There are no AWS credentials.", "Expected a profile or AWS_… variables.", "Run aws configure.")
    # few retries: the journal decides which requests that cost money are repeated
    settings = Config(retries={"total_max_attempts": 3, "mode": "standard"}, connect_timeout=10, read_timeout=30)
    return session.client("mturk", region_name="us-east-1", endpoint_url=endpoint, config=settings)


def question_xml(page: str, image_url: str, item: str, submit: str) -> str:
    """HTMLQuestion XML of one image. Raises BadConfig if it is larger than the service accepts."""
    hidden = f'<input type="hidden" name="assignmentId" value=""><input type="hidden" name="item" value="{item}">'
    filled = (
        page.replace("${image_url}", image_url.replace("&", "&amp;").replace('"', "&quot;"))
        .replace('action="/mturk/externalSubmit"', f'action="{submit}"')
        .replace("</form>", hidden + SCRIPT + "</form>", 1)
    )
    escaped = filled.replace("]]>", "]]]]><![CDATA[>")
    document = (
        f'<HTMLQuestion xmlns="{HTML_QUESTION}"><HTMLContent><![CDATA[{escaped}]]></HTMLContent>'
        "<FrameHeight>0</FrameHeight></HTMLQuestion>"
    )
    if (size := len(document.encode())) > LARGEST:
        raise BadConfig(
            f"The question page has {size:,} bytes.", f"Expected at most {LARGEST:,}.", "Use fewer or shorter options."
        )
    return document


def publish(
    service: Any,
    endpoint: str,
    batch: Mapping[str, Any],
    page: str,
    addresses: Mapping[str, str],
    plan: Plan,
    journal: Journal,
    tick: Callable[[int], None],
    production: bool = False,
    max_spend: float | None = None,
) -> int:
    """Publish every item of `batch` that has no HIT yet; returns how many were published by this call.

    addresses: item → https address of its image. Raises BadConfig if `max_spend` is below the estimate in production,
    if the batch was published at another endpoint, or if an address is not https.
    """
    items = sorted(batch["items"])
    if production and (max_spend is None or plan.cost(len(items)) > max_spend):
        raise BadConfig(
            f"The batch costs about ${plan.cost(len(items)):,.2f}; --max-spend is {max_spend}.",
            "Expected at least the estimated cost.",
        )
    if (before := journal.endpoint()) is not None and before != endpoint:
        raise BadConfig(
            f"The endpoint is {endpoint}.", f"This batch was published at {before}.", "Continue with that endpoint."
        )
    if refused := [a for a in addresses.values() if not a.startswith("https://")]:
        raise BadConfig(
            f"The image address {refused[0]} is not https.",
            "Browsers of workers load only https.",
            "Set validation.image_base_url to the https address of the images.",
        )
    kind = _hit_type(service, endpoint, plan, journal)
    known = journal.hits()
    lost = journal.requested() - set(known)  # requested before a crash: published or not
    by_token = _hits_by_token(service) if lost else {}
    published = 0
    for item in items:
        if item not in known:
            token = f"{batch['batch']}-{item}"[:64]
            if item in lost and token in by_token:
                journal.add(event="hit", item=item, hit=by_token[token])
            else:
                journal.add(event="asking", item=item, token=token)
                text = question_xml(page, addresses[item], item, SUBMIT[production])
                journal.add(event="hit", item=item, hit=_create(service, kind, text, token, plan))
                published += 1
        tick(1)
    return published


def _hit_type(service: Any, endpoint: str, plan: Plan, journal: Journal) -> str:
    known = next((e["type"] for e in journal.entries if e["event"] == "type"), None)
    if known is None:
        answer = service.create_hit_type(
            Title=plan.title,
            Description=plan.description,
            Reward=f"{plan.reward:.2f}",
            AssignmentDurationInSeconds=plan.duration,
            AutoApprovalDelayInSeconds=plan.auto_approval,
            Keywords="image, classification",
        )
        known = answer["HITTypeId"]  # equal properties give the same type, so a repeated call is harmless
        journal.add(event="type", type=known, endpoint=endpoint)
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
        existing = re.search(r"HitAlreadyExists.*?\b([A-Z0-9]{20,})\b", str(error))
        if existing is None:
            raise DriftlineError(f"MTurk refused: {error}.", "Expected a HIT.", "Published HITs are kept.") from None
        return existing.group(1)
    return str(answer["HIT"]["HITId"])


def _hits_by_token(service: Any) -> dict[str, str]:
    """Token → HIT of all HITs of the account."""
    hits = {}
    for page in service.get_paginator("list_hits").paginate():
        for hit in page["HITs"]:
            if hit.get("RequesterAnnotation"):
                hits[hit["RequesterAnnotation"]] = hit["HITId"]
    return hits


def assignments(service: Any, journal: Journal) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (item, assignment) of all submitted answers."""
    pages = service.get_paginator("list_assignments_for_hit")
    for item, hit in sorted(journal.hits().items()):
        for page in pages.paginate(HITId=hit, PaginationConfig={"PageSize": 100}):
            for assignment in page["Assignments"]:
                yield item, assignment


def status(service: Any, journal: Journal, plan: Plan) -> dict[str, int]:
    """Number of HITs, of expected answers, and of answers by state."""
    states = Counter(a["AssignmentStatus"] for _, a in assignments(service, journal))
    hits = len(journal.hits())
    return {"hits": hits, "expected": hits * plan.workers, **{s.lower(): n for s, n in sorted(states.items())}}


def collect(service: Any, journal: Journal, batch: str, path: Path) -> int:
    """Write all answers as a results CSV for the tally stage; returns their number. Equal answers give equal bytes."""
    rows = []
    for item, a in assignments(service, journal):
        fields = fields_of(a["Answer"])
        seconds = int((a["SubmitTime"] - a["AcceptTime"]).total_seconds()) if "AcceptTime" in a else ""
        rows.append(
            (a["HITId"], a["AssignmentId"], a["WorkerId"], a["AssignmentStatus"], seconds, batch, item,
             fields.get("labels", ""), fields.get("sensitive", ""))
        )  # fmt: skip
    write_text(path, marketplace_csv(COLUMNS, rows))
    return len(rows)


def approve(service: Any, journal: Journal, rejected: Mapping[str, str]) -> dict[str, int]:
    """Approve all submitted assignments except those of `rejected` (assignment → reason); earlier decisions stay."""
    counts = Counter(approved=0, rejected=0)
    for _, a in assignments(service, journal):
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
    """Assignment → reason, from a CSV with the columns AssignmentId and Reject as for MTurk's requester pages."""
    rows = csv_rows(path, ["AssignmentId", "Reject"], "Expected AssignmentId and Reject.")
    return {row["AssignmentId"]: row["Reject"].strip() for _, row in rows if row["Reject"].strip()}
