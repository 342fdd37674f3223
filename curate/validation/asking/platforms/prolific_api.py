"""Prolific's API: data set → batch with `batch_items` → study; collect, approve, reject; nothing twice.

After the document that `prolific_service` names (AI Task Builder with V4 data sets, Studies, Submissions). A journal on
disk records each step before and after its call: after a crash the same command asks the service what became of the
last step. A published study is never published again.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from driftline.curate.core import journal
from driftline.curate.core.errors import BadConfig, BadInput, DriftlineError, Unfinished, shortened
from driftline.curate.core.outside.documents import known_form
from driftline.curate.core.outside.tables import csv_rows
from driftline.curate.retrieval.settings import Concept
from driftline.curate.validation.asking.batches import NONE, write_results
from driftline.curate.validation.asking.platforms.prolific_service import Service

POLLS, POLL_SECONDS = 600, 2.0
APPROVED_AT_ONCE = 1000  # "We recommend a maximum of 1,000 submission … IDs per request"
SHORTEST = 100  # characters of the reason of a rejection
PADDING = (
    " This decision follows questions with known answers in the study; please write to us if you disagree with it."
)
KNOWN = known_form("Prolific's answer, or the journal of the study,", "Run the command again; nothing is paid twice.")
COLUMNS = (
    "HITId", "AssignmentId", "WorkerId", "AssignmentStatus", "WorkTimeInSeconds", "Input.batch", "Input.item",
    "Answer.labels", "Answer.sensitive",
)  # fmt: skip
# state of a submission → of its answers; those of every other state are "Returned": given back or not handed in
STATES = {"APPROVED": "Approved", "PARTIALLY APPROVED": "Approved", "AWAITING REVIEW": "Submitted",
          "REJECTED": "Rejected"}  # fmt: skip
PUBLISHED = {"PUBLISHING", "ACTIVE", "SCHEDULED", "PAUSED", "AWAITING REVIEW", "COMPLETED"}  # states of a study


@dataclass(frozen=True)
class StudyPlan:
    """The properties of a study."""

    name: str
    description: str
    workspace: str
    """id of the workspace that pays"""
    reward: float
    """US dollars (or the workspace's currency) for one image"""
    seconds: float
    """expected for one image"""
    workers: int
    """answers for each image"""
    group: int
    """images in one submission"""

    def cents(self) -> int:
        """Reward of one submission, in hundredths."""
        return round(self.group * self.reward * 100)

    def rewards(self, images: int) -> float:
        """All rewards, without the fees of the service."""
        return -(-images // self.group) * self.workers * self.cents() / 100


class Journal(journal.Journal):
    """Steps of a study that were begun and finished."""

    entry = "a step of a study"
    way_out = "Restore the line from a copy: a step that is forgotten could be paid twice."

    def __init__(self, path: Path) -> None:
        self.done: dict[str, Any] = {}
        self.begun: dict[str, float] = {}
        """step → when it was begun, seconds since the epoch"""
        super().__init__(path)

    def take(self, entry: dict[str, Any]) -> None:
        """Remember that a step was begun, its result, or that it was refused."""
        if entry.get("refused"):
            self.begun.pop(entry["step"], None)
        elif "result" in entry:
            self.done[entry["step"]] = entry["result"]
        else:
            self.begun[entry["step"]] = float(entry.get("at", 0))

    def begin(self, step: str) -> bool:
        """Record that a step begins; whether it was begun before."""
        before = step in self.begun
        self.add(step=step, at=int(time.time()))
        return before

    def refuse(self, step: str) -> None:
        """Record that a step was not carried out."""
        self.add(step=step, refused=True)

    def end(self, step: str, result: Any) -> Any:
        """Record the result of a step, and return it."""
        self.add(step=step, result=result)
        return result


def layout(concepts: Sequence[Concept]) -> list[dict[str, Any]]:
    """`batch_items`: one page with the image on the left and the two questions on the right."""
    options = [{"label": c.option or c.name, "value": c.name} for c in concepts]
    options.append({"label": "None of the above", "value": NONE})
    labels = {
        "type": "multiple_choice",
        "description": "Select every element that you see in this image; “None of the above” stands alone.",
        "answer_limit": len(options),
        "options": options,
    }
    sensitive = {
        "type": "multiple_choice",
        "description": "Does this image contain sensitive content (pornography, abuse, hate speech, …)?",
        "answer_limit": 1,
        "options": [{"label": "No", "value": "no"}, {"label": "Yes", "value": "yes"}],
    }
    image = {"type": "dataset_field", "field": "image"}
    return [{"rows": [{"columns": [{"items": [image]}, {"items": [labels, sensitive]}]}]}]


@KNOWN
def publish(
    service: Service,
    batch: Mapping[str, Any],
    addresses: Mapping[str, str],
    concepts: Sequence[Concept],
    plan: StudyPlan,
    journal: Journal,
    max_usd: float | None,
) -> dict[str, Any]:
    """Publish a batch as one study, step by step; finished steps are not repeated. Returns the ids and the cost.

    Raises BadConfig without `max_usd`, if the rewards or the cost that Prolific computes exceed it, or for an address
    that is not https; Unfinished where Prolific takes longer: the same command continues.
    """
    if max_usd is None or plan.rewards(len(addresses)) > max_usd:
        raise BadConfig(
            f"The rewards are ${plan.rewards(len(addresses)):,.2f}, without fees; --max-usd is {max_usd}.",
            "Expected at least the rewards and the fees.",
        )
    if refused := [a for a in addresses.values() if not a.startswith("https://")]:
        raise BadConfig(f"The image address {shortened(refused[0], 80)} is not https.", "Prolific shows only https.")
    name = f"driftline {batch['batch']}"
    done = journal.done
    if "data" not in done:
        _data(service, name, addresses, plan, journal)
    if "batch" not in done:
        journal.begin("batch")  # batches cost nothing: one that a crash forgot stays unused
        steps = {"task_name": plan.name, "task_introduction": f"<p>{plan.description}</p>", "task_steps": ""}
        body = {"name": name, "workspace_id": plan.workspace, "dataset_id": done["data"], "task_details": steps,
                "batch_items": layout(concepts)}  # fmt: skip
        created = service.call("POST", "/data-collection/batches", body)
        ids = [i["id"] for i in created["batch_items"][0]["rows"][0]["columns"][1]["items"]]
        result = {"id": created["id"], "labels": ids[0], "sensitive": ids[1], "items": sorted(addresses)}
        journal.end("batch", result)
    place = f"/data-collection/batches/{done['batch']['id']}"
    if "setup" not in done:
        if not journal.begin("setup") or service.call("GET", f"{place}/status")["status"] == "UNINITIALISED":
            service.call("POST", f"{place}/setup", {"tasks_per_group": plan.group})
        _until(service, f"{place}/status", {"READY"}, {"UNINITIALISED", "PROCESSING"})
        journal.end("setup", True)
    if "study" not in done:
        existing = (
            [s for s in service.all("/studies/") if s.get("internal_name") == name] if journal.begin("study") else []
        )
        study = existing[0] if existing else service.call("POST", "/studies/", _study(name, plan, done["batch"]["id"]))
        journal.end("study", study["id"])
    study = service.call("GET", f"/studies/{done['study']}/")
    cost = _cost(service, study)
    if "published" not in done:
        if study["status"] == "UNPUBLISHED":
            if not cost <= max_usd:
                raise BadConfig(f"The study costs ${cost:,.2f} with fees; --max-usd is {max_usd}.", "Expected more.")
            journal.begin("published")
            service.call("POST", f"/studies/{done['study']}/transition/", {"action": "PUBLISH"})
        elif study["status"] not in PUBLISHED:
            raise BadInput(f"Prolific says that the study is {study['status']!r}.", "Expected UNPUBLISHED or ACTIVE.")
        journal.end("published", True)
    return {"study": done["study"], "batch": done["batch"]["id"], "images": len(addresses), "cost_usd": cost}


def _data(service: Service, name: str, addresses: Mapping[str, str], plan: StudyPlan, journal: Journal) -> None:
    """Create a data set and import the images; what a crash left is free, and stays unused."""
    journal.begin("data")
    fields = {"image": {"type": "image_url", "label": "Image"}, "item": {"type": "metadata"}}
    body = {"name": name, "workspace_id": plan.workspace, "schema": {"strict": False, "fields": fields}}
    created = service.call("POST", "/data-collection/datasets", body)["id"]
    place = f"/data-collection/datasets/{created}"
    target = service.call("GET", f"{place}/upload-url/images.jsonl")
    lines = "".join(json.dumps({"image": url, "item": item}) + "\n" for item, url in addresses.items())
    service.upload(target["upload_url"], lines.encode(), target.get("content_type", "application/x-ndjson"))
    _until(service, f"{place}/imports/{target['import_id']}", {"complete"}, {"uninitialised", "queued", "processing"})
    journal.end("data", created)


def _cost(service: Service, study: Mapping[str, Any]) -> float:
    """What a study costs with fees, in its currency: as it says itself, else by Prolific's calculator."""
    if (cents := study.get("total_cost")) is None:
        facts = {name: study[name] for name in ("reward", "total_available_places")}
        cents = service.call("POST", "/study-cost-calculator/", facts)["total_cost"]
    return float(cents) / 100


def _study(name: str, plan: StudyPlan, batch: str) -> dict[str, Any]:
    return {
        "name": plan.name,
        "internal_name": name,
        "description": plan.description,
        "reward": plan.cents(),
        "estimated_completion_time": max(1, round(plan.group * plan.seconds / 60)),
        "data_collection_method": "AI_TASK_BUILDER_BATCH",
        "data_collection_id": batch,
        "data_collection_metadata": {"annotators_per_task": plan.workers},
    }


def _until(service: Service, path: str, good: set[str], waiting: set[str]) -> None:
    for _ in range(POLLS):
        document = service.call("GET", path)
        if document.get("status") in good:
            return
        if document.get("status") not in waiting:
            raise DriftlineError(
                f"Prolific says of {path}: {shortened(json.dumps(document))}", f"Expected {min(good)}."
            )
        time.sleep(POLL_SECONDS)
    raise Unfinished(f"Prolific still works on {path}.", "", "The same command continues.")


def published(journal: Journal) -> str:
    if "published" not in journal.done:
        raise BadConfig("This batch has no published study.", "", "Run: driftline prolific publish DIR.")
    return str(journal.done["study"])


def submissions(service: Service, journal: Journal) -> list[dict[str, Any]]:
    """All submissions of the study, as many as Prolific counts; none of a study that is gone."""
    study = published(journal)
    total = int(service.call("GET", f"/studies/{study}/submissions/counts/", absent={"TOTAL": 0})["TOTAL"])
    return service.all("/submissions/", total, study=study, ordering="started_at")


@KNOWN
def status(service: Service, journal: Journal) -> dict[str, Any]:
    """State of the study, and submissions by state."""
    study = service.call("GET", f"/studies/{published(journal)}/")
    counts = service.call("GET", f"/studies/{published(journal)}/submissions/counts/")
    states = {state.lower(): int(n) for state, n in counts.items() if n and state != "TOTAL"}
    return {"study": study["id"], "state": study["status"], "places": study.get("total_available_places"), **states}


@KNOWN
def collect(service: Service, journal: Journal, batch: str, path: Path) -> dict[str, Any]:
    """Write the answers as a results CSV for the tally stage. The assignment is the submission.

    Returns their number, and in `left_out` how many of them do not count, by the state of their submission: it was
    returned, timed out, screened out or rejected, or is not handed in yet. They are in the file with that state.
    """
    states = {s["id"]: s for s in submissions(service, journal)}
    ids = journal.done["batch"]
    answers: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    document = service.call("GET", f"/data-collection/batches/{ids['id']}/responses")
    records = document["results"] or []
    if (n := (document.get("meta") or {}).get("count", len(records))) != len(records):
        raise Unfinished(f"Prolific gives {len(records):,} of {n:,} responses.", "", "The same command asks again.")
    asked = None if "items" not in ids else set(ids["items"])  # an earlier version did not write them
    for record in records:
        item = (record.get("metadata") or {}).get("item")
        if not isinstance(item, str) or (asked is not None and item not in asked):
            problem = f"The response {record.get('id')} names the item {shortened(repr(item), 60)}."
            raise BadInput(problem, "Expected one of the data set.", "The same command asks again.")
        answer, submission = record["response"], record["submission_id"]
        field = {ids["labels"]: "labels", ids["sensitive"]: "sensitive"}.get(answer["instruction_id"])
        if field is not None:
            values = "|".join(str(one["value"]) for one in answer.get("answer") or [])
            answers[submission, item] |= {field: values, "worker": record.get("participant_id") or submission}
    sizes = Counter(submission for submission, _ in answers)
    rows, left_out = [], Counter[str]()
    for (submission, item), answer in sorted(answers.items()):
        state = states.get(submission, {})
        name, seconds = state.get("status") or "unknown", _seconds(state)
        if STATES.get(name, "Returned") in ("Rejected", "Returned"):
            left_out[name.lower()] += 1
        rows.append(
            (ids["id"], submission, answer["worker"], STATES.get(name, "Returned"),
             "" if seconds is None else round(seconds / sizes[submission]), batch, item, answer.get("labels", ""),
             answer.get("sensitive", ""))
        )  # fmt: skip
    write_results(path, COLUMNS, rows)
    return {"answers": len(rows), "left_out": dict(sorted(left_out.items()))}


def _seconds(submission: Mapping[str, Any]) -> float | None:
    """How long a participant worked on a submission; None if it is not handed in, or does not say it."""
    if (taken := submission.get("time_taken")) is not None:
        return float(taken)
    try:
        began, ended = (datetime.fromisoformat(submission[name]) for name in ("started_at", "completed_at"))
        return max(0.0, (ended - began).total_seconds())
    except (KeyError, TypeError, ValueError):
        return None


def read_rejections(path: Path) -> dict[str, str]:
    """Submission → reason, from a CSV with the columns AssignmentId and Reject."""
    rows = csv_rows(path, ["AssignmentId", "Reject"], "Expected AssignmentId and Reject.")
    return {row["AssignmentId"]: row["Reject"].strip() for _, row in rows if row["Reject"].strip()}


@KNOWN
def decide(service: Service, journal: Journal, rejected: Mapping[str, str], approve: bool) -> dict[str, int]:
    """Reject the submissions of `rejected` (submission → reason) and, with `approve`, approve all others that wait.

    Prolific ignores a decision that was made before, so that the same command can be repeated. It approves, and pays,
    in the minutes after the request.
    """
    waiting = [s["id"] for s in submissions(service, journal) if s["status"] == "AWAITING REVIEW"]
    refused = {id_: rejected[id_] for id_ in waiting if rejected.get(id_)}
    for id_, reason in refused.items():
        message = reason if len(reason) >= SHORTEST else f"{reason}.{PADDING}"
        body = {"action": "REJECT", "message": message, "rejection_category": "FAILED_CHECK"}
        service.call("POST", f"/submissions/{id_}/transition/", body)
    approved = [id_ for id_ in waiting if approve and id_ not in refused]
    for start in range(0, len(approved), APPROVED_AT_ONCE):
        some = approved[start : start + APPROVED_AT_ONCE]
        service.call("POST", "/submissions/bulk-approve/", {"submission_ids": some})
    return {"approved": len(approved), "rejected": len(refused)}
