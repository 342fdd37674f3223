"""A loopback server that speaks OpenAI's chat protocol with images and JSON schemas, well or badly on demand."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from threading import Lock
from typing import Any

from support.serving import serving

TOKENS = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}


@dataclass
class Vision:
    """sees: image bytes → what is said about it, a dictionary (JSON by the schema) or text as it is."""

    url: str = ""
    sees: Callable[[bytes], Any] = lambda image: {"labels": ["bus"], "sensitive": False, "confidence": 0.9}
    key: str | None = None
    """the key that requests must bring"""
    model: str = "vision-1"
    """the model that answers report"""
    usage: dict[str, int] | None = field(default_factory=lambda: dict(TOKENS))
    moods: list[str] = field(default_factory=list)
    """what the next answers are; afterwards they are good"""
    finish: str = "stop"
    refusal: str | None = None
    bodies: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    lock: Any = field(default_factory=Lock)

    def problem(self, body: dict[str, Any]) -> str:
        """What a strict server refuses in a request; "" for a good one."""
        content = body["messages"][0]["content"]
        images = [part["image_url"]["url"] for part in content if part["type"] == "image_url"]
        schema = body["response_format"]["json_schema"]
        if body["model"] != "vision-1":
            return f"model {body['model']!r} not found"
        if len(images) != 1 or not images[0].startswith("data:image/"):
            return "expected one image as a data URL"
        inner = schema["schema"]
        if not (schema["strict"] and schema["name"] and set(inner["required"]) == set(inner["properties"])):
            return "strict schemas require every property"
        return "" if inner["additionalProperties"] is False else "strict schemas forbid other properties"


@contextmanager
def vision_server(**values: Any) -> Iterator[Vision]:
    """Serves until the block ends."""
    vision = Vision(**values)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def reply(self, status: int, data: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(data)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with vision.lock:
                vision.bodies.append(body)
                vision.times.append(time.monotonic())
                mood = vision.moods.pop(0) if vision.moods else ""
            self.answer(body, mood)

        def answer(self, body: dict[str, Any], mood: str) -> None:
            if self.path != "/v1/chat/completions":
                self.reply(404, b"no such path")
            elif vision.key is not None and self.headers.get("Authorization") != f"Bearer {vision.key}":
                self.reply(401, f"Incorrect API key provided: {self.headers.get('Authorization')}".encode())
            elif mood.isdigit():
                self.reply(int(mood), b"try later", **({"Retry_After": "1"} if mood == "429" else {}))
            elif mood == "slow":
                time.sleep(0.6)
                self.reply(200, b"{}")
            elif mood == "cut":
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(b'{"choices"')
                self.close_connection = True
            elif mood == "html":
                self.reply(200, b"<html>welcome</html>")
            elif mood == "protocol":
                self.reply(200, b'{"result": "bus"}')
            elif mood == "stream":
                self.reply(200, b"data: {}\n\n" * 200_000)
            elif mood == "redirect":
                self.reply(307, b"", Location="http://127.0.0.1:9/steal")
            elif problem := vision.problem(body):
                self.reply(400, json.dumps({"error": {"message": problem}}).encode())
            else:
                address = next(
                    p["image_url"]["url"] for p in body["messages"][0]["content"] if p["type"] == "image_url"
                )
                said = vision.sees(base64.b64decode(address.partition(",")[2]))
                content = said if isinstance(said, str) else json.dumps(said)
                message = {"role": "assistant", "content": content, "refusal": vision.refusal}
                document = {"model": vision.model, "choices": [{"message": message, "finish_reason": vision.finish}]}
                usage = {} if vision.usage is None else {"usage": vision.usage}
                self.reply(200, json.dumps(document | usage).encode())

        def log_message(self, *args: object) -> None:
            """Quiet."""

    with serving(Handler) as address:
        vision.url = f"{address}/v1"
        yield vision
