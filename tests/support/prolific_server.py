"""A loopback server that enforces Prolific's documented API: states, V4 data sets, layouts, rate limits, what pays
twice.

Lists follow docs.prolific.com/api-reference/submissions/get-submissions ("Paginate by page_size and page (Default
page_size is 20)", "Order by start time, …"); the answer of batches/{id}/responses has `results` and `meta` (or null),
and no pages. Parameters that the document does not name are ignored."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from support.serving import serving

Answer = tuple[int, Any]
FIELDS = {"name", "description", "reward", "estimated_completion_time", "data_collection_method", "data_collection_id"}


@dataclass
class Prolific:
    """What the service holds. after: called after each call was carried out; may raise to cut the connection."""

    url: str = ""
    token: str = "secret-token"
    datasets: dict[str, dict[str, Any]] = field(default_factory=dict)
    batches: dict[str, dict[str, Any]] = field(default_factory=dict)
    studies: dict[str, dict[str, Any]] = field(default_factory=dict)
    submissions: dict[str, dict[str, Any]] = field(default_factory=dict)
    responses: list[dict[str, Any]] = field(default_factory=list)
    bonuses: dict[str, str] = field(default_factory=dict)
    paid: list[str] = field(default_factory=list)
    published: int = 0
    limited: int = 0
    """how many of the next calls get 429"""
    counted: bool = True
    """whether lists have meta.count"""
    after: Callable[[str], None] = lambda call: None

    def work(self, participant: str, items: list[str], labels: Callable[[str], list[str]], seconds: int = 60) -> str:
        """A participant hands in one submission, to the last study."""
        study = list(self.studies.values())[-1]
        assert study["status"] == "ACTIVE"
        batch = self.batches[study["data_collection_id"]]
        question, sensitive = (i["id"] for i in batch["batch_items"][0]["rows"][0]["columns"][1]["items"])
        id_ = f"sub{len(self.submissions)}"
        self.submissions[id_] = {
            "id": id_, "participant_id": participant, "status": "AWAITING REVIEW", "time_taken": seconds,
            "study": study["id"], "started_at": f"2026-11-26T10:00:00.{len(self.submissions):06d}Z",
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

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> Answer:
        """Status and document of one call."""
        parts = path.removeprefix("/api/v1/").strip("/").split("/")
        if parts[0] == "data-collection":
            return self._data(method, parts[1:], body)
        if parts[0] == "studies":
            return self._studies(method, parts[1:], body, query)
        if parts[:2] == ["submissions", "bonus-payments"]:
            unknown = [r for r in body["csv_bonuses"].splitlines() if r.split(",")[0] not in self.submissions]
            if unknown:
                return 400, {"error": {"detail": f"incorrect ids: {unknown}"}}
            amount = sum(float(r.split(",")[1]) for r in body["csv_bonuses"].splitlines())
            id_ = f"bonus{len(self.bonuses)}"
            self.bonuses[id_] = body["csv_bonuses"]
            return 201, {"id": id_, "total_amount": amount * 100 * 1.25}
        if parts[0] == "bulk-bonus-payments":
            self.paid.append(parts[1])
            return 202, {}
        if parts == ["submissions"]:
            rows = [s for s in self.submissions.values() if s["study"] == query["study"][0]]
            if query.get("ordering") != ["started_at"]:  # in no order: another one on each page
                rows = rows[int(query.get("page", ["1"])[0]) :] + rows[: int(query.get("page", ["1"])[0])]
            return self.page(rows, query)
        if method == "GET" and parts[0] == "submissions" and len(parts) == 2:
            return (200, self.submissions[parts[1]]) if parts[1] in self.submissions else (404, {"error": "none"})
        if parts[0] == "submissions" and parts[2] == "transition":
            return self._decide(self.submissions[parts[1]], body)
        return 404, {"error": "no such path"}

    def _decide(self, submission: dict[str, Any], body: Any) -> Answer:
        if body["action"] == "REJECT" and (len(body.get("message", "")) < 100 or "rejection_category" not in body):
            return 400, {"error": "a rejection needs a category and a message of at least 100 characters"}
        if submission["status"] == "AWAITING REVIEW":
            submission |= {"status": {"APPROVE": "APPROVED", "REJECT": "REJECTED"}[body["action"]], **body}
        return 200, submission

    def _data(self, method: str, parts: list[str], body: Any) -> Answer:
        if parts == ["datasets"]:
            id_ = f"data{len(self.datasets)}"
            self.datasets[id_] = body | {"id": id_, "rows": [], "import": "uninitialised"}
            return 201, {"id": id_}
        if parts[0] == "datasets" and parts[2] == "upload-url":
            address = self.url + f"/s3/{parts[1]}?signature=1"
            return 200, {"upload_url": address, "http_method": "PUT", "import_id": "imp1"}
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
                            return 422, {"error": "metadata cannot be shown"}
                        item["id"] = f"i{id(item)}"
            id_ = f"batch{len(self.batches)}"
            self.batches[id_] = body | {"id": id_, "status": "UNINITIALISED"}
            return 201, self.batches[id_]
        batch = self.batches[parts[1]]
        if parts[2] == "setup":
            if self.datasets[batch["dataset_id"]]["import"] != "complete" or batch["status"] != "UNINITIALISED":
                return 400, {"error": "the data set is not complete, or the batch was set up before"}
            batch |= {"status": "PROCESSING", **body}
            return 202, {}
        if parts[2] == "status":
            state = batch["status"]
            batch["status"] = "READY" if state == "PROCESSING" else state
            return 200, {"status": state}
        return 200, {"results": self.responses, "meta": self._meta(self.responses)}

    def _studies(self, method: str, parts: list[str], body: Any, query: dict[str, list[str]]) -> Answer:
        if not parts and method == "GET":
            return self.page(list(self.studies.values())[::-1], query)
        if not parts:
            batch = self.batches.get(body.get("data_collection_id"), {})
            if FIELDS - set(body) or batch.get("status") != "READY":
                return 400, {"error": "fields are missing, or the batch is not READY"}
            id_ = f"study{len(self.studies)}"
            rows = len(self.datasets[batch["dataset_id"]]["rows"])
            groups = -(-rows // batch["tasks_per_group"]) * body["data_collection_metadata"]["annotators_per_task"]
            cost = groups * body["reward"] * 4 // 3
            self.studies[id_] = body | {"id": id_, "status": "UNPUBLISHED", "total_cost": cost,
                                        "total_available_places": groups}  # fmt: skip
            return 201, self.studies[id_]
        if (study := self.studies.get(parts[0])) is None:
            return 404, {"error": {"title": "Not found", "detail": "No Study matches the given query."}}
        if parts[1:] == ["transition"]:
            if study["status"] != "UNPUBLISHED":
                return 400, {"error": "the study was published before"}
            study["status"] = "ACTIVE"
            self.published += 1
        return 200, study

    def page(self, rows: list[Any], query: dict[str, list[str]]) -> Answer:
        """A page of a list: `page` counts from 1, `page_size` is 20 unless asked."""
        size, number = int(query.get("page_size", ["20"])[0]), int(query.get("page", ["1"])[0])
        return 200, {"results": rows[(number - 1) * size : number * size], "meta": self._meta(rows)}

    def _meta(self, rows: list[Any]) -> dict[str, int] | None:
        return {"count": len(rows)} if self.counted else None


@contextmanager
def prolific_server() -> Iterator[Prolific]:
    """Serves until the block ends."""
    service = Prolific()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            split = urlsplit(self.path)
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with lock:
                if split.path.startswith("/s3/"):
                    assert "Authorization" not in self.headers, "the token must not leave the API"
                    rows = service.datasets[split.path.split("/")[2]]
                    rows["rows"] = [json.loads(line) for line in data.splitlines()]
                    rows["import"] = "processing"
                    status, document = 200, {}
                elif self.headers.get("Authorization") != f"Token {service.token}":
                    status, document = 401, {"error": "bad token"}
                elif service.limited:
                    service.limited -= 1
                    status, document = 429, {"error": "too many requests"}
                else:
                    body = json.loads(data) if data else None
                    status, document = service.answer(self.command, split.path, parse_qs(split.query), body)
                try:
                    service.after(f"{self.command} {split.path}")
                except ConnectionAbortedError:
                    self.close_connection = True
                    return
            text = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = reply

        def log_message(self, *args: object) -> None:
            """Quiet."""

    with serving(Handler) as address:
        service.url = address
        yield service
