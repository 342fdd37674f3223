"""The question for a vision-language model: messages, JSON schema of the answer, and reading the answer."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from driftline.curate.core.atomic_io import fingerprint, json_value
from driftline.curate.retrieval.settings import Concept
from driftline.curate.validation.asking.batches import NONE

MIME = {"jpg": "image/jpeg", "jpeg": "image/jpeg", "png": "image/png", "gif": "image/gif", "webp": "image/webp"}


@dataclass(frozen=True)
class Question:
    """One question about an image. Equal questions have equal fingerprints, whatever image they ask about."""

    text: str
    """instructions and options"""
    labels: tuple[str, ...]
    """what may be answered: the concepts, and "none" """

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the answer, in the strict subset that OpenAI-compatible servers accept."""
        return {
            "type": "object",
            "properties": {
                "labels": {"type": "array", "items": {"type": "string", "enum": list(self.labels)}},
                "sensitive": {"type": "boolean"},
                "confidence": {"type": "number"},
            },
            "required": ["labels", "sensitive", "confidence"],
            "additionalProperties": False,
        }

    @property
    def fingerprint(self) -> str:
        """Hash of the text and the schema."""
        return fingerprint([self.text, self.schema])

    def body(self, model: str, image: bytes, extension: str) -> dict[str, Any]:
        """The request: the image as a data URL, the answer as JSON by schema, no randomness."""
        address = f"data:{MIME.get(extension.lower(), 'image/jpeg')};base64,{base64.b64encode(image).decode()}"
        content = [{"type": "text", "text": self.text}, {"type": "image_url", "image_url": {"url": address}}]
        answer = {"name": "answer", "strict": True, "schema": self.schema}
        return {
            "model": model,
            "messages": [{"role": "user", "content": content}],
            "response_format": {"type": "json_schema", "json_schema": answer},
            "temperature": 0,
        }


def question_of(concepts: Sequence[Concept], instructions: str) -> Question:
    """The question about some concepts."""
    lines = [
        f"- {c.name}: {c.option or c.name}" + (f" (for example {', '.join(c.examples)})" if c.examples else "")
        for c in concepts
    ]
    text = "\n".join([instructions, "", *lines, f"- {NONE}: none of the above"])
    return Question(text, (*(c.name for c in concepts), NONE))


@dataclass(frozen=True)
class Answer:
    """What a model said about one image."""

    labels: tuple[str, ...] = ()
    """sorted; empty with a fault"""
    sensitive: bool = False
    confidence: float | None = None
    """what the model says of its own certainty, 0 to 1"""
    fault: str | None = None
    """why the answer does not count: refused, cut, not_json, other_schema, unknown_label, contradiction, empty"""


def read_answer(choice: Any, question: Question) -> Answer:
    """One entry of `choices` → answer. Never raises: what is no answer is a fault."""
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        return Answer(fault="other_schema")
    if message.get("refusal") or choice.get("finish_reason") == "content_filter":
        return Answer(fault="refused")
    if choice.get("finish_reason") == "length":
        return Answer(fault="cut")
    try:
        value = json_value(message["content"])
    except (KeyError, TypeError, ValueError, RecursionError):
        return Answer(fault="not_json")
    labels = value.get("labels") if isinstance(value, dict) else None
    if not isinstance(labels, list) or not all(isinstance(v, str) for v in labels):
        return Answer(fault="other_schema")
    sensitive, sure = value.get("sensitive"), value.get("confidence")
    if not isinstance(sensitive, bool) or isinstance(sure, bool) or not isinstance(sure, int | float):
        return Answer(fault="other_schema")
    if not 0 <= sure <= 1:
        return Answer(fault="other_schema")
    if not labels:
        return Answer(fault="empty")
    if set(labels) - set(question.labels):
        return Answer(fault="unknown_label")
    if NONE in labels and len(set(labels)) > 1:
        return Answer(fault="contradiction")
    return Answer(tuple(sorted(set(labels))), sensitive, float(sure))
