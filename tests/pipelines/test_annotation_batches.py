"""Options of `driftline batch`."""

from __future__ import annotations

from pathlib import Path

from support.console import handed

from driftline.curate.core.outside.s3 import S3


def test_options_of_a_batch_are_those_of_its_addresses_and_predictions(journey: Path, tmp_path: Path) -> None:
    words = ("batch", journey, "--format", "turkle, mturk", "--out", tmp_path, "--image-base-url", "s3://b/p")
    store = ("--hours", 3, "--profile", "lab", "--endpoint", "https://s3.test")
    found = handed("driftline.pipelines.annotation.batches.write_batches", *words, *store, "--predictions")
    assert list(found.values())[1:] == [
        ["turkle", "mturk"], tmp_path, "s3://b/p", 3.0, S3(profile="lab", endpoint="https://s3.test"), True
    ]  # fmt: skip
    assert handed("driftline.pipelines.annotation.batches.write_batches", *words)["predictions"] is False
