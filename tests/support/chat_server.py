"""A loopback server that speaks OpenAI's chat protocol: answers by the last example's class, or badly on demand."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from support.serving import serving


@dataclass
class Chat:
    """moods: what the next answers are: "nonsense", "broken", "slow", "503", "401"; afterwards they are good."""

    url: str
    moods: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)


@contextmanager
def chat_server() -> Iterator[Chat]:
    """Serves until the block ends."""
    chat = Chat("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            chat.bodies.append(body)
            chat.keys.append(self.headers.get("Authorization"))
            mood = chat.moods.pop(0) if chat.moods else ""
            if mood.isdigit():
                self.send_error(int(mood))
                return
            if mood == "slow":
                time.sleep(1.0)
            named = re.findall(r"^Class: (.+)$", body["messages"][1]["content"], re.M)
            said = "I would rather not." if mood == "nonsense" else f' "{named[-1].upper()}". '
            answer = (
                b"<html>" if mood == "broken" else json.dumps({"choices": [{"message": {"content": said}}]}).encode()
            )
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: object) -> None:
            """Quiet."""

    with serving(Handler) as address:
        chat.url = f"{address}/v1"
        yield chat
