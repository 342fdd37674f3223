"""Several draws of one composed stream: each seed has its own samples, and all are summarised as one stream."""

from pathlib import Path
from typing import Any

import pytest
from support.console import answer, driftline
from support.helpers import write_base

from driftline.curate.core.errors import BadConfig
from driftline.eval.reporting.report import results_of
from driftline.eval.run import draws_of, evaluate
from driftline.stream_builder.stream import Stream

COMPOSE = ("stream", "compose", "--sequence", "C:L", "--sizes", "20,10,20", "--test-size", "20", "--no-oracle")
EVAL = ("--protocol", "seq-to-final", "--learners", "nearest-mean,majority", "--json")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Any]:
    """Three draws, their rows, and the document of `driftline eval`."""
    folder = tmp_path_factory.mktemp("draws")
    write_base(folder / "base")
    driftline(*COMPOSE, "--base", str(folder / "base"), "--seeds", "0-2", "--out", str(folder / "S")).check_returncode()
    document = answer("eval", str(folder / "S"), *EVAL, "--out", str(folder / "rows"))
    return folder / "S", folder / "rows", document


def test_each_seed_has_its_own_samples(made: Any) -> None:
    streams = [Stream.load(place) for place in draws_of(made[0]).values()]
    assert [stream.facts["seed"] for stream in streams] == [0, 1, 2]
    assert len({stream.sha256 for stream in streams}) == 3
    assert len({stream.facts["family"] for stream in streams}) == 1


def test_draws_composed_later_join_the_others(made: Any, tmp_path: Path) -> None:
    base = str(made[0].parent / "base")
    for more, joins in ((("--seeds", "3"), True), (("--seeds", "3", "--val-share", "0.3"), False)):
        out = tmp_path / str(joins)
        driftline(*COMPOSE, "--base", base, *more, "--out", str(out)).check_returncode()
        families = [Stream.load(place / name).facts["family"] for place, name in ((out, "seed-3"), (made[0], "seed-0"))]
        assert (families[0] == families[1]) == joins


def test_all_draws_are_one_result_for_each_learner(made: Any) -> None:
    folder, _, document = made
    assert [(r["learner"], r["seeds"]) for r in document["results"]] == [
        ("nearest-mean", [0, 1, 2]), ("majority", [0, 1, 2])
    ]  # fmt: skip
    alone = [evaluate({seed: place}, "seq-to-final", ["nearest-mean"])
             for seed, place in draws_of(folder).items()]  # fmt: skip
    values = [one["results"][0]["scores"]["final"]["values"][0] for one in alone]
    assert document["results"][0]["scores"]["final"]["values"] == values
    assert len(set(values)) > 1


def test_a_report_takes_the_draws_together_and_says_so(made: Any, tmp_path: Path) -> None:
    _, rows, document = made
    (stored,) = results_of([rows])
    assert stored["stream"] == document["stream"]
    by_learner = [{r["learner"]: r["scores"] for r in each["results"]} for each in (stored, document)]
    assert by_learner[0] == by_learner[1]
    driftline("report", str(rows), "--out", str(tmp_path / "page")).check_returncode()
    text = "".join(page.read_text(encoding="utf-8") for page in (tmp_path / "page").rglob("*.html"))
    assert "each seed has its own sample of the stream" in text


def test_other_seeds_on_one_draw_do_not_count_as_draws(made: Any, tmp_path: Path) -> None:
    folder, _, _ = made
    answer("eval", str(folder / "seed-1"), *EVAL, "--seeds", "0-1", "--out", str(tmp_path))
    found = {tuple(document["results"][0]["seeds"]) for document in results_of([tmp_path])}
    assert found == {(0,), (1,)}  # seed 0 on the stream itself, seed 1 as one of the draws


def test_some_draws_can_be_chosen_and_a_missing_one_is_named(made: Any, tmp_path: Path) -> None:
    folder, rows, _ = made
    some = answer("eval", str(folder), *EVAL, "--seeds", "0,2", "--out", str(rows))
    missing = driftline("eval", str(folder), *EVAL, "--seeds", "2-3", "--out", str(tmp_path))
    assert some["results"][0]["seeds"] == [0, 2]
    assert missing.returncode == 2
    assert "has no stream for seed 3. It has 0, 1, 2." in missing.stderr


def test_streams_that_are_no_draws_are_refused(made: Any) -> None:
    place = draws_of(made[0])[0]
    with pytest.raises(BadConfig, match="not samples of one stream"):
        evaluate({0: place, 1: place}, "seq-to-final", ["majority"])
