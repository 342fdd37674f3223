"""A loopback server after "Prolific API for Data Collectors" 1.0.0, https://docs.prolific.com/openapi.json, and the
pages of docs.prolific.com/api-reference: copies of July to October 2026, read on 27 November 2026. What they say of
each call is in `fixtures/services/prolific.json`, by which the server is checked.

Each method names the page that it follows. Parameters that the page does not name are ignored, fields that it does not
name are not given. What the document leaves open is a setting: what comes after the last page, a largest page, whether
answers have what Prolific's own command line tool reads besides (`extras`). `words` and `numbers` are the documented
names and sizes; a test changes one to see that it matters.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from support.serving import serving

Answer = tuple[int, Any]
Raw = tuple[int, bytes, Mapping[str, str]]  # an answer byte by byte: status, body, headers
FIELDS = {"name", "description", "reward", "estimated_completion_time", "data_collection_method", "data_collection_id"}
SHORT = (
    "id",
    "participant_id",
    "status",
    "started_at",
    "completed_at",
    "has_siblings",
    "study_code",
    "return_requested",
)
DETAIL = ("id", "started_at", "status", "study_id", "completed_at", "entered_code", "participant")
STATES = ("ACTIVE", "APPROVED", "AWAITING REVIEW", "REJECTED", "RESERVED", "RETURNED", "TIMED-OUT",
          "PARTIALLY APPROVED", "SCREENED OUT")  # fmt: skip
YES, NO = {"1", "true", "yes", "t"}, {"0", "false", "no", "f"}
ORDERS = ("started_at", "submission_reward", "study_name")
# default size and first number of a page; most ids of a request; how often an order is paid that is sent twice
NUMBERS = {"page_size": 20, "page": 1, "approve": 1000, "bonus": 200, "pay": 2}
BEGIN = datetime(2026, 11, 26, 10, tzinfo=UTC)


def text_of(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def error(status: int, detail: Any) -> Answer:
    """The schema Error."""
    return status, {"error": {"status": status, "error_code": 140_000 + status, "title": "Error", "detail": detail}}


@dataclass
class Prolific:
    """What the service holds, and how it misbehaves."""

    url: str = ""
    token: str = "secret-token"
    datasets: dict[str, dict[str, Any]] = field(default_factory=dict)
    batches: dict[str, dict[str, Any]] = field(default_factory=dict)
    studies: dict[str, dict[str, Any]] = field(default_factory=dict)
    submissions: dict[str, dict[str, Any]] = field(default_factory=dict)
    responses: list[dict[str, Any]] = field(default_factory=list)
    bonuses: dict[str, str] = field(default_factory=dict)
    """order → its lines"""
    paid: list[str] = field(default_factory=list)
    """orders that were paid, each time"""
    rewards: Counter[str] = field(default_factory=Counter)
    """submission → how often its reward was paid"""
    published: int = 0
    calls: list[str] = field(default_factory=list)
    later: list[Callable[[], None]] = field(default_factory=list)
    """payments that were accepted and not made yet: "in the following minutes" """
    slow: bool = False
    """whether they wait for `minutes`; else they are made before the next call"""
    limited: int = 0
    """how many of the next calls get 429"""
    retry_after: str | None = None
    """header of these answers; none is documented"""
    expires: int | None = None
    """calls until the token is deleted"""
    extras: bool = False
    """whether answers have meta.count, time_taken and total_cost, which the tool of Prolific reads"""
    past_end: int = 200
    """status of a page after the last: not documented"""
    cap: int | None = None
    """entries of a page at most: not documented"""
    before: Callable[[str], Raw | None] = lambda call: None
    """an answer in place of a call, which is not carried out"""
    after: Callable[[str], Raw | None] = lambda call: None
    """called after each call was carried out: another answer; may raise to cut the connection"""
    edit: Callable[[str, Any], Any] = lambda call, document: document
    """another document for a call"""
    words: dict[str, str] = field(default_factory=dict)
    """documented name → another one"""
    numbers: dict[str, int] = field(default_factory=lambda: dict(NUMBERS))

    def word(self, documented: str) -> str:
        """A documented name, unless a test changed it."""
        return self.words.get(documented, documented)

    def work(
        self, participant: str, items: list[str], labels: Callable[[str], list[str]], seconds: int = 60,
        status: str = "AWAITING REVIEW",
    ) -> str:  # fmt: skip
        """A participant works on one submission of the last study."""
        study = list(self.studies.values())[-1]
        assert study["status"] == "ACTIVE"
        batch = self.batches[study["data_collection_id"]]
        question, sensitive = (i["id"] for i in batch["batch_items"][0]["rows"][0]["columns"][1]["items"])
        id_, began = f"sub{len(self.submissions)}", BEGIN + timedelta(seconds=len(self.submissions))
        is_open = status in ("ACTIVE", "RESERVED")
        self.submissions[id_] = {
            "id": id_, "participant_id": participant, "status": status, "started_at": text_of(began),
            "completed_at": None if is_open else text_of(began + timedelta(seconds=seconds)), "bonus_payments": [],
            "study_id": study["id"], "study_code": None if is_open else "C1", "return_requested": None,
            "seconds": None if is_open else seconds,
        }  # fmt: skip
        for n, item in enumerate(items):
            for instruction, values in ((question, labels(item)), (sensitive, ["no"])):
                self.responses.append(
                    {"id": f"r{len(self.responses)}", "batch_id": batch["id"], "participant_id": participant,
                     "task_id": f"t{n}", "submission_id": id_, "metadata": {"item": item},
                     "response": {"instruction_id": instruction, "type": "multiple_choice",
                                  "answer": [{"value": v} for v in values]}}
                )  # fmt: skip
        return id_

    def minutes(self) -> None:
        """Some minutes pass."""
        later, self.later = self.later, []
        for payment in later:
            payment()

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        """Status and document of one call."""
        if not self.slow:
            self.minutes()
        parts = path.removeprefix("/api/v1/").strip("/").split("/")
        if parts[0] == "data-collection":
            return self._data(method, parts[1:], body)
        if parts[0] == "studies":
            return self._studies(method, parts[1:], body)
        if parts == ["study-cost-calculator"]:  # "Calculate the study cost"
            return 200, {"total_cost": body["reward"] * body["total_available_places"] * 4 // 3}
        if parts == ["submissions", "bonus-payments"]:
            return self._set_up_bonuses(body)
        if parts == ["submissions", "bulk-approve"]:
            return self._bulk_approve(body)
        if parts[0] == "bulk-bonus-payments" and parts[2:] == ["pay"]:
            return self._pay_bonuses(parts[1])
        if parts == ["submissions"]:
            return self._list_submissions(query)
        if parts[0] == "submissions" and (submission := self.submissions.get(parts[1])):
            if parts[2:] == ["transition"]:
                return self._decide(submission, body)
            if not parts[2:]:
                return 200, self._detail(submission) | {self.word("bonus_payments"): submission["bonus_payments"]}
        return error(404, "Not found.")

    def _list_submissions(self, query: Mapping[str, str]) -> Answer:
        """ "List submissions"."""
        if (study := query.get(self.word("study"))) is None:
            return error(400, "study is required")
        rows = [one for one in self.submissions.values() if one["study_id"] == study]
        people = Counter(one["participant_id"] for one in rows)
        if wanted := query.get("status"):
            rows = [one for one in rows if one["status"] == wanted.upper().replace("_", " ")]
        kinds = {"returned": ("RETURNED",), "awaiting_review": ("AWAITING REVIEW",), "approved": ("APPROVED",),
                 "active": ("ACTIVE",), "timeout": ("TIMED-OUT",), "rejected": ("REJECTED",),
                 "screened_out": ("SCREENED OUT",), "completed": set(STATES) - {"ACTIVE", "RESERVED"},
                 "completeoractive": set(STATES) - {"RESERVED"}}  # fmt: skip
        for name in kinds.keys() & query.keys():
            if (value := query[name].lower()) not in YES | NO:
                return error(400, f"{name} is no boolean")
            rows = [one for one in rows if (one["status"] in kinds[name]) == (value in YES)]
        for name, is_in in (("submitted_from", lambda a, b: a >= b), ("submitted_before", lambda a, b: a < b)):
            if name in query:
                day = datetime.strptime(query[name], "%d/%m/%Y").replace(tzinfo=UTC)
                rows = [o for o in rows if o["completed_at"] and is_in(datetime.fromisoformat(o["completed_at"]), day)]
        size = int(query.get(self.word("page_size"), self.numbers["page_size"]))
        size = min(size, self.cap or size)
        number = int(query.get(self.word("page"), "1")) - self.numbers["page"]
        order = query.get(self.word("ordering"), "")
        if order.removeprefix("-") == "started_at":
            rows.sort(key=lambda one: one["started_at"], reverse=order.startswith("-"))
        elif order.removeprefix("-") not in ORDERS:  # in no order: another one on each page
            rows = rows[number:] + rows[:number]
        if number * size >= max(1, len(rows)) and self.past_end != 200:
            return error(self.past_end, "Invalid page.")
        results = [self._short(one, people[one["participant_id"]] > 1) for one in rows[number * size :][:size]]
        return 200, {"results": results} | ({"meta": {"count": len(rows)}} if self.extras else {})

    def _short(self, one: Mapping[str, Any], siblings: bool) -> dict[str, Any]:
        """The schema SubmissionShort."""
        shown = {**one, "status": self.word(one["status"]), "has_siblings": siblings}
        return {name: shown[name] for name in SHORT} | ({"time_taken": one["seconds"]} if self.extras else {})

    def _detail(self, one: Mapping[str, Any]) -> dict[str, Any]:
        """The schema Submission."""
        shown = {**one, "participant": one["participant_id"], "entered_code": one["study_code"]}
        return {name: shown[name] for name in DETAIL}

    def _decide(self, submission: dict[str, Any], body: Any) -> Answer:
        """ "Approve or reject a submission": idempotent."""
        action = body.get(self.word("action"))
        if action == "REJECT" and (len(body.get("message", "")) < 100 or "rejection_category" not in body):
            return error(400, "a rejection needs a category and a message of at least 100 characters")
        if action not in ("APPROVE", "REJECT"):
            return error(400, "action is not one of APPROVE, REJECT, …")
        if submission["status"] == "AWAITING REVIEW":
            submission["status"] = {"APPROVE": "APPROVED", "REJECT": "REJECTED"}[action]
            self.rewards.update([submission["id"]] if action == "APPROVE" else [])
        return 200, self._detail(submission)

    def _bulk_approve(self, body: Any) -> Answer:
        """ "Bulk approve submissions": asynchronous; what is approved is skipped."""
        ids = body.get(self.word("submission_ids"))
        if not ids or len(ids) > self.numbers["approve"] or any(id_ not in self.submissions for id_ in ids):
            return error(400, "submission_ids: missing, too many, or of no study")

        def approve() -> None:
            for one in (self.submissions[id_] for id_ in ids):
                if one["status"] == "AWAITING REVIEW":
                    one["status"] = "APPROVED"
                    self.rewards[one["id"]] += 1

        self.later.append(approve)
        return 200, "The request to bulk approve has been made successfully."

    def _set_up_bonuses(self, body: Any) -> Answer:
        """ "Set up bonuses": nothing is paid; submissions must be of the study."""
        rows = [row.split(",") for row in body.get(self.word("csv_bonuses"), "").splitlines()]
        study = body.get(self.word("study_id"))
        wrong = [row[0] for row in rows if self.submissions.get(row[0], {}).get("study_id") != study]
        if not rows or wrong or len(rows) > self.numbers["bonus"]:
            return error(400, {"csv_bonuses": [f"incorrect ids: {wrong}, or too many"]})
        amount, id_ = sum(round(float(row[1]) * 100) for row in rows), f"bonus{len(self.bonuses)}"
        self.bonuses[id_] = body[self.word("csv_bonuses")]
        fees = amount * 0.25  # accounts differ
        return 201, {"id": id_, "study": study, "amount": amount, "fees": fees, "vat": 0, "total_amount": amount + fees}

    def _pay_bonuses(self, id_: str) -> Answer:
        """ "Pay bonuses": asynchronous, and not idempotent."""
        if id_ not in self.bonuses:
            return error(404, "Not found.")
        self.paid.append(id_)

        def pay() -> None:
            if self.paid.count(id_) > self.numbers["pay"]:
                return
            for row in self.bonuses[id_].splitlines():
                submission, amount = row.split(",")
                self.submissions[submission]["bonus_payments"].append(round(float(amount) * 100))

        self.later.append(pay)
        return 202, f"Bulk bonus payment with ID {id_} is being processed asynchronously."

    def _data(self, method: str, parts: list[str], body: Any) -> Answer:
        """AI Task Builder: V4 data sets, `batch_items`, "Setup a Batch", "Get Batch Responses" (no pages)."""
        if parts == ["datasets"]:
            id_ = f"data{len(self.datasets)}"
            self.datasets[id_] = body | {"id": id_, "rows": [], "import": "uninitialised"}
            return 201, {"id": id_}
        if parts[0] == "datasets" and parts[2] == "upload-url":
            address = self.url + f"/s3/{parts[1]}?signature=1"
            return 201, {"upload_url": address, "http_method": "PUT", "import_id": "imp1"}
        if parts[0] == "datasets":
            data = self.datasets[parts[1]]
            state, data["import"] = data["import"], "complete" if data["rows"] else "uninitialised"
            return 200, {"status": state}
        if parts == ["batches"]:
            fields = self.datasets[body["dataset_id"]]["schema"]["fields"]
            for page in body["batch_items"]:
                for column in (c for row in page["rows"] for c in row["columns"]):
                    for item in column["items"]:
                        if item["type"] == "dataset_field" and fields[item["field"]]["type"] == "metadata":
                            return error(422, "metadata cannot be shown")
                        item["id"] = f"i{id(item)}"
            id_ = f"batch{len(self.batches)}"
            self.batches[id_] = body | {"id": id_, "status": "UNINITIALISED"}
            return 201, self.batches[id_]
        batch = self.batches[parts[1]]
        if parts[2] == "setup":
            if self.datasets[batch["dataset_id"]]["import"] != "complete" or batch["status"] != "UNINITIALISED":
                return error(400, "the data set is not complete, or the batch was set up before")
            batch |= {"status": "PROCESSING", **body}
            return 202, {}
        if parts[2] == "status":
            state = batch["status"]
            batch["status"] = "READY" if state == "PROCESSING" else state
            return 200, {"status": self.word(state)}
        own = [one for one in self.responses if one["batch_id"] == parts[1]]
        return 200, {"results": own or None, "meta": {"count": len(own)} if self.extras else None}

    def _studies(self, method: str, parts: list[str], body: Any) -> Answer:
        """ "List all studies" (no pages), "Create a draft study", "Transition a study's status", counts."""
        if not parts and method == "GET":
            return 200, {"results": list(self.studies.values())[::-1]}
        if not parts:
            batch = self.batches.get(body.get("data_collection_id"), {})
            if FIELDS - set(body) or batch.get("status") != "READY":
                return error(400, "fields are missing, or the batch is not READY")
            id_ = f"study{len(self.studies)}"
            rows = len(self.datasets[batch["dataset_id"]]["rows"])
            groups = -(-rows // batch["tasks_per_group"]) * body["data_collection_metadata"]["annotators_per_task"]
            self.studies[id_] = body | {"id": id_, "status": "UNPUBLISHED", "total_available_places": groups}
            if self.extras:
                self.studies[id_]["total_cost"] = groups * body["reward"] * 4 // 3
            return 201, self.studies[id_]
        if (study := self.studies.get(parts[0])) is None:
            return error(404, "No Study matches the given query.")
        if parts[1:] == ["submissions", "counts"]:
            counts = Counter(one["status"] for one in self.submissions.values() if one["study_id"] == parts[0])
            return 200, {**{s: counts[s] for s in STATES}, self.word("TOTAL"): counts.total()}
        if parts[1:] == ["transition"]:
            if study["status"] != "UNPUBLISHED" or body.get("action") != self.word("PUBLISH"):
                return error(400, "the study was published before, or the action is none")
            study["status"] = "ACTIVE"
            self.published += 1
        return 200, study | {"status": self.word(study["status"])}

    def serve(self, method: str, path: str, headers: Mapping[str, str], data: bytes) -> Raw:
        """The answer to one request; ConnectionAbortedError: none."""
        split, call = urlsplit(path), f"{method} {path}"
        self.calls.append(call)
        if (raw := self.before(call)) is not None:
            return raw
        more = {}
        if split.path.startswith("/s3/"):
            assert "Authorization" not in headers, "the token must not leave the API"
            rows = self.datasets[split.path.split("/")[2]]
            rows["rows"] = [json.loads(line) for line in data.splitlines()]
            rows["import"] = "processing"
            status, document = 200, {}
        elif headers.get("Authorization") != f"{self.word('Token')} {self.token}" or self.expires == 0:
            status, document = error(401, "Invalid token.")
        elif self.limited:
            self.limited -= 1
            status, document = error(429, "Too many requests.")
            more = {} if self.retry_after is None else {"Retry-After": self.retry_after}
        else:
            self.expires = None if self.expires is None else self.expires - 1
            query = {name: values[0] for name, values in parse_qs(split.query).items()}
            status, document = self.answer(method, split.path, query, json.loads(data) if data else None)
        return self.after(call) or (status, json.dumps(self.edit(call, document)).encode(), more)


@contextmanager
def prolific_server() -> Iterator[Prolific]:
    """Serves until the block ends."""
    service = Prolific()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                with lock:
                    status, text, more = service.serve(self.command, self.path, self.headers, data)
            except ConnectionAbortedError:
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in {**more, "Content-Length": str(len(text))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = reply

        def log_message(self, *args: object) -> None:
            """Quiet."""

    with serving(Handler) as address:
        service.url = address
        yield service
