"""The table over all protocols and streams: what differs, what was skipped."""

import re
from pathlib import Path
from typing import Any

import pytest
from support.console import answer
from support.helpers import drifting

from driftline.eval.protocols.ocrr.protocol import Ocrr
from driftline.eval.reporting.overview import overview
from driftline.eval.reporting.report import write


def document(protocol: str, stream: str, **means: float | None) -> dict[str, Any]:
    results = [
        {
            "learner": name,
            "settings": {},
            "scores": {"first": {"mean": mean, "sd": 0.0, "values": [mean]}},
            "seeds": [0],
        }
        for name, mean in means.items()
    ]
    return {"protocol": protocol, "stream": {"name": stream, "sha256": stream}, "results": results, "skipped": []}


DOCUMENTS = [document("a", "x", one=0.9, two=0.8, three=0.7), document("a", "y", one=0.9, two=0.9, three=0.1),
             document("b", "x", one=0.2, two=0.3, three=0.1, four=0.9)]  # fmt: skip


def test_the_table_has_the_best_of_each_column_and_dashes_for_what_is_missing() -> None:
    page = overview(DOCUMENTS)

    assert page.count("class='best'") == 1 + 2 + 1
    assert page.count("<td>–</td>") == 2  # four, in two columns
    assert overview(DOCUMENTS[:1]) == ""


def test_the_best_follows_the_direction_of_the_primary_score(monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = [{**d, "protocol": "ocrr"} for d in DOCUMENTS[:2]]
    for one in fewer:
        one["results"] = [{**r, "scores": {"corrections_to_50": r["scores"]["first"]}} for r in one["results"]]
    monkeypatch.setattr(Ocrr, "primary", "corrections_to_50")

    assert re.findall(r"scope='row'>(\w+)</th><td class='best'>", overview(fewer)) == ["three"]


def test_all_protocols_on_several_streams_say_what_cannot_be(tmp_path: Path) -> None:
    """Settings may be said to one protocol alone."""
    for name, steps in (("S", 4), ("T", 3)):
        drifting(steps=steps).save(tmp_path / name)
    command = [
        "eval", str(tmp_path / "S"), str(tmp_path / "T"), "--protocol", "all",
        "--learners", "nearest-mean,majority,substrate", "--set", "ocrr.every=20", "--json",
        "--out", str(tmp_path / "runs"),
    ]  # fmt: skip
    documents = answer(*command)

    assert len(documents) == 2 * 5
    because = [d["skipped"][0]["because"] for d in documents if not d["results"]]
    assert len(because) == 2
    assert all("no val split" in text for text in because)
    page = write(documents, tmp_path / "page").read_text()
    assert "All protocols and streams" in page
