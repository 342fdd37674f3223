"""The grid: settings reach whom they belong to, failures stay with their learner, finished runs are not repeated."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.console import inside
from support.helpers import drifting
from threadpoolctl import threadpool_info, threadpool_limits

import driftline as dl
from driftline.curate.core import own_code
from driftline.curate.core.errors import BadConfig, MissingFile, UnknownName
from driftline.curate.core.own_code import Untold, code_of
from driftline.curate.core.run_log import RunLog
from driftline.eval import rows
from driftline.eval.engine.fused import kind
from driftline.eval.experiment.presets import TABLE_1, TABLE_4, expand, fitting
from driftline.eval.experiment.runs import code_of_run, ours
from driftline.eval.integrations import Sklearn, Torch
from driftline.eval.learner import Array, Labels, Learner, Task
from driftline.eval.learners import LEARNERS
from driftline.eval.learners.er import Er
from driftline.eval.protocol import PROTOCOLS
from driftline.eval.reporting.report import results_of, write
from driftline.eval.run import evaluate, plan
from driftline.eval.scoring.published_values import SCORES, beside, values
from driftline.eval.scoring.ranking import labels
from driftline.eval.settings import seeds_of, spec_of
from driftline.stream_builder.stream import Stream


@dataclass
class Constant(Learner):
    """A user's own learner."""

    answer: int = 0

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.task = task

    def predict(self, x: Array) -> Labels:
        return np.full(len(x), self.answer, np.int64)

    def learn(self, x: Array, y: Labels) -> None:
        pass


def test_a_learner_of_your_own_needs_no_registration(stream: Stream) -> None:
    found = evaluate(stream, "clear-iid", [Constant, Constant(answer=1)], seeds=[0])
    assert [r["learner"] for r in found["results"]] == ["Constant", "Constant"]
    assert [r["settings"]["answer"] for r in found["results"]] == [0, 1]


def test_the_document_is_the_contract(stream: Stream) -> None:
    found = evaluate(stream, "clear-iid", ["nearest-mean"], seeds=[0, 1])
    json.dumps(found)
    (result,) = found["results"]
    assert set(result["scores"]) == {"in_domain", "next_domain", "accuracy", "backward", "forward"}
    assert set(result["scores"]["forward"]) == {"mean", "sd", "values"}
    assert np.array(result["matrix"]).shape == (4, 4)
    assert found["stream"] == {"name": "drifting", "sha256": "drifting"}
    assert found["skipped"] == []
    streaming = evaluate(stream, "clear-streaming", ["nearest-mean"])["results"][0]
    assert set(streaming["scores"]) == {"next_domain", "forward"}
    assert all((cell is None) == (j <= i) for i, row in enumerate(streaming["matrix"]) for j, cell in enumerate(row))


def test_settings_go_to_the_protocol_to_all_learners_or_to_one(stream: Stream) -> None:
    settings = {"epochs": 2, "nap.lr": 0.1, "splits": "seeded"}
    found = evaluate(stream, "clear-iid", ["nap", "finetune"], settings=settings)
    by_name = {r["learner"]: r["settings"] for r in found["results"]}
    assert by_name["nap"]["epochs"] == by_name["finetune"]["epochs"] == 2
    assert (by_name["nap"]["lr"], by_name["finetune"]["lr"]) == (0.1, 1.0)
    assert by_name["nap"]["splits"] == "seeded"
    with pytest.raises(BadConfig, match=r"Unknown setting 'epoch'\. Did you mean 'epochs'\?.*lr, momentum"):
        evaluate(stream, "clear-iid", ["finetune"], settings={"epoch": 2})


def test_unknown_names_are_answered_with_the_known(stream: Stream) -> None:
    with pytest.raises(UnknownName, match=r"Unknown learner 'napp'\. Did you mean 'nap'\?"):
        evaluate(stream, "clear-iid", ["napp"])
    with pytest.raises(UnknownName, match="Unknown protocol 'clear'"):
        evaluate(stream, "clear", ["nap"])


def test_finished_runs_are_read_not_repeated(stream: Stream, tmp_path: Path) -> None:
    first = evaluate(stream, "clear-iid", ["nap"], seeds=[0, 1], settings={"epochs": 2}, out=tmp_path)
    marks = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("run.json")}
    assert len(marks) == 2
    assert evaluate(stream, "clear-iid", ["nap"], seeds=[0, 1], settings={"epochs": 2}, out=tmp_path) == first
    assert marks == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("run.json")}
    evaluate(stream, "clear-iid", ["nap"], seeds=[0], settings={"epochs": 3}, out=tmp_path)
    assert len(list(tmp_path.rglob("run.json"))) == 3, "other settings are another run"


@pytest.mark.parametrize("workers", [1, 2])
def test_progress_counts_the_runs_that_are_left(workers, stream, tmp_path, monkeypatch):
    """Three of eight runs are there."""
    told: list[tuple[Any, int]] = []

    @contextmanager
    def progress(log: RunLog, what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        yield lambda n: told.append((total, n))

    stream.save(tmp_path / "stream")
    more: Any = {"out": tmp_path / "runs", "workers": workers, "control": 0}
    dl.evaluate(tmp_path / "stream", "clear-iid", "nearest-mean", seeds=[1, 2, 3], **more)
    monkeypatch.setattr(RunLog, "progress", progress)
    dl.evaluate(tmp_path / "stream", "clear-iid", ["nearest-mean", "majority"], seeds=4, **more)
    assert {total for total, _ in told} == {sum(n for _, n in told)} == {5}
    told.clear()
    run = tmp_path / "runs"
    next(run.glob("*/majority*/run.json")).unlink()
    words = ("--protocol", "clear-iid", "--learners", "nearest-mean,majority", "--seeds", "0-3", "--control", "0")
    assert inside("eval", tmp_path / "stream", *words, "--workers", workers, "--out", run).returncode == 0
    assert {total for total, _ in told} == {sum(n for _, n in told)} == {1}


class Stops(Constant):
    """Its answers follow from what it has learned; the run is interrupted at the last of `left` batches."""

    left = 10**9

    def learn(self, x: Array, y: Labels) -> None:
        Stops.left -= 1
        if Stops.left == 0:
            raise KeyboardInterrupt
        self.answer = int(np.bincount(y).argmax())


def fewer(stream: Stream, split: str, lost: int, folder: Path) -> Stream:
    """The stream without the first samples of its last step, as it is read from a folder."""
    (*steps, last) = stream.steps
    part = last[split].part(lost, len(last[split]))
    return replace(stream, steps=[*steps, replace(last, splits={**last.splits, split: part})]).save(folder)


class TestCase41OneFolderForSeveralRuns:
    @staticmethod
    def scores(stream: Stream, seeds: Any, out: Path | None = None) -> list[Any]:
        settings = {"splits": "seeded"}
        document = evaluate(stream, "clear-iid", [Stops, "nearest-mean"], seeds=seeds, settings=settings, out=out)
        return [(r["scores"], r["classes"], r["tests"]) for r in document["results"]]

    def test_an_interrupted_run_ends_as_an_undisturbed_one(self, stream: Stream, tmp_path: Path) -> None:
        Stops.left = 2 * len(stream.steps)
        with pytest.raises(KeyboardInterrupt):
            self.scores(stream, [0, 1], tmp_path)
        assert self.scores(stream, [0, 1], tmp_path) == self.scores(stream, [0, 1])

    @pytest.mark.parametrize(("split", "lost"), [("train", 10), ("test", 10), ("test", 1)])
    def test_a_stream_that_lost_samples_has_its_own_answers(self, stream, tmp_path, split, lost):
        all_, part = (fewer(stream, split, n, tmp_path / str(n)) for n in (0, lost))
        whole = self.scores(all_, [0], tmp_path / "rows")
        assert self.scores(part, [0], tmp_path / "rows") == self.scores(part, [0]) != whole
        assert self.scores(all_, [0], tmp_path / "rows") == whole

    @pytest.mark.parametrize(("split", "lost"), [("train", 10), ("test", 1)])
    def test_so_has_one_in_memory(self, stream: Stream, tmp_path: Path, split: str, lost: int) -> None:
        whole, part = (replace(fewer(stream, split, n, tmp_path / str(n)), sha256="") for n in (0, lost))
        scores = self.scores(whole, [0], tmp_path / "rows")
        assert self.scores(part, [0], tmp_path / "rows") == self.scores(part, [0]) != scores
        planned = [
            plan(one, "clear-iid", ["nearest-mean"], [0], {"splits": "seeded"}, tmp_path / "rows").finished
            for one in (whole, part, replace(whole, classes=["a", "b", "c"]))
        ]
        assert planned == [1, 1, 0]

    @pytest.mark.parametrize("seeds", [range(5), [4, 0]])
    def test_other_seeds_are_those_of_a_new_run(self, stream: Stream, tmp_path: Path, seeds: Any) -> None:
        self.scores(stream, [0, 1], tmp_path)
        assert self.scores(stream, seeds, tmp_path) == self.scores(stream, seeds)


def test_a_record_says_which_kernel_ran(stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRIFTLINE_KERNEL", "off")
    evaluate(stream, "clear-iid", ["nap"], settings={"epochs": 2}, out=tmp_path / "rows")
    (path,) = tmp_path.rglob("run.json")
    about = json.loads(path.read_text())
    assert about["kernel"] == "torch"
    monkeypatch.delenv("DRIFTLINE_KERNEL")
    found = evaluate(stream, "clear-iid", ["nap"], seeds=[0, 1], settings={"epochs": 2}, out=tmp_path / "rows")
    (result,) = found["results"]
    assert result["kernel"] == ["torch", kind()]
    run = rows.load(path.parent)
    assert rows.digest(run) == rows.digest(replace(run, about=run.about | {"kernel": "avx2"}))


def test_products_of_runs_and_reports_are_made_on_one_thread(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    pools: list[dict[str, Any]] = []
    monkeypatch.setattr(Constant, "learn", lambda *_: pools.extend(threadpool_info()))
    monkeypatch.setattr("driftline.eval.reporting.report.harder_data", lambda *_: pools.extend(threadpool_info()))
    with threadpool_limits(2, "blas"):
        evaluate(stream, "clear-iid", [Constant]).whole()
    assert {pool["num_threads"] for pool in pools if "/libscipy" in pool["filepath"]} == {1}


def test_a_wrong_name_of_a_kernel_is_refused_before_any_work(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRIFTLINE_KERNEL", "avx1024")
    with pytest.raises(BadConfig, match="DRIFTLINE_KERNEL is 'avx1024'"):
        evaluate(stream, "clear-iid", [Constant])


def test_seeded_splits_differ_by_seed_and_are_the_same_for_every_learner(stream: Stream) -> None:
    found = evaluate(stream, "clear-iid", [Constant], seeds=[0, 1, 2], settings={"splits": "seeded"})
    again = evaluate(stream, "clear-iid", [Constant(answer=0)], seeds=[0, 1, 2], settings={"splits": "seeded"})
    assert found["results"][0]["scores"] == again["results"][0]["scores"]
    seeing = evaluate(stream, "clear-iid", ["nearest-mean"], seeds=range(5), settings={"splits": "seeded"})
    assert len(set(seeing["results"][0]["scores"]["forward"]["values"])) > 1


def test_a_folder_without_runs_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="no runs"):
        rows.find([tmp_path / "empty"])


@pytest.mark.parametrize("text", ["", "a", "3-1", "0,0", "-1"])
def test_bad_seeds(text: str) -> None:
    with pytest.raises(BadConfig, match="--seeds"):
        seeds_of(text)


class TestReport:
    def test_comes_from_rows_only_and_twice_the_same(self, stream: Stream, tmp_path: Path) -> None:
        direct = evaluate(stream, "clear-iid", ["nearest-mean"], seeds=[0, 1], out=tmp_path / "runs")
        (read,) = results_of([tmp_path / "runs"])
        added = {"net", "ageing"}  # by the control, which a report looks for
        assert [{k: v for k, v in r.items() if k not in added} for r in read["results"]] == direct["results"]


MOCO = "clear10/moco-yfcc-b0"
FEATURES = ("moco-yfcc-b0", "clip", "imagenet", "moco-imagenet", "byol-imagenet")
SAME = {"scale": "none", "variant": "reference", "splits": "random"}  # and the defaults of linear heads


class TestPublishedValues:
    def told(self, stream: Stream, name: str = MOCO) -> Stream:
        return replace(stream, facts={"published": name})

    def test_stand_beside_ours_where_data_and_settings_are_the_same(self, stream: Stream, tmp_path: Path) -> None:
        out = tmp_path / "runs"
        direct = evaluate(self.told(stream), "clear-iid", ["ewc", "nearest-mean"], settings=SAME, out=out)
        ewc, mean = direct["results"]
        assert ewc["published"]["in_domain"] == {"mean": 0.916, "sd": 0.001}
        assert set(ewc["published"]) == set(ewc["scores"])
        assert "published" not in mean
        page = write(results_of([out]), tmp_path / "out").read_text()
        assert '<span class="sd">91.6 ± 0.1</span>' in page
        assert ",True,published,0.916," in (tmp_path / "out" / "scores.csv").read_text()
        assert r"\quad published & $91.6 \pm 0.1$" in (tmp_path / "out" / "scores.tex").read_text()

    @pytest.mark.parametrize(
        "other",
        [
            {"epochs": 2}, {"scale": "rms"}, {"variant": "paper"}, {"splits": "stream"}, {"splits": "seeded"},
            {"test_share": 0.4}, {"ewc.strength": 9.0}, {"precision": "bfloat16"}, {"net": "mlp", "hidden": 8},
        ],
    )  # fmt: skip
    def test_do_not_stand_beside_other_settings(self, stream: Stream, other: dict[str, Any]) -> None:
        found = evaluate(self.told(stream), "clear-iid", ["ewc"], settings=SAME | other)["results"]
        assert "published" not in found[0]

    def test_do_not_stand_beside_other_streams(self, stream: Stream) -> None:
        assert "published" not in evaluate(stream, "clear-iid", ["ewc"], settings=SAME)["results"][0]

    def about(self, name: str, features: str, network: str, preset: str, protocol: str = "clear-iid") -> dict[str, Any]:
        """A stored run with a preset's settings: nothing is trained."""
        spec, kind = spec_of(name), PROTOCOLS[protocol]
        base = name.partition("(")[0]
        given = fitting(preset, {base: spec.kind, protocol: kind})
        return {
            "learner": name, "protocol": protocol, "published": f"clear10/{features}",
            "settings": json.loads(json.dumps(spec(**given[base]).settings())),
            "protocol_settings": asdict(kind(**given[protocol])),
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("network", "features", "preset"),
        [
            ("linear", "clip", "clear-linear-code"), ("linear", "imagenet", "clear-linear-imagenet-code"),
            ("mlp", "imagenet", "clear-mlp-code"), ("resnet18", "images", "clear-resnet18-code"),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("protocol", ["clear-iid", "clear-streaming"])
    def test_the_preset_of_each_network_is_what_they_stand_beside(self, network, features, preset, protocol):
        for name in TABLE_1 if network == "resnet18" else TABLE_4:
            about = self.about(name, features, network, preset, protocol)
            assert beside(about) == values(f"clear10/{features}", protocol, name, network) != {}
            assert beside(about | {"settings": about["settings"] | {"momentum": 0.5}}) == {}
            if protocol == "clear-iid":
                for splits, shown in (("published", True), ("seeded", False), ("stream", False)):
                    drawn = about | {"protocol_settings": about["protocol_settings"] | {"splits": splits}}
                    assert bool(beside(drawn)) == shown, splits

    def test_imagenets_features_have_the_rate_of_supplement_6(self) -> None:
        for features, rate in (("imagenet", 0.1), ("moco-imagenet", 1.0)):
            about = self.about("nap", features, "linear", "clear-linear-code")
            for lr in (0.1, 1.0):
                run = about | {"settings": about["settings"] | {"lr": lr}}
                assert bool(beside(run)) == (lr == rate), (features, lr)

    def test_they_are_found_by_settings_and_not_by_name(self) -> None:
        printed = self.about("reservoir(alpha=dynamic:0.5,start=scratch)", "clip", "linear", "clear-linear-code")
        for name in ("reservoir", "reservoir(start=scratch, alpha=dynamic:0.5)"):
            assert beside(printed | {"learner": name}) == beside(printed) != {}
        assert beside(printed | {"learner": "er"}) == {}

    def test_offline_training_has_its_one_number(self) -> None:
        about = self.about("joint", "images", "resnet18", "clear-resnet18-code")
        assert beside(about) == {"in_domain": {"mean": 0.811}}

    @pytest.mark.parametrize("protocol", ["clear-iid", "clear-streaming"])
    def test_every_row_of_the_papers_tables_is_there(self, protocol: str) -> None:
        for name in (*TABLE_4, *TABLE_1):
            found = values(MOCO, protocol, name)
            assert set(found) == set(SCORES[protocol]), name
            assert all(0.8 < v["mean"] < 0.94 and v["sd"] <= 0.003 for v in found.values()), name
        for features in FEATURES:
            for network in ("linear", "mlp"):
                assert all(values(f"clear10/{features}", protocol, name, network) for name in TABLE_4)
        for name in TABLE_1:
            found = values("clear10/images", protocol, name, "resnet18")
            assert set(found) == set(SCORES[protocol]), name
            assert all(0.6 < v["mean"] < 0.8 for v in found.values()), name

    @pytest.mark.parametrize(
        ("features", "network", "learner", "protocol", "score", "printed"),
        [
            ("clip", "linear", "nap", "clear-iid", "in_domain", 0.798),  # table 6, first cell
            ("imagenet", "linear", "reservoir(alpha=dynamic:1.0)", "clear-iid", "next_domain", 0.942),  # its last row
            ("byol-imagenet", "mlp", "cumulative", "clear-iid", "in_domain", 0.946),  # table 7
            ("moco-yfcc-b0", "mlp", "reservoir(alpha=5.0)", "clear-streaming", "next_domain", 0.917),  # table 9
            ("moco-imagenet", "linear", "reservoir(alpha=2.0,start=scratch)", "clear-streaming", "next_domain", 0.898),
            ("images", "resnet18", "lwf", "clear-streaming", "forward", 0.761),  # table 1
        ],
    )
    def test_cells_are_the_papers(self, features, network, learner, protocol, score, printed):
        assert values(f"clear10/{features}", protocol, learner, network)[score]["mean"] == printed


class TestGrids:
    def test_a_learner_may_bring_its_settings(self, stream: Stream) -> None:
        found = evaluate(stream, "clear-iid", ["er(memory=9,epochs=2)", "er"], settings={"er.epochs": 3})
        assert [r["settings"]["memory"] for r in found["results"]] == [9, 0]
        assert [r["settings"]["epochs"] for r in found["results"]] == [2, 3]
        assert [r["learner"] for r in found["results"]] == ["er(memory=9,epochs=2)", "er"]

    @pytest.mark.parametrize(
        ("learner", "settings", "said"),
        [
            ("er(9)", {}, r"holds '9'. Expected NAME\(setting=value"),
            ("er(memory=9", {}, r"holds 'memory=9'. Expected NAME\(setting=value"),
            ("er(memry=9)", {}, r"er: Unknown setting 'memry'. Did you mean 'memory'\? Available: augment, "),
            ("er", {"memory": -5}, "er: memory is -5. Expected a number greater than or equal to 0."),
            ("er", {"er.lr": "fast"}, "er: lr is 'fast'. Expected a valid number."),
            (Er(memory=-5), {}, "Er: memory is -5. Expected a number greater than or equal to 0."),
        ],
    )
    def test_a_bad_setting_is_one_sentence_before_any_work(self, stream, learner, settings, said):
        with pytest.raises(BadConfig, match=said):
            plan(stream, "clear-iid", [learner], [0], settings)

    def test_the_papers_table_has_its_nineteen_rows(self) -> None:
        assert len(TABLE_4) == len(set(TABLE_4)) == 19
        assert expand(["clear-table-4", "nap", "er"], ["er"]) == [*TABLE_4, "er"]
        for name in (*TABLE_4, *TABLE_1):
            spec_of(name)()


def test_small_numbers_are_numbers_wherever_they_are_given(stream: Stream) -> None:
    from driftline.pipelines.config.loader import apply

    held: dict[str, Any] = {}
    apply(held, "lr=1e-3")
    assert held == {"lr": 0.001}
    found = evaluate(stream, "clear-iid", ["finetune(lr=5e-1,epochs=1)"])["results"][0]
    assert found["settings"]["lr"] == 0.5


# ---- finished rows are used again only if nothing changed that decides them: code of one's own, what it imports, wha


STREAM = drifting(steps=2, n=40)
IID = PROTOCOLS["clear-iid"]()
OWN = """
import numpy as np
from driftline.ext import Learner
from {helper} import ANSWER

class Constant(Learner):
    def begin(self, task, rng):
        pass

    def learn(self, x, y):
        pass

    def predict(self, x):
        return np.full(len(x), ANSWER)
"""


class Own:
    """A learner in a file of its own, that imports another one."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.name, self.helper = folder, f"own_code_{number}", f"own_helper_{number}"
        (folder / f"{self.name}.py").write_text(OWN.format(helper=self.helper))
        self.answer(0)

    def answer(self, label: int) -> None:
        path = self.folder / f"{self.helper}.py"
        path.write_text(f"ANSWER = {label}\n")
        os.utime(path, ns=(label * 10**9, label * 10**9))

    def learner(self) -> Learner:
        for name in (self.name, self.helper):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module(self.name).Constant()


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Own:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return Own(tmp_path, abs(hash(request.node.name)) % 10**9)


def finished(learner: Any, out: Path, stream: Stream = STREAM) -> int:
    return plan(stream, "clear-iid", [learner], [0], out=out).finished


def test_an_edited_helper_module_is_run_again_and_an_unedited_one_is_not(own: Own, tmp_path: Path) -> None:
    def accuracy(reuse: Any = "same") -> tuple[float, str]:
        (result,) = evaluate(STREAM, "clear-iid", [own.learner()], out=tmp_path / "runs", reuse=reuse)["results"]
        return result["scores"]["in_domain"]["mean"], result["code"]

    right = [float((STREAM.steps[0]["test"].y == label).mean()) for label in (0, 1)]
    assert accuracy() == (pytest.approx(right[0]), "this")
    assert finished(own.learner(), tmp_path / "runs") == 1
    own.answer(1)
    assert finished(own.learner(), tmp_path / "runs") == 0
    assert accuracy("any") == (pytest.approx(right[0]), "other")
    assert accuracy() == (pytest.approx(right[1]), "this")


def test_rows_of_two_codes_are_two_marked_rows(own: Own, tmp_path: Path) -> None:
    for label in (0, 1):
        own.answer(label)
        evaluate(STREAM, "clear-iid", [own.learner()], out=tmp_path / "runs")
    (document,) = results_of([tmp_path / "runs"])
    names = labels(document["results"])
    assert len(names) == len(set(names)) == 2
    assert all(name.startswith("Constant, code of learner=") for name in names)


def test_files_of_one_name_in_several_folders_all_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the `__init__.py` of a package with rooms."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    house, names = tmp_path / "own_house", ("own_house", "own_house.room")
    (house / "room").mkdir(parents=True)
    codes = []
    for i, (outer, inner) in enumerate(((0, 0), (1, 0), (0, 1), (0, 0))):
        texts = {house: f"from own_house import room\nclass Own: ...\nA = {outer}\n", house / "room": f"A = {inner}\n"}
        for folder, text in texts.items():
            (folder / "__init__.py").write_text(text)
            os.utime(folder / "__init__.py", ns=(i, i))
        importlib.invalidate_caches()
        codes.append(code_of(importlib.import_module("own_house").Own))
        for name in names:
            del sys.modules[name]
    assert codes[0] == codes[3]
    assert len(set(codes)) == 3


def test_another_driftline_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate(STREAM, "clear-iid", ["majority"], out=tmp_path)
    assert finished("majority", tmp_path) == 1
    monkeypatch.setattr("driftline.eval.experiment.runs.ours", lambda: "0.3.0 (abc)")
    assert finished("majority", tmp_path) == 0


def test_the_digest_of_driftline_is_that_of_its_files(tmp_path: Path) -> None:
    """In a process of its own: it is computed once."""
    text = "from driftline.eval.experiment.runs import ours; print(ours())"
    assert subprocess.check_output([sys.executable, "-c", text], text=True).strip() == ours()


@pytest.mark.parametrize("optimiser", ["partial", "default", "closure"])
def test_a_learning_rate_inside_a_function_is_part_of_the_code(optimiser: str) -> None:
    def linear(task: Any) -> Any:
        return torch.nn.Linear(8, 3)

    def made(lr: float) -> Any:
        def with_default(parameters: Any, lr: float = lr) -> Any:
            return torch.optim.SGD(parameters, lr)

        def enclosing(parameters: Any) -> Any:
            return torch.optim.SGD(parameters, lr)

        kinds = {"partial": partial(torch.optim.SGD, lr=lr), "default": with_default, "closure": enclosing}
        return Torch("own", linear, kinds[optimiser])

    first, again, other = (code_of_run(made(lr), IID) for lr in (0.1, 0.1, 0.001))
    assert first == again
    assert first != other


def test_another_network_in_a_lambda_is_other_code() -> None:
    def made(deep: bool) -> Torch:
        if deep:
            return Torch("own", lambda task: torch.nn.Sequential(torch.nn.Linear(8, 3)), torch.optim.SGD)
        return Torch("own", lambda task: torch.nn.Linear(8, 3), torch.optim.SGD)

    codes = [code_of_run(made(deep), IID)["learner"] for deep in (False, False, True)]
    assert codes[0] == codes[1]
    assert len(set(codes)) == 2


def test_an_estimators_parameters_and_its_librarys_version_are_part_of_the_code(monkeypatch):
    from sklearn.linear_model import SGDClassifier

    def coded(alpha: float) -> str:
        return code_of_run(Sklearn("own", SGDClassifier(alpha=alpha)), IID)["learner"]

    first, again, other = coded(0.1), coded(0.1), coded(0.2)
    assert first == again
    version = own_code.installed_version
    monkeypatch.setattr(own_code, "installed_version", lambda name: "99" if name == "scikit-learn" else version(name))
    assert len({first, other, coded(0.1)}) == 3


def test_the_bytes_of_a_file_that_a_setting_names_are_part_of_the_code(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    digests = []
    for i, content in enumerate((b"a", b"b", b"a")):
        path.write_bytes(content)
        os.utime(path, ns=(i, i))
        digests.append(code_of_run(LEARNERS["finetune"](weights=str(path)), IID)["learner"])
    assert digests[0] == digests[2]
    assert len(set(digests)) == 2


def test_code_of_ours_and_of_installed_packages_has_a_version() -> None:
    assert code_of(LEARNERS["er"]) == "driftline"
    assert code_of(np.random.Generator).startswith("numpy ")


def test_code_of_a_cell_is_run_again_each_time_and_said(tmp_path: Path) -> None:
    space: dict[str, Any] = {"__name__": "a_cell"}
    exec(OWN.format(helper="stat").replace("import ANSWER", "import ST_INO as ANSWER"), space)
    kind = space["Constant"]
    with pytest.raises(Untold, match=r"a_cell\.Constant"):
        code_of(kind)
    assert code_of_run(kind(), IID) == {"untold": "a_cell.Constant"}
    evaluate(STREAM, "clear-iid", [kind()], out=tmp_path)
    again = plan(STREAM, "clear-iid", [kind()], [0], out=tmp_path)
    assert (again.finished, again.untold) == (0, {"Constant": "a_cell.Constant"})
    evaluate(STREAM, "clear-iid", [kind()], out=tmp_path)
    assert len(list(tmp_path.rglob("run.json"))) == 1


def test_rows_of_a_file_that_was_edited_while_it_ran_stand_apart(own: Own, tmp_path: Path) -> None:
    learner: Any = own.learner()
    learner.learn = lambda x, y: own.answer(2)
    (result,) = evaluate(STREAM, "clear-iid", [learner], out=tmp_path / "runs")["results"]
    assert result["code"] == "other"
    (record,) = (tmp_path / "runs").rglob("run.json")
    assert record.parent.name.endswith("-edited")
    assert json.loads(record.read_bytes())["edited_while_running"] is True
