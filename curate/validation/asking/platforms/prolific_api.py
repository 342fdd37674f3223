"""Prolific's API: data set → batch with `batch_items` → study; collect, approve, reject; nothing twice.

Shapes follow docs.prolific.com (Task Builder, V4 data sets) and the models of Prolific's own command line tool, October
2026; pages follow "List submissions" there (page, page_size: 20 unless asked, ordering), November 2026. A journal on
disk records each step before and after its call: after a crash the same command asks the service what became of the
last step. A published study is never published again.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from driftline.curate.core import journal
from driftline.curate.core.atomic_io import json_value
from driftline.curate.core.errors import BadConfig, BadInput, DriftlineError, Unfinished, shortened
from driftline.curate.core.outside.documents import known_form
from driftline.curate.core.outside.http import Client, Policy, Reply, Temporary
from driftline.curate.core.outside.tables import csv_rows
from driftline.curate.retrieval.settings import Concept
from driftline.curate.validation.asking.batches import NONE, write_results

ENDPOINT, TOKEN = "https://api.prolific.com", "PROLIFIC_TOKEN"
PAGE = 100  # entries of a list in one answer
TRIES, POLLS, POLL_SECONDS, BACKOFF = 5, 600, 2.0, 1.0
SHORTEST = 100  # characters of the reason of a rejection
PADDING = (
    " This decision follows questions with known answers in the study; please write to us if you disagree with it."
)
KNOWN = known_form("Prolific's answer, or the journal of the study,", "Run the command again; nothing is paid twice.")
COLUMNS = (
    "HITId", "AssignmentId", "WorkerId", "AssignmentStatus", "WorkTimeInSeconds", "Input.batch", "Input.item",
    "Answer.labels", "Answer.sensitive",
)  # fmt: skip
STATES = {"APPROVED": "Approved", "AWAITING REVIEW": "Submitted", "REJECTED": "Rejected"}


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
        self.begun: set[str] = set()
        super().__init__(path)

    def take(self, entry: dict[str, Any]) -> None:
        """Remember that a step was begun, and its result."""
        self.begun.add(entry["step"])
        if "result" in entry:
            self.done[entry["step"]] = entry["result"]

    def begin(self, step: str) -> bool:
        """Record that a step begins; whether it was begun before."""
        before = step in self.begun
        self.add(step=step)
        return before

    def end(self, step: str, result: Any) -> Any:
        """Record the result of a step, and return it."""
        self.add(step=step, result=result)
        return result


class Service:
    """Calls to the API: token, retries of what may be repeated, errors as one sentence."""

    def __init__(self, endpoint: str = ENDPOINT) -> None:
        """Raises BadConfig without a token in the environment."""
        token = os.environ.get(TOKEN, "").strip()
        if not token or not token.isascii() or not token.isprintable():
            raise BadConfig(
                f"The variable {TOKEN} holds no token.", "Expected Prolific's API token.", f"Export {TOKEN}."
            )
        self.endpoint, self._client = endpoint.rstrip("/"), Client(secret=token, timeout=30.0)
        self._headers = {"Authorization": f"Token {token}", "Content-Type": "application/json"}

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The document of one call. GET is repeated after 5xx and lost connections, everything after 429."""

        def document(reply: Reply) -> Any:
            if reply.status >= 300:
                raise self._refused(method, path, reply.status, reply.body)
            try:
                return json_value(reply.body) if reply.body else {}
            except (ValueError, RecursionError):
                raise BadInput(f"Prolific's answer to {path} is not JSON.", "", "Try again.") from None

        data = None if body is None else json.dumps(body).encode()
        return self._asked(method, f"{self.endpoint}/api/v1{path}", path, document, data, self._headers)

    def _asked(
        self, method: str, url: str, path: str, read: Callable[[Reply], Any], body: Any, headers: Mapping[str, str]
    ) -> Any:
        try:
            return self._client.ask(method, url, read, Policy(TRIES, BACKOFF), body=body, headers=headers)
        except Temporary as failure:
            raise Unfinished(
                f"Prolific did not answer {method} {path} ({failure}).", "", "The same command continues."
            ) from None

    def _refused(self, method: str, path: str, status: int, data: bytes) -> DriftlineError:
        if status in (401, 403):
            return BadConfig(
                f"Prolific refuses the token of {TOKEN} (HTTP {status}).", "Expected one of the workspace."
            )
        text = self._client.hidden(data.decode("utf-8", "replace"))
        return DriftlineError(f"Prolific answers {method} {path} with HTTP {status}: {shortened(text)}")

    def upload(self, address: str, data: bytes, kind: str) -> None:
        """PUT to a signed address, without the token."""

        def stored(reply: Reply) -> None:
            if reply.status >= 300:
                raise Unfinished(f"The upload ended with HTTP {reply.status}.", "", "The same command continues.")

        self._asked("PUT", address, "the images", stored, data, {"Content-Type": kind})

    def all(self, path: str, paged: bool = True, **query: str) -> list[dict[str, Any]]:
        """Every entry of a list, page by page; query: filters and order. paged: whether the list's document has pages.

        Raises Unfinished for a page that is repeated or missing, and where the total changes under way.
        """
        entries, totals = dict[str, dict[str, Any]](), set()
        for number in count(1):
            page = self.call("GET", f"{path}?{urlencode({**query, 'page': number, 'page_size': PAGE})}")
            results, total = page.get("results") or [], (page.get("meta") or {}).get("count")
            fresh = {entry["id"]: entry for entry in results}
            totals.add(total)
            problems = {
                f"has another total on page {number}: {total}": len(totals) > 1,
                f"repeats entries on page {number}": len({*entries, *fresh}) < len(entries) + len(results),
                f"is empty on page {number}, after {len(entries)} of {total} entries": not results and total,
            }
            if problem := next((text for text, is_so in problems.items() if is_so), ""):
                raise Unfinished(f"Prolific's list {path} {problem}.", "", "The same command reads it again.")
            entries |= fresh
            if len(entries) >= total if total is not None else len(results) < PAGE or not paged:
                break
        return list(entries.values())


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
        journal.end("batch", {"id": created["id"], "labels": ids[0], "sensitive": ids[1]})
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
    cost = study.get("total_cost", 0) / 100
    if "published" not in done:
        if study["status"] == "UNPUBLISHED":
            if cost > max_usd:
                raise BadConfig(f"The study costs ${cost:,.2f} with fees; --max-usd is {max_usd}.", "Expected more.")
            journal.begin("published")
            service.call("POST", f"/studies/{done['study']}/transition/", {"action": "PUBLISH"})
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
    """All submissions of the study."""
    return service.all("/submissions/", study=published(journal), ordering="started_at")


@KNOWN
def status(service: Service, journal: Journal) -> dict[str, Any]:
    """State of the study, and submissions by state."""
    study = service.call("GET", f"/studies/{published(journal)}/")
    states = Counter(s["status"].lower() for s in submissions(service, journal))
    return {"study": study["id"], "state": study["status"], "places": study.get("total_available_places"), **states}


@KNOWN
def collect(service: Service, journal: Journal, batch: str, path: Path) -> int:
    """Write the answers as a results CSV for the tally stage; returns their number. The assignment is the submission.

    Answers of submissions that were returned, timed out or rejected do not count.
    """
    states = {s["id"]: s for s in submissions(service, journal)}
    ids = journal.done["batch"]
    answers: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    for record in service.all(f"/data-collection/batches/{ids['id']}/responses", paged=False):
        item = (record.get("metadata") or {}).get("item")
        if not isinstance(item, str):
            raise BadInput(f"The response {record.get('id')} names no item.", "Expected the data set's metadata.")
        answer = record["response"]
        field = {ids["labels"]: "labels", ids["sensitive"]: "sensitive"}.get(answer["instruction_id"])
        if field is not None:
            values = "|".join(str(one["value"]) for one in answer.get("answer") or [])
            answers[record["submission_id"], item] |= {field: values, "worker": record["participant_id"]}
    sizes = Counter(submission for submission, _ in answers)
    rows = []
    for (submission, item), answer in sorted(answers.items()):
        state = states.get(submission, {})
        seconds = state.get("time_taken")
        rows.append(
            (ids["id"], submission, answer["worker"], STATES.get(state.get("status", ""), "Rejected"),
             "" if seconds is None else round(seconds / sizes[submission]), batch, item, answer.get("labels", ""),
             answer.get("sensitive", ""))
        )  # fmt: skip
    write_results(path, COLUMNS, rows)
    return len(rows)


def read_rejections(path: Path) -> dict[str, str]:
    """Submission → reason, from a CSV with the columns AssignmentId and Reject."""
    rows = csv_rows(path, ["AssignmentId", "Reject"], "Expected AssignmentId and Reject.")
    return {row["AssignmentId"]: row["Reject"].strip() for _, row in rows if row["Reject"].strip()}


@KNOWN
def decide(service: Service, journal: Journal, rejected: Mapping[str, str], approve: bool) -> dict[str, int]:
    """Reject the submissions of `rejected` (submission → reason) and, with `approve`, approve all others that wait.

    Prolific ignores a decision that was made before, so that the same command can be repeated.
    """
    counts = Counter(approved=0, rejected=0)
    waiting = [s["id"] for s in submissions(service, journal) if s["status"] == "AWAITING REVIEW"]
    for id_ in waiting:
        if reason := rejected.get(id_):
            message = reason if len(reason) >= SHORTEST else f"{reason}.{PADDING}"
            body = {"action": "REJECT", "message": message, "rejection_category": "FAILED_CHECK"}
            service.call("POST", f"/submissions/{id_}/transition/", body)
            counts["rejected"] += 1
        elif approve:
            service.call("POST", f"/submissions/{id_}/transition/", {"action": "APPROVE"})
            counts["approved"] += 1
    return dict(counts)
