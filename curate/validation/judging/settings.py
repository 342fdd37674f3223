"""Settings of one judge."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from pydantic import Field, model_validator

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.settings import SPEED, Form, Positive, Section, Text

INSTRUCTIONS = (
    "Look at the image. Select every element of the list that is clearly visible in it, also when it is not the main "
    "subject. If you see none of them, select only “none”. Also say whether the image has sensitive content "
    "(pornography, abuse, hate speech), and how sure you are of the selection, from 0 to 1."
)


class JudgeSettings(Section):
    """One judge: a model that answers the question about every image."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,40}$"), Form("1 to 40 letters, digits, '-', '_' or '.'")]
    """name of this worker in tables and reports"""
    kind: Literal["endpoint", "margin", "student"] = "endpoint"
    """endpoint: a vision-language model behind an OpenAI-compatible address; margin: the run's encoder and prompts;
    student: a classifier on the run's vectors, trained on people's answers"""
    url: Text | None = None
    """endpoint: address before /chat/completions, e.g. http://127.0.0.1:8000/v1"""
    model: Text | None = None
    """endpoint: name of the model there"""
    key_variable: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"), Form("a variable's name")] | None = None
    """endpoint: environment variable that holds the key (null: no key); the key itself is never stored"""
    instructions: Text = INSTRUCTIONS
    """endpoint: text before the list of options"""
    in_flight: Annotated[int, Field(ge=1, le=1024), SPEED] = 64
    """endpoint: requests at one time"""
    timeout: Annotated[float, Field(gt=0, le=3600), SPEED] = 120.0
    """endpoint: seconds for one request"""
    retries: Annotated[int, Field(ge=0, le=20), SPEED] = 4
    """endpoint: further requests after a time-out, 429 or 5xx (Retry-After is obeyed)"""
    usd_per_million_in: Annotated[float, Field(ge=0), SPEED] = 0.0
    """endpoint: price of a million input tokens"""
    usd_per_million_out: Annotated[float, Field(ge=0), SPEED] = 0.0
    """endpoint: price of a million output tokens"""
    budget_usd: Annotated[float, Field(gt=0), SPEED] | None = None
    """endpoint: stop before the answers of this judge cost more (null: no limit)"""
    margin: Annotated[float, Field(ge=0, lt=2)] = 0.02
    """margin: least difference between the best and the second best cosine; below it the judge does not answer"""
    folds: Annotated[int, Field(ge=2, le=50)] = 5
    """student: parts of the people's answers; each part is judged by a classifier that did not see it"""
    each: Positive = 10
    """student: least answered images of a class in a bucket; below it the judge does not answer in that bucket"""

    @model_validator(mode="after")
    def _check(self) -> JudgeSettings:
        if self.kind == "endpoint" and not (self.url and self.model):
            raise ValueError("an endpoint needs url and model")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ValueError("url must begin with http:// or https://")
        if self.budget_usd is not None and not (self.usd_per_million_in or self.usd_per_million_out):
            raise ValueError("budget_usd needs the prices usd_per_million_in and usd_per_million_out")
        return self


def key_of(settings: JudgeSettings) -> str | None:
    """The key from the named environment variable. Raises BadConfig if it is not set."""
    if settings.key_variable is None:
        return None
    key = os.environ.get(settings.key_variable, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise BadConfig(
            f"The judge {settings.name!r} reads its key from the variable {settings.key_variable}, which has none.",
            "Expected printable ASCII text.",
            f"Set it in the environment: export {settings.key_variable}=…",
        )
    return key
