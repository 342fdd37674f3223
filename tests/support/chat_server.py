"""A server on loopback that speaks OpenAI's chat completions, after https://platform.openai.com/docs/api-reference/chat
(the completion object) and https://developers.openai.com/docs/guides/error-codes, read on 27 November 2026.

It answers by the class of the last example in the prompt, or badly on demand.
"""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from support.stand_ins import Answer, Query, StandIn, serve

PATH = "/v1/chat/completions"
TOKENS = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}


def error(message: str, kind: str, code: str | None) -> dict[str, Any]:
    """An error document."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


LIMITED = error("Rate limit reached for requests.", "requests", "rate_limit_exceeded")
NO_CREDIT = error("You exceeded your current quota.", "insufficient_quota", "insufficient_quota")
MOODS: dict[str, Any] = {
    "429": (429, LIMITED, {"Retry-After": "1"}),
    "429 bare": (429, LIMITED, {}),
    "429 absurd": (429, LIMITED, {"Retry-After": "9" * 400}),
    "quota": (429, NO_CREDIT, {}),
    "error in 200": error("The server had an error while processing your request.", "server_error", None),
    "slow": lambda: time.sleep(1.0),
    "cut": (200, b'{"choices"', {"Content-Length": "1000"}),
    "broken": b"<html>welcome</html>",
    "protocol": {"result": "bus"},
    "list": b"[null]",
    "stream": b"data: {}\n\n" * 200_000,
    "redirect": (307, b"", {"Location": "http://127.0.0.1:9/steal"}),
}


class Chat(StandIn):
    """key: what requests must bring, None: nothing. known: the only model, None: any. moods: what the next answers are,
    a status, a name of MOODS, or "nonsense" and "null", the contents of an answer; afterwards they are good."""

    def __init__(self, **values: Any) -> None:
        super().__init__()
        self.key: str | None = None
        self.known: str | None = None
        self.model = "small"
        self.usage: dict[str, int] | None = dict(TOKENS)
        self.finish, self.refusal = "stop", None
        self.moods: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.times: list[float] = []
        self.mood = ""
        vars(self).update(values)

    @property
    def url(self) -> str:
        """The address that a client is set to."""
        return f"{self.address}/v1"

    def seen(self, headers: Any, body: bytes) -> None:
        self.bodies.append(json.loads(body))
        self.keys.append(headers.get("Authorization"))
        self.times.append(time.monotonic())

    def fault(self, method: str, path: str) -> Any:
        self.mood = self.moods.pop(0) if self.moods else ""
        return MOODS.get(self.mood, int(self.mood) if self.mood.isdigit() else None)

    def reply(self, method: str, path: str, query: Query, headers: Any, body: bytes) -> Answer:
        if path != PATH:
            return self.refused(404, f"Unknown request URL: {method} {path}.", None)
        if self.key is not None and headers.get("Authorization") != f"Bearer {self.key}":
            words = f"Incorrect API key provided: {headers.get('Authorization')}."
            return self.refused(401, words, "invalid_api_key")
        asked = json.loads(body)
        if self.known not in (None, asked["model"]):
            return self.refused(404, f"The model '{asked['model']}' does not exist.", "model_not_found")
        if problem := self.problem(asked):
            return self.refused(400, problem, None)
        contents = {"nonsense": "I would rather not.", "null": None}
        return 200, self.completion(contents[self.mood] if self.mood in contents else self.says(asked)), {}

    def refused(self, status: int, message: str, code: str | None) -> Answer:
        """An error response."""
        return status, error(message, "invalid_request_error", code), {}

    def completion(self, content: str | None) -> dict[str, Any]:
        """The completion object."""
        message = {"role": "assistant", "content": content, "refusal": self.refusal}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.finish}
        document = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1_796_000_000, "model": self.model,
                    "choices": [choice]}  # fmt: skip
        return document | ({} if self.usage is None else {"usage": self.usage})

    def problem(self, body: dict[str, Any]) -> str:
        """What a strict server refuses in a request; "" for a good one."""
        fields = [set(message) >= {"role", "content"} for message in body["messages"]]
        return "" if fields and all(fields) else "Missing required parameter: 'messages[0].content'."

    def says(self, body: dict[str, Any]) -> str:
        """The content of a good answer."""
        named = re.findall(r"^Class: (.+)$", body["messages"][1]["content"], re.M)
        return f' "{named[-1].upper()}". ' if named else "Hi."


@contextmanager
def chat_server(**values: Any) -> Iterator[Chat]:
    """Serves until the block ends."""
    with serve(Chat(**values)) as chat:
        yield chat
