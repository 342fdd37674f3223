"""A protocol of the user's own: class, instance or package.module:Name; rows, report, workers; nothing from a file."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from pydantic import Field
from support.console import driftline
from support.helpers import drifting

from driftline.curate.core.errors import BadConfig, BadPlugin, IncompatibleStream, UnknownName
from driftline.curate.core.executor import Executor
from driftline.eval.learner import Learner, Task
from driftline.eval.predictions import evaluate_split
from driftline.eval.protocol import PROTOCOLS, Protocol, Result, Score, protocol_named
from driftline.eval.protocols.clear import Iid
from driftline.eval.protocols.near_future.protocol import NearFuture
from driftline.eval.reporting.exports import SCORE_COLUMNS
from driftline.eval.reporting.report import results_of, write
from driftline.eval.rows import Row
from driftline.eval.rows import find as rows_of
from driftline.eval.run import evaluate, plan
from driftline.stream_builder.stream import Stream

MODULE = '''
import time
from dataclasses import dataclass
from pathlib import Path

from driftline.eval.learner import Task
from driftline.eval.predictions import evaluate_split
from driftline.eval.protocol import Protocol, Result

Path(__file__).with_name("imported").touch()


@dataclass(frozen=True)
class Ageing(Protocol):
    """How <fast> a model ages."""

    step: int = 0

    def check(self, stream):
        pass

    def task(self, stream):
        return Task(len(stream.classes), stream.x_shape)

    def run(self, stream, learner, rng, seed):
        begun = time.process_time()
        learner.learn_step(stream.steps[self.step].visible())
        for step in stream.steps:
            yield evaluate_split(learner, step["test"], step.name, begun, learned_to=self.step)

    def score(self, rows, steps):
        return Result({"last": rows[-1].n_correct / rows[-1].n})
'''


@dataclass(frozen=True)
class FirstOnly(Protocol):
    """Train on the first step, test on all."""

    share: Annotated[float, Field(gt=0, le=1)] = 1.0

    scores = (Score("last", "last step"), Score("errors", "wrong answers", higher_is_better=False, unit="answers"))

    def check(self, stream: Stream) -> None:
        if len(stream.steps) < 2:
            raise IncompatibleStream(f"{stream.name!r} has one step.")

    def task(self, stream: Stream) -> Task:
        return Task(len(stream.classes), stream.x_shape)

    def run(self, stream: Stream, learner: Learner, rng: np.random.Generator, seed: int) -> Iterator[Row]:
        learner.learn_step(stream.steps[0].visible())
        for step in stream.steps:
            yield evaluate_split(learner, step["test"], step.name, 0.0, learned_to=0)

    def score(self, rows: Sequence[Row], steps: int) -> Result:
        return Result({"last": rows[-1].n_correct / rows[-1].n, "errors": float(sum(r.n - r.n_correct for r in rows))})


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module `ageing` in a folder of its own, importable there."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "ageing.py").write_text(MODULE)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "ageing", raising=False)
    return folder


@pytest.mark.parametrize("given", [FirstOnly, FirstOnly(), FirstOnly(0.5)])
def test_four_methods_are_a_protocol(given: Any, stream: Stream) -> None:
    found = evaluate(stream, given, ["nearest-mean", "majority"], [0, 1])
    assert found["protocol"] == "FirstOnly"
    best, worse = found["results"]
    assert best["scores"]["last"]["mean"] > worse["scores"]["last"]["mean"]
    assert best["settings"]["share"] == getattr(given, "share", 1.0)
    assert set(best["scores"]) == {"last", "errors"}


def test_settings_reach_a_class_and_replace_those_of_an_instance(stream: Stream) -> None:
    for given in (FirstOnly, FirstOnly(0.5)):
        found = evaluate(stream, given, ["majority"], settings={"share": 0.25})
        assert found["results"][0]["settings"]["share"] == 0.25
        with pytest.raises(BadConfig, match=r"FirstOnly: share is 0\. Expected a number greater than 0"):
            evaluate(stream, given, ["majority"], settings={"FirstOnly.share": 0})


def test_an_instance_of_a_registered_class_has_its_registered_name(stream: Stream) -> None:
    found = evaluate(stream, Iid(splits="seeded"), ["majority"])
    assert found["protocol"] == "clear-iid"
    by_name = evaluate(stream, "clear-iid", ["majority"], settings={"splits": "seeded"})
    (one,), (other,) = found["results"], by_name["results"]
    assert one | {"seconds": 0} == other | {"seconds": 0}


def test_its_rows_are_read_and_its_page_has_its_own_texts(stream: Stream, tmp_path: Path) -> None:
    direct = evaluate(stream, FirstOnly, ["majority", "nearest-mean"], [0, 1], out=tmp_path / "runs")
    evaluate(stream, "clear-iid", ["majority", "nearest-mean"], [0, 1], out=tmp_path / "runs")
    documents = results_of([tmp_path / "runs"])
    assert [d["results"] for d in documents if d["protocol"] == "FirstOnly"] == [direct["results"]]
    index = write(documents, tmp_path / "out").read_text()
    assert "FirstOnly<br>drifting" in index, "the overview has a column"
    page = (tmp_path / "out" / "protocol-FirstOnly.html").read_text()
    assert "Train on the first step, test on all." in page
    assert '<th scope="col" aria-sort="descending">last step</th>' in index
    assert "Lopez-Paz" not in page
    assert "in-domain" not in page


def test_fewer_are_better_where_the_score_says_so(stream: Stream, tmp_path: Path) -> None:
    found = evaluate(stream, FirstOnly, ["majority", "nearest-mean"], [0, 1, 2])
    majority, mean = found["results"]
    assert mean["scores"]["errors"]["mean"] < majority["scores"]["errors"]["mean"]
    assert mean["p_against_best_adjusted"] == {"last": None, "errors": None}
    assert majority["p_against_best_adjusted"]["errors"] is None, "both are deterministic: seeds are copies"
    write([found], tmp_path)
    few, many = (r["scores"]["errors"]["mean"] for r in (mean, majority))
    tex = (tmp_path / "scores.tex").read_text()
    assert rf"${few:.0f} \pm 0$" in tex
    assert rf"${many:.0f} \pm 0$" in tex


def test_a_name_of_a_module_is_imported_for_the_user_and_never_for_a_file(stream: Stream, module: Path) -> None:
    out = module.parent / "runs"
    stream.save(module.parent / "S")
    done = driftline(
        "eval", str(module.parent / "S"), "--protocol", "ageing:Ageing", "--learners", "nearest-mean,majority",
        "--seeds", "0-1", "--out", str(out), "--json", here=module,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["protocol"] == "ageing:Ageing"
    (module / "imported").unlink()
    with pytest.raises(UnknownName, match=r"of the protocol 'ageing:Ageing', which is not registered.*--plugin"):
        results_of([out])
    with pytest.raises(UnknownName, match="Unknown protocol"):
        PROTOCOLS["ageing:Ageing"]
    refused = driftline("report", str(out), "--out", str(module / "page"), here=module)
    assert (refused.returncode, "Traceback" in refused.stderr, "--plugin" in refused.stderr) == (2, False, True)
    assert not (module / "imported").exists()
    done = driftline("report", str(out), "--out", str(module / "page"), "--plugin", "ageing:Ageing", here=module)
    assert done.returncode == 0, done.stderr
    page = next((module / "page").glob("protocol-ageing*.html")).read_text()
    assert "How &lt;fast&gt; a model ages." in page


@pytest.mark.proof("processes")
def test_worker_processes_run_it(module: Path) -> None:
    made = drifting().save(module.parent / "S")
    instance = PROTOCOLS.resolve("ageing:Ageing")(step=1)
    learners = ["nearest-mean", "majority"]
    for number, given in enumerate(["ageing:Ageing", instance]):
        shared = evaluate(
            made, given, learners, [0, 1], out=module.parent / f"runs{number}", stream_folder=module.parent / "S",
            executor=Executor(workers=2),
        )  # fmt: skip
        alone = evaluate(made, given, learners, [0, 1])
        assert [r["scores"] for r in shared["results"]] == [r["scores"] for r in alone["results"]]
        assert shared["skipped"] == []


@pytest.mark.parametrize("script", [False, True])
def test_a_class_that_other_processes_cannot_import_runs_in_this_one(stream, tmp_path, monkeypatch, script):
    class Local(FirstOnly):
        """Only here."""

    if script:  # or a notebook: pickle finds the class, and no other process does
        monkeypatch.setattr(sys.modules["__main__"], "Local", Local, raising=False)
        Local.__module__, Local.__qualname__ = "__main__", "Local"
    stream.save(tmp_path / "S")
    found = evaluate(
        stream,
        Local,
        ["majority"],
        [0, 1],
        out=tmp_path / "r",
        stream_folder=tmp_path / "S",
        executor=Executor(workers=2),
    )
    assert found["results"][0]["seeds"] == [0, 1]


class TestRefused:
    def test_what_is_no_protocol(self, stream: Stream) -> None:
        with pytest.raises(
            BadConfig, match=r"Expected a name, or a class derived from driftline\.eval\.protocol\.Protocol"
        ):
            evaluate(stream, object(), ["majority"])  # type: ignore[arg-type]
        with pytest.raises(BadPlugin, match="Expected a class derived from driftline.eval.protocol.Protocol"):
            evaluate(stream, "json:JSONDecoder", ["majority"])

    def test_a_class_that_lacks_methods(self, stream: Stream) -> None:
        class Half(Protocol):
            def check(self, stream: Stream) -> None: ...

        with pytest.raises(BadConfig, match="The protocol Half lacks run, score, task"):
            evaluate(stream, Half, ["majority"])  # type: ignore[type-abstract]

    def test_a_dictionary_in_place_of_a_result(self, stream: Stream) -> None:
        class Old(FirstOnly):
            def score(self, rows: Sequence[Row], steps: int) -> Any:
                return {"scores": {}}

        with pytest.raises(BadPlugin, match=r"Old\.score returned .* Expected a driftline\.ext\.Result"):
            evaluate(stream, Old, ["majority"])

    def test_its_check_comes_before_any_work(self) -> None:
        with pytest.raises(IncompatibleStream, match="one step"):
            plan(drifting(steps=1), FirstOnly, ["majority"], [0])

    def test_a_class_with_a_registered_name(self) -> None:
        with pytest.raises(BadPlugin, match="Another protocol is registered as 'ocrr'"):
            protocol_named(type("ocrr", (FirstOnly,), {}))


SETTINGS = [
    ("near-future", {"batch": 0}, r"near-future: batch is 0\. Expected a number greater than or equal to 1"),
    ("near-future", {"also": "64,128"}, "also holds '64,128'"),
    ("near-future", {"shift": -1}, r"near-future: shift is -1\. Expected .* or 'auto'"),
    ("near-future", {"shift": "soon"}, r"near-future: shift is 'soon'\. Expected a valid integer or 'auto'"),
    ("clear-iid", {"test_share": 1.5}, r"clear-iid: test_share is 1\.5\. Expected a number less than 1"),
    ("ocrr", {"evry": 3}, r"Unknown setting 'evry'\. Did you mean 'every'\? Available: .*held_out"),
    ("ocrr", {"ocrr.evry": 3}, r"Unknown setting 'ocrr\.evry'\. Did you mean 'ocrr\.every'\?"),
]


@pytest.mark.parametrize(("protocol", "settings", "said"), SETTINGS)
def test_settings_are_checked_before_any_work(protocol: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        plan(drifting(), protocol, ["majority"], [0], settings)


def test_settings_of_an_instance_are_checked_when_it_is_made() -> None:
    with pytest.raises(BadConfig, match="NearFuture: batch is 0"):
        NearFuture(batch=0)
    with pytest.raises(BadConfig, match="NearFuture: delay is -1"):
        replace(NearFuture(), delay=-1)


def test_settings_are_stored_as_given() -> None:
    """Digests of old rows hold: a number that was stored as an integer is not made a float."""
    assert type(NearFuture(updates=10).updates) is int


class TestResults:
    def test_a_frame_has_a_row_for_each_learner_score_and_seed(self, stream: Stream) -> None:
        found = evaluate(stream, FirstOnly, ["majority", "nearest-mean"], [0, 1, 4])
        frame = found.frame()
        assert frame.columns.tolist() == [*SCORE_COLUMNS, "skipped"]
        assert len(frame) == 2 * 2 * 3
        mean = frame[(frame["learner"] == "nearest-mean") & (frame["score"] == "last")]
        assert mean["value"].tolist() == found["results"][1]["scores"]["last"]["values"]
        assert mean["seed"].tolist() == [0, 1, 4]

    def test_a_frame_of_classes_has_their_tests_and_recall(self, stream: Stream, tmp_path: Path) -> None:
        """From predictions: the same of stored runs."""
        first, again = (evaluate(stream, "clear-iid", ["nearest-mean"], [0, 1], out=tmp_path) for _ in range(2))
        assert first == again
        frame = first.frame(by_class=True)
        assert frame.columns.tolist() == ["stream", "protocol", "learner", "class", "n", "recall"]
        assert frame["class"].tolist() == stream.classes
        rows = [row for run in rows_of([tmp_path]) for row in run.rows if row.learned_to + 1 == int(row.tested_on) > 0]
        right, n = (np.sum([getattr(row, key) for row in rows], 0) for key in ("class_correct", "class_n"))
        assert frame["recall"].tolist() == pytest.approx((right / n).tolist())
        assert frame["n"].tolist() == (n / 2).tolist()
        whole = first.frame().set_index(["score", "seed"])["value"]
        assert whole["balanced_accuracy", 0] == pytest.approx((right / n).mean())

    def test_predictions_and_samples_of_the_stream_are_tables_that_join_by_id(self, stream: Stream) -> None:
        found = evaluate(stream, "clear-iid", ["nearest-mean"])
        both = found.predictions().merge(stream.frame(), on="id", suffixes=("", "_of_stream"))
        assert len(both) == sum(row.n for row in found.runs[0].rows)
        assert (both["label"] == both["label_of_stream"]).all()
        right = (both["label"] == both["predicted"]).groupby([both["tested_on"], both["learned_to"]]).sum()
        rows = {(row.tested_on, row.learned_to): row.n_correct for row in found.runs[0].rows}
        assert right.to_dict() == rows

    def test_a_score_that_was_never_reached_is_nan(self, stream: Stream) -> None:
        frame = evaluate(stream, "ocrr", ["majority"], settings={"held_out": 1}).frame()
        assert frame.loc[frame["score"] == "corrections_to_90", "value"].isna().all()

    def test_published_means_are_no_seeds(self, stream: Stream) -> None:
        same = replace(stream, facts={"published": "clear10/moco-yfcc-b0"})
        settings = {"scale": "none", "splits": "random", "epochs": 1}
        found = evaluate(same, "clear-iid", ["gdumb"], settings=settings)
        found["results"][0]["published"] = {"in_domain": {"mean": 0.9, "sd": 0.0}}
        assert found.frame()["seed"].tolist() == [0] * 7

    def test_a_notebook_shows_the_table_with_the_best_in_bold(self, stream: Stream) -> None:
        found = evaluate(stream, FirstOnly, ["majority", "nearest-mean", "joint(epochs=1)"])
        found["results"][0]["learner"] = "<script>"
        found["skipped"].append({"learner": "a", "because": "<b>"})
        found["stream"]["name"] = "<i>"
        page = found._repr_html_()
        last = max(r["scores"]["last"]["mean"] for r in found["results"])
        assert f"<td><b>{100 * last:.1f}</b></td>" in page
        assert page.count("<td><b>") == 1
        assert "&lt;script&gt;" in page
        assert all(evil not in page for evil in ("<script>", "<i>", "skipped: <b>"))
