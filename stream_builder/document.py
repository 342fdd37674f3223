"""The schemas of stream.json and of lazy images, which are checked before anything in them is used."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from driftline.curate.core.outside.documents import Schema
from driftline.curate.core.outside.names import PlainName

Count = Annotated[int, Field(ge=0, lt=2**48)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Edge = Annotated[int, Field(ge=1, le=8192)]


class Samples(Schema):
    """Size and hash of samples without labels."""

    n: Count
    sha256: Digest
    encoded: Edge = 1


class Labelled(Samples):
    """Size and hash of a split."""

    time: bool
    group: bool = False
    test_in: bool = False
    label_time: bool = False


class StepRecord(Schema):
    """A time step."""

    index: Annotated[int, Field(ge=0, lt=10_000_000)]
    name: str
    splits: dict[Literal["train", "val", "test"], Labelled]
    unlabelled: Samples | None = None


class TextsRecord(Schema):
    """Size and hash of class texts, and the fingerprint of their encoder."""

    n: Count
    sha256: Digest
    encoder: str


class StreamDocument(Schema):
    """stream.json."""

    name: str
    classes: Annotated[list[str], Field(min_length=1)]
    steps: Annotated[list[StepRecord], Field(min_length=1)]
    prior: Samples | None
    facts: dict[str, Any]
    sha256: Digest
    digest: Digest = "0" * 64
    oracle: StepRecord | None = None
    class_texts: TextsRecord | None = None


class LazyDocument(Schema):
    """NAME_x.json: the files that hold the images of a split."""

    files: list[PlainName]
    size: Edge
    strict: bool
