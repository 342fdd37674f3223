"""The chat completions of `chat_server` with images and JSON schemas, after
https://developers.openai.com/docs/guides/structured-outputs and …/guides/images-vision, read on 27 November 2026."""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from support.chat_server import Chat
from support.stand_ins import serve


def images_of(body: dict[str, Any]) -> list[str]:
    """The addresses of the images in a request."""
    return [part["image_url"]["url"] for part in body["messages"][0]["content"] if part["type"] == "image_url"]


class Vision(Chat):
    """sees: image bytes → what is said about it, a dictionary (JSON by the schema) or text as it is."""

    def __init__(self, **values: Any) -> None:
        self.sees: Callable[[bytes], Any] = lambda image: {"labels": ["bus"], "sensitive": False}
        super().__init__(**{"known": "vision-1", "model": "vision-1"} | values)

    def problem(self, body: dict[str, Any]) -> str:
        images, schema = images_of(body), body["response_format"]["json_schema"]
        if len(images) != 1 or not images[0].startswith("data:image/"):
            return "Invalid image URL: expected one image as a data URL."
        inner = schema["schema"]
        strict = schema["strict"] and schema["name"] and inner["additionalProperties"] is False
        whole = strict and set(inner["required"]) == set(inner["properties"])
        return "" if whole else "Invalid schema for response_format: 'required' is required to name every property."

    def says(self, body: dict[str, Any]) -> str:
        concepts = self.sees(base64.b64decode(images_of(body)[0].partition(",")[2]))
        return concepts if isinstance(concepts, str) else json.dumps(concepts)


@contextmanager
def vision_server(**values: Any) -> Iterator[Vision]:
    """Serves until the block ends."""
    with serve(Vision(**values)) as vision:
        yield vision
