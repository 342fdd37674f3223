"""A server on loopback that speaks MTurk's JSON protocol: HIT types, HITs with tokens, assignments, approvals."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from support.serving import serving

NAMESPACE = "http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/2005-10-01/QuestionFormAnswers.xsd"


@dataclass
class Turk:
    """What the service holds. before, after: called around each operation; may raise to cut the connection."""

    hits: dict[str, dict[str, Any]] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    assignments: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    feedback: dict[str, str] = field(default_factory=dict)
    after: Callable[[str], None] = lambda operation: None
    forgets_tokens: bool = False
    endpoint: str = ""

    def work(self, hit: str, worker: str, labels: str, sensitive: str = "no") -> str:
        """A worker submits an answer."""
        id_ = f"A{hit}{worker}"
        answer = "".join(
            f"<Answer><QuestionIdentifier>{n}</QuestionIdentifier><FreeText>{v}</FreeText></Answer>"
            for n, v in (("labels", labels), ("sensitive", sensitive))
        )
        self.assignments.setdefault(hit, []).append(
            {
                "AssignmentId": id_,
                "WorkerId": worker,
                "HITId": hit,
                "AssignmentStatus": "Submitted",
                "AcceptTime": 1_700_000_000,
                "SubmitTime": 1_700_000_012,
                "Answer": f'<QuestionFormAnswers xmlns="{NAMESPACE}">{answer}</QuestionFormAnswers>',
            }
        )
        return id_

    def answer(self, operation: str, asked: dict[str, Any]) -> dict[str, Any]:
        """The operation's document; KeyError for one that is not spoken here."""
        if operation == "CreateHITType":
            return {"HITTypeId": f"TYPE{asked['Reward']}"}
        if operation == "CreateHITWithHITType":
            token = asked["UniqueRequestToken"]
            if token in self.tokens and not self.forgets_tokens:
                raise ValueError(f"HitAlreadyExists: the HIT with ID {self.tokens[token]} already exists")
            hit = f"HIT{len(self.hits):020d}"
            self.hits[hit] = asked | {"HITId": hit}
            self.tokens[token] = hit
            return {"HIT": {"HITId": hit}}
        if operation == "ListHITs":
            return self._page(list(self.hits.values()), asked, "HITs")
        if operation == "ListAssignmentsForHIT":
            return self._page(self.assignments.get(asked["HITId"], []), asked, "Assignments")
        for state, name in (("Approved", "ApproveAssignment"), ("Rejected", "RejectAssignment")):
            if operation == name:
                one = next(
                    a for some in self.assignments.values() for a in some if a["AssignmentId"] == asked["AssignmentId"]
                )
                one["AssignmentStatus"] = state
                self.feedback[one["AssignmentId"]] = asked.get("RequesterFeedback", "")
                return {}
        raise KeyError(operation)

    @staticmethod
    def _page(some: list[dict[str, Any]], asked: dict[str, Any], name: str) -> dict[str, Any]:
        start, size = int(asked.get("NextToken", 0)), min(2, asked.get("MaxResults", 2))  # small pages: paging is used
        found: dict[str, Any] = {name: some[start : start + size], "NumResults": len(some[start : start + size])}
        return found | ({"NextToken": str(start + size)} if start + size < len(some) else {})


@contextmanager
def serve(turk: Turk) -> Iterator[Turk]:
    """Serve on a free port while the context lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            operation = self.headers["X-Amz-Target"].partition(".")[2]
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                status, body = 200, turk.answer(operation, asked)
            except ValueError as error:
                status, body = (
                    400,
                    {"__type": "RequestError", "Message": str(error), "TurkErrorCode": "AWS.HitAlreadyExists"},
                )
            try:
                turk.after(operation)
            except ConnectionError:
                self.close_connection = True
                return  # the work was done, and nobody hears of it
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            return

    with serving(Handler) as address:
        turk.endpoint = address
        yield turk
