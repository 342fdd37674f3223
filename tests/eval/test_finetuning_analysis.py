"""Seq-to-Final's networks and pictures, as numbers: scores, ends of paths, projections, SVCCA; and what they refuse."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import subspace_angles
from support.console import handed
from support.helpers import drifting, few_of

from driftline.curate.core.errors import BadConfig, BadInput, IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.eval.finetuning.fit import accuracy_of, scores_of
from driftline.eval.finetuning.objectives import pooled, samples
from driftline.eval.plotting.finetuning import OF_NETWORKS, draw, networks
from driftline.eval.protocols.seq_to_final import analysis as views
from driftline.eval.protocols.seq_to_final.analysis import between, weights
from driftline.eval.protocols.seq_to_final.published import EXACT, table, value
from driftline.eval.reporting.protocols.seq_to_final import across, looks, mean_looks, note
from driftline.eval.reporting.protocols.seq_to_final import whole as figures
from driftline.eval.rows import Run, find
from driftline.eval.run import evaluate
from driftline.eval.settings import spec_of
from driftline.stream_builder.shifts.grammar import sizes_of
from driftline.stream_builder.stream import Split, Step, Stream

LEARNERS = ["oracle", "baseline", "erm", "ft", "st-1", "st-b", "sft", "sst-1", "jm", "jst-1", "ft(final=lowrank-add)"]
SEARCHING = ["ft(final=search)", "sft-linear", "sft(final=search,beam=2)"]
SETTINGS = {"network": "conv-1", "epochs": 2, "precision": "float32", "adjacents": "0/0.1", "fits": 6}


def images(n: int, step: int, seed: int) -> Split:
    """A class is the brightest colour; labels move on by one at the last step."""
    rng = rng_for(seed, "views", step)
    y = np.arange(n) % 3
    x = rng.integers(0, 60, (n, 16, 16, 3))
    x[np.arange(n), :, :, (y + (step == 2)) % 3] += 120
    return Split(x.astype(np.uint8), y.astype(np.int64), np.array([f"{step}-{i}" for i in range(n)]))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Stream, Path]:
    folder = tmp_path_factory.mktemp("views")
    sides = [{"train": images(60, t, 0), "val": images(30, t, 1)} for t in range(3)]
    sides[2]["test"] = images(30, 2, 2)
    steps = [Step(t, str(t), side) for t, side in enumerate(sides)]
    oracle = Step(3, "oracle", {"train": images(180, 2, 3), "val": images(30, 2, 4)})
    stream = Stream("views", steps, ["r", "g", "b"], oracle=oracle).save(folder / "S")
    evaluate(stream, "seq-to-final", [*LEARNERS, *SEARCHING], settings=SETTINGS, out=folder / "runs")
    return folder / "S", stream, folder / "runs"


def run_of(runs: Path, learner: str) -> Run:
    """The stored run of a learner."""
    return next(run for run in find([runs]) if run.about["learner"] == learner)


class TestTrained:
    @pytest.mark.parametrize("learner", [*LEARNERS, *SEARCHING])
    def test_the_network_has_the_score_of_its_run(self, made: Any, learner: str) -> None:
        _, stream, runs = made
        (one,) = networks(runs, stream, [learner])
        test, (row,) = samples(stream.steps[-1]["test"]), run_of(runs, learner).rows
        right = scores_of(one.after, test.x, one.rule).argmax(1) == test.y
        assert [int(right[test.y == label].sum()) for label in range(3)] == list(row.class_correct)

    def test_a_search_does_not_always_choose_its_last_candidate(self, made: Any) -> None:
        """Else the test above would not notice that the last one was taken."""
        _, _, runs = made
        facts = [run_of(runs, name).about["learner_facts"] for name in SEARCHING]
        assert any(fact["network"][-1] != fact["stages"][-1]["fit"] for fact in facts)

    @pytest.mark.parametrize(("learner", "last_seen"), [("ft", (0, 1)), ("st-1", (0, 1)), ("sft", (1,))])
    def test_the_network_before_the_last_step_has_the_validation_accuracy_of_its_stage(self, made, learner, last_seen):
        _, stream, runs = made
        (one,) = networks(runs, stream, [learner])
        facts = run_of(runs, learner).about["learner_facts"]
        stages = {stage["fit"]: stage for stage in facts["stages"]}
        val = pooled([samples(stream.steps[t]["val"]) for t in last_seen])
        assert accuracy_of(one.before, val, one.rule) == stages[facts["network"][-2]]["accuracy"]


class TestPaths:
    @pytest.mark.parametrize("learner", [name for name in LEARNERS if "low" not in name])
    def test_a_path_begins_before_the_last_step(self, made: Any, learner: str) -> None:
        _, stream, runs = made
        (one,) = networks(runs, stream, [learner])
        x = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
        one.after.eval()
        with torch.no_grad():
            first = between(one, 0.0).eval()(x)
            if learner == "jm":
                begin = one.after(x, -2)
            elif learner == "jst-1":
                begin = one.after(x, 1)
            else:
                begin = (one.before or one.start).eval()(x)
        assert torch.allclose(first, begin, atol=1e-5)

    def test_the_papers_interpolation_keeps_normalisation_until_the_end(self, made: Any) -> None:
        _, stream, runs = made
        (one,) = networks(runs, stream, ["ft"])
        half = between(one, 0.5, "initial")
        assert torch.equal(half.parts["stem"][0][1].running_mean, one.before.parts["stem"][0][1].running_mean)
        assert not torch.equal(half.parts["stem"][0][0].weight, one.before.parts["stem"][0][0].weight)

    def test_low_rank_adapters_have_no_path(self, made: Any) -> None:
        _, stream, runs = made
        (one,) = networks(runs, stream, ["ft(final=lowrank-add)"])
        with pytest.raises(IncompatibleStream, match="low-rank"):
            views.path(one, samples(stream.steps[-1]["test"]), points=3)


class TestProjection:
    def test_history_and_baseline_lie_on_their_own_axes(self, made: Any) -> None:
        _, stream, runs = made
        ft, oracle, baseline = (networks(runs, stream, [name])[0] for name in ("ft", "oracle", "baseline"))
        history = ft.before
        models = [(net, -1) for net in (oracle.after, history, baseline.after)]
        found = views.projections(models, oracle.after, history, baseline.after)
        for block in (*history.names, views.WHOLE):
            names = history.names if block == views.WHOLE else [block]
            past, few = (
                np.concatenate([weights(net, n) - weights(oracle.after, n) for n in names])
                for net in (history, baseline.after)
            )
            length = np.linalg.norm
            assert found[block][0] == (0.0, 0.0)
            assert found[block][1] == pytest.approx((length(past), past @ few / length(few)))
            assert found[block][2] == pytest.approx((past @ few / length(past), length(few)))

    @pytest.mark.parametrize(("learner", "points"), [("baseline", 1), ("ft", 2), ("sft", 3), ("jm", 3), ("sst-1", 3)])
    def test_there_is_a_model_for_each_step_that_a_method_learns_alone(self, made, learner, points):
        _, stream, runs = made
        (one,) = networks(runs, stream, [learner])
        assert len(one.models) == points
        facts = run_of(runs, learner).about["learner_facts"]
        stages = {stage["fit"]: stage for stage in facts["stages"]}
        if learner in ("sft", "sst-1"):
            for t, (net, _) in enumerate(one.models):
                accuracy = accuracy_of(net, samples(stream.steps[t]["val"]), one.rule)
                assert accuracy == stages[facts["network"][t]]["accuracy"]
        if learner == "jm":
            assert [time for _, time in one.models] == [0, 1, 2]


class TestSvcca:
    def test_it_is_the_mean_cosine_between_the_kept_subspaces(self) -> None:
        rng = np.random.default_rng(0)
        a, b = rng.normal(size=(40, 6)), rng.normal(size=(40, 5))
        found = views.svcca(*map(views.directions, (a, b)), 1.0)
        expected = np.cos(subspace_angles(a - a.mean(0), b - b.mean(0)))
        assert found == pytest.approx(float(expected.mean()))

    def test_directions_are_kept_by_the_sum_of_singular_values(self) -> None:
        left, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(20, 3)))
        left -= left.mean(0)
        left, _ = np.linalg.qr(left)
        a, b = left * [6.0, 3.0, 1.0], left[:, :1]  # 6 of 10: more than half; of squares even .78
        assert views.svcca(*map(views.directions, (a, b)), 0.5) == pytest.approx(1.0)


class TestPictures:
    @pytest.mark.parametrize("kind", few_of(OF_NETWORKS, ["projection"], "paper"))
    def test_the_same_bytes_twice(self, made: Any, kind: str, tmp_path: Path) -> None:
        _, stream, runs = made
        first, again = ([path.read_bytes() for path in draw(kind, runs, stream, tmp_path / k)] for k in "ab")
        assert (first[0], first[2]) == (again[0], again[2]), "SVG and PNG"
        assert min(map(len, first)) > 2000
        drawn = {path.stem for path in (tmp_path / "a").glob("*.svg")}
        blocks = ("", "-stem", "-1", "-fc") if kind in ("projection", "svcca") else ("",)
        assert drawn == {f"{kind}{block}" for block in blocks}

    def test_missing_runs_of_a_figure_are_named(self, made: Any, tmp_path: Path) -> None:
        _, stream, runs = made
        other = Stream("other", stream.steps, stream.classes, sha256="other")
        with pytest.raises(IncompatibleStream, match="was run on 'views', not on 'other'"):
            draw("svcca", runs, other, tmp_path, ["ft"])
        with pytest.raises(IncompatibleStream, match="There is no run of oracle"):
            draw("svcca", runs, stream, tmp_path, ["ft"])
        with pytest.raises(BadConfig, match="svcca was given without --stream"):
            draw("svcca", runs, None, tmp_path)

    def test_a_missing_fit_is_named(self, made: Any, tmp_path: Path) -> None:
        _, stream, runs = made
        copy = tmp_path / "runs"
        shutil.copytree(runs, copy)
        key = run_of(runs, "baseline").about["learner_facts"]["stages"][-1]["fit"]
        place = copy / "fits" / key[:2] / key
        shutil.rmtree(place)
        with pytest.raises(BadInput, match="has no weights of the fit"):
            networks(copy, stream, ["baseline"])


def as_published(sequence: str, network: str, learner: str, accuracy: float, **other: Any) -> dict[str, Any]:
    """A result with the paper's samples and settings."""
    told: dict[str, Any] = {"fidelity": "paper-code", "from": "portraits"}
    if sequence != "portraits":
        told |= {"from": "shifts", "base": "cifar10", "sequence": sequence, "sizes": list(sizes_of(sequence))}
        told["draws"] = "published" if len(sizes_of(sequence)) == 4 else "own"
    settings = spec_of(learner)().settings() | EXACT | {"network": network} | other
    return {"learner": learner, "settings": settings, "told": told, "scores": {"final": {"mean": accuracy}}}


def whole(sequence: str) -> dict[str, Any]:
    """A document with every value that the paper printed for a sequence, as if they were ours."""
    results = [as_published(*key, accuracy) for key, accuracy in table().items() if key[0] == sequence]
    return {"protocol": "seq-to-final", "stream": {"name": sequence, "sha256": sequence}, "results": results}


class TestPublished:
    @pytest.mark.parametrize("sequence", sorted({key[0] for key in table()}))
    def test_every_value_of_tables_8_to_14_is_shown_beside_its_own_settings(self, sequence: str) -> None:
        (figure,) = figures(whole(sequence))
        rows = re.findall(r"<tr><th scope='row'>([a-z]+-\d)</th>(.*?)</tr>", figure.picture.svg)
        shown = {(net, i): cell for net, cells in rows for i, cell in enumerate(re.findall(r"<td>(.*?)</td>", cells))}
        printed = [re.search(r"<span class='sd'>(\.\d\d)</span>", cell) for cell in shown.values()]
        values = sorted(f"{v:.2f}"[1:] for key, v in table().items() if key[0] == sequence)
        assert sorted(found[1] for found in printed if found) == values
        assert "▲" not in "".join(shown.values())

    @pytest.mark.parametrize(
        "other",
        [
            {"fidelity": "clean"}, {"budget": "small"}, {"epochs": 10}, {"lrs": "0.1"},
            {"val_share": 0.2}, {"precision": "bfloat16"}, {"final": "lowrank-add"},
        ],
    )  # fmt: skip
    def test_none_is_shown_beside_other_settings(self, other: dict[str, Any]) -> None:
        assert value(as_published("R:C:L", "res-4", "ft", 0.6)) == 0.67
        assert value(as_published("R:C:L", "res-4", "ft", 0.6, **other)) is None

    @pytest.mark.parametrize(
        "other",
        [
            {"draws": "own"}, {"fidelity": "clean"}, {"sizes": [600, 400, 600, 400]}, {"sequence": "C:L:L"},
            {"sequence": "C(2):L:R"},
        ],
    )  # fmt: skip
    def test_none_is_shown_beside_other_samples(self, other: dict[str, Any]) -> None:
        result = as_published("C:L:R", "res-4", "ft", 0.6)
        assert value(result) is not None
        assert value(result | {"told": result["told"] | other}) is None

    def test_rotations_and_portraits_need_the_papers_sizes_and_rendering(self) -> None:
        for sequence in ("R", "portraits"):
            result = as_published(sequence, "res-4", "erm", 0.6)
            assert value(result) == (0.62 if sequence == "R" else 0.86)
            assert value(result | {"told": result["told"] | {"fidelity": "clean"}}) is None
        assert value(result | {"learner": "os:system"}) is None

    def test_table_2_is_shown_with_its_own_averages_and_marks(self) -> None:
        """[Table 2]: printed means, of twelve networks, or of eight for one-layer side modules (.63 of jst-1)."""
        section = across([whole("R:C:L")])
        names = re.findall(r"<th scope='col'>([a-z1-9-]+)</th>", section.html)[1:]
        (cells,) = re.findall(r"<tr><th scope='row'>R:C:L.*?</th>(.*?)</tr>", section.html)
        shown = dict(zip(names, re.findall(r"<td>(.*?)</td>", cells), strict=True))
        printed = {"baseline": ".54", "erm": ".19", "ft": ".61", "lp-ft": ".64", "st-1": ".63", "st-b": ".61",
                   "jst-1": ".63", "jst-b": ".60", "jm": ".58", "oracle": ".66"}  # fmt: skip
        assert {name: re.findall(r"\.\d\d(?=</span>)", shown[name])[0] for name in printed} == printed
        assert [name for name in ("ft", "lp-ft", "i-ft", "st-1", "jst-1") if "<b>" in shown[name]] == [
            "lp-ft", "st-1", "jst-1"
        ]  # fmt: skip

    def test_a_mean_over_other_networks_than_the_papers_is_beside_the_same_networks(self) -> None:
        some = whole("R:C:L")
        some["results"] = [r for r in some["results"] if r["settings"]["network"] in ("conv-1", "res-4")]
        (figure,) = figures(some)
        mean = figure.picture.svg.partition("<th scope='row'>mean</th>")[2].partition("</tr>")[0]
        ft = [table()["R:C:L", net, "ft"] for net in ("conv-1", "res-4")]
        assert f"<span class='sd'>{sum(ft) / 2:.2f}".replace(">0.", ">.") in mean

    def test_one_network_has_no_table_of_means(self) -> None:
        assert across([{**whole("R"), "results": whole("R")["results"][:3]}]) is None


class TestTables:
    def test_the_papers_tables_are_whole(self) -> None:
        """Every mean of tables 8 to 13 was checked against its column when they were read."""
        assert len(table()) == 1338

    def test_bold_and_italic_are_the_papers(self) -> None:
        """[Table 9, Res-4]: FT and LP-FT within .02 of each other, the oracle .04 above."""
        row = {learner: value for (s, n, learner), value in table().items() if (s, n) == ("R:C:L", "res-4")}
        found = looks(row)
        assert {name for name, mark in found.items() if mark == "b"} == {
            "ft", "lp-ft", "i-ft", "st-1", "st-b", "sft", "sst-1"
        }  # fmt: skip
        assert not [name for name, mark in found.items() if "i" in mark]

    def test_means_are_judged_by_differences_on_each_network(self) -> None:
        cells = {"a": {"ft": 0.6, "erm": 0.3, "oracle": 0.61}, "b": {"ft": 0.7, "erm": 0.69, "oracle": 0.69}}
        assert mean_looks(cells, ["ft", "erm", "oracle"]) == {"ft": "bi", "erm": ""} | {
            "erm": mean_looks(cells, ["erm"])["erm"]
        }

    def test_the_report_says_that_validation_images_were_trained_on(self) -> None:
        result = {"settings": {"fidelity": "clean", "budget": "small"}}
        leaks = result | {"told": {"shared": {"final_validation_in_earlier_training": 207}}}
        assert "207 validation images" in note({"results": [result, leaks]})
        assert "validation images" not in note({"results": [result]})


@pytest.mark.parametrize(
    ("kind", "words", "expected"),
    [
        ("interpolation", ["--set", "norm=initial"], ["initial", 1000]),
        ("svcca", ["--set", "count=50"], ["interpolate", 50]),
        ("adjacent", [], ["interpolate", 1000]),
    ],
)
def test_a_figure_is_drawn_as_the_options_say(kind: str, words: list[Any], expected: list[Any], tmp_path: Path) -> None:
    stream = drifting(steps=3).save(tmp_path / "S")
    evaluate(tmp_path / "S", "clear-iid", ["nearest-mean", "majority"], out=tmp_path / "runs")
    places = ("--stream", tmp_path / "S", "--out", tmp_path / "page", "--figures", tmp_path / "f", "--networks", kind)
    found = handed("driftline.eval.plotting.finetuning.draw", "report", tmp_path / "runs", *places, *words)
    assert [found["kind"], found["runs"], found["out"]] == [kind, tmp_path / "runs", tmp_path / "f"]
    assert [found["settings"].norm, found["settings"].count] == expected
    assert found["stream"].sha256 == stream.sha256
