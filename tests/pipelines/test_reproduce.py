"""`driftline reproduce`: lists of the papers' tables and figures, verdicts, what is missing; every paper's --quick."""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support import console
from support.chat_server import chat_server
from support.helpers import made_intents
from support.paper_data import images, orders, vectors
from support.toy_encoder import tiny_bert

from driftline.curate.core.executor import Executor
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import rng_for
from driftline.eval.settings import spec_of
from driftline.pipelines.reproduce import seq_to_final
from driftline.pipelines.reproduce.items import Cell, Item, Row, judged, means_of, rows_of, written
from driftline.pipelines.reproduce.run import PAPERS, Work, chosen, paper_named

LISTED = {  # tables and figures of each paper [spec/papers_gap.md, section 3]
    "clear": "figure-2 supplement-table-1 table-1-linear table-1-resnet18 table-2 supplement-table-6 "
             "supplement-table-7 figure-6 supplement-figures-5-14 offline-resnet18",
    "near-future": "figure-1 figure-2 figure-3 figure-4 figure-6 figure-7 figure-8 figure-9 figure-10 figure-11 "
                   "figure-12",
    "seq-to-final": "table-2 table-5 table-6 table-7 table-8 table-9 table-10 table-11 table-12 table-13 table-14 "
                    "table-15 figure-1 figure-9 figure-10 figure-11 figure-12 figure-13 figure-14 figure-15 figure-16 "
                    "figure-17",
    "ocrr": "table-1 sweep pareto ablations sanity-check scale-study llm",
}  # fmt: skip


class TestPlan:
    @pytest.mark.parametrize("paper", PAPERS)
    def test_each_table_and_figure_is_listed_with_its_cost_and_its_data(self, paper: str, tmp_path: Path) -> None:
        places = ("--data", str(tmp_path), "--out", str(tmp_path / "o"))
        told = console.driftline("reproduce", paper, "--plan", "--json", *places)
        items = json.loads(told.stdout)["items"]
        assert {item["item"] for item in items} == set(LISTED[paper].split())
        assert all(item["title"] and item["cost"] for item in items)
        assert all(item["because"] for item in items if not item["evaluations"])
        assert all(need["from"] and not need["there"] for item in items for need in item["needs"])
        assert not (tmp_path / "o").exists()

    @pytest.mark.parametrize("paper", PAPERS)
    def test_every_cell_names_learners_that_exist_and_a_file_that_it_reads(self, paper: str) -> None:
        listed = paper_named(paper)
        for item in listed.items:
            for cell in item.cells:
                assert set(cell.stream) & set(listed.needs) or cell.stream == ()
                if item.kind not in ("distances", "parameters", "scale"):
                    names = [spec_of(learner).name for learner in cell.learners]
                    assert set(cell.printed) <= set(names)

    def test_quick_measures_the_smallest_index_and_only_whole_figures_have_runs_of_their_own(
        self, tmp_path, monkeypatch
    ):
        (scale,) = (item for item in paper_named("ocrr").items if item.name == "scale-study")
        assert [cell.quick for cell in scale.cells] == [{"entries": 10_000}, None, None]
        outs: list[Path] = []
        monkeypatch.setattr("driftline.eval.run.plan", lambda *_, **given: SimpleNamespace(runs=0, finished=0))
        monkeypatch.setattr("driftline.eval.run.evaluate", lambda *_, out, **given: outs.append(out))
        monkeypatch.setattr(Work, "_stream", lambda self, cell: (tmp_path, None))
        for quick, kind in ((False, "figure"), (False, "scores"), (True, "figure"), (True, "scores")):
            work = Work(
                paper_named("clear"), tmp_path, tmp_path, quick, "cpu", Executor("local", 1), RunLog(None, True)
            )
            work._evaluated(Item("i", "", kind), Cell((), ()))
        assert [out.name.startswith("i-") for out in outs] == [True, False, False, False]

    def test_every_value_of_tables_8_to_14_is_in_a_cell(self) -> None:
        printed = [
            value for item in seq_to_final.ITEMS if item.name in [f"table-{n}" for n in range(8, 15)]
            for cell in item.cells for of in cell.printed.values() for value in of.values()
        ]  # fmt: skip
        assert len(printed) == 1338


def row(learner: str, ours: float, paper: float | None, half: float = 0.01) -> Row:
    return Row("table-2", "CLR, conv-1", learner, "final", ours, ours - half, ours + half, paper, 1, 5000)


class TestVerdicts:
    def test_a_value_in_the_interval_an_order_and_another_order_are_told_apart(self) -> None:
        values = ((0.50, 0.514), (0.30, 0.40), (0.60, 0.70), (0.70, 0.80), (0.55, 0.20))
        rows = [row(name, *pair) for name, pair in zip("abcde", values, strict=True)]
        assert [one.agreement for one in judged(rows, 2)] == ["within interval", *["same order"] * 3, "differs"]
        assert [one.agreement for one in judged([row("a", 0.5, None)], 2)] == ["no value in print"]

    def test_the_paper_prints_the_best_test_of_three_schedules(self) -> None:
        cell = Cell(("composed",), ("sft", "sft-linear"), {"sft": {"final": 0.6}}, "CLR, conv-1")
        results = [{"learner": name, "seeds": [0], "scores": {"final": {"mean": mean}}}
                   for name, mean in (("sft", 0.5), ("sft-linear", 0.58))]  # fmt: skip
        rows = rows_of(Item("table-2", "", cells=[cell]), cell, {"results": results}, {"sft": ("sft", "sft-linear")})
        assert [(one.learner, one.ours, one.paper) for one in rows] == [("sft", 0.58, 0.6), ("sft-linear", 0.58, None)]

    def test_a_mean_stands_beside_the_mean_of_the_same_networks(self) -> None:
        rows = [row("ft", 0.5, 0.6), row("ft", 0.7, 0.7), row("jm", 0.1, None)]
        means = means_of("table-2", {"CLR": rows}, lambda one: True)
        assert [(one.learner, round(one.ours, 2), one.paper) for one in means] == [("ft", 0.6, 0.65), ("jm", 0.1, None)]


def faces(folder: Path) -> None:
    for label, name in enumerate("MF"):
        (folder / name).mkdir(parents=True)
        for year in range(1930, 2014, 2):
            for i in range(2):
                pixels = rng_for(year, name, i).integers(0, 128, (20, 16)).astype(np.uint8) + np.uint8(100 * label)
                Image.fromarray(pixels).save(folder / name / f"{year}_{i}.png")


def table(out: Path) -> list[dict[str, str]]:
    with (out / "table.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def reproduced(*words: Any) -> Any:
    return console.driftline("reproduce", *map(str, words), "--device", "cpu", "--workers", "1")


def quick(paper: str, folder: Path, *more: str) -> list[dict[str, str]]:
    """The rows of what --quick makes of folder/data."""
    done = reproduced(paper, "--data", folder / "data", "--quick", "--out", folder / "out", *more)
    assert done.returncode == 0, done.stderr
    return table(folder / "out")


@pytest.mark.proof("paper")
def test_seq_to_final_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six sequences, table 15's rows, distances, parameters and the figures of networks, on made images and faces."""
    monkeypatch.setitem(seq_to_final.QUICK, "epochs", 1)
    monkeypatch.setattr("driftline.pipelines.reproduce.streams.TENTH", 50)
    monkeypatch.setattr("driftline.pipelines.reproduce.streams.TESTS", 60)
    images(tmp_path / "data" / "cifar10", 10, 50)
    images(tmp_path / "data" / "cifar100", 100, 6, coarse=True)
    faces(tmp_path / "data" / "portraits")
    items = "table-2,table-5,table-6,table-7,table-15,figure-9,figure-16,figure-17"
    paper, places = paper_named("seq-to-final"), (tmp_path / "data", tmp_path / "out")

    def again() -> bytes:
        work = Work(paper, *places, True, "cpu", Executor("local", 1), RunLog(None, True))
        written(work.items(chosen(paper, items.split(","))), tmp_path / "out")
        return (tmp_path / "out" / "table.csv").read_bytes()

    before = again()
    rows = table(tmp_path / "out")
    of = {name: [one for one in rows if one["item"] == name] for name in items.split(",")}
    assert {one["row"] for one in of["table-2"]} == {
        f"{s}, conv-1" for s in ("CLR", "RCL", "rrr", "TTT", "sss", "Portraits")
    }
    assert [one["learner"] for one in of["table-15"]] == list(seq_to_final.TABLE_15)
    assert [len(of[name]) for name in ("table-5", "table-6", "table-7")] == [30, 14, 12]
    assert {one["agreement"] for one in of["table-7"]} == {"within interval"}
    drawn = {path.relative_to(tmp_path / "out" / "figures").as_posix() for path in (tmp_path / "out").rglob("*.svg")}
    assert {"figure-9/adjacent.svg", "figure-16/projection-fc.svg", "figure-17/svcca-stem.svg"} <= drawn
    page = (tmp_path / "out" / "index.html").read_text()
    assert "Reduced: Conv-1 in place of every network" in page
    fits = len(list((tmp_path / "out").rglob("fit.json")))
    assert again() == before
    assert len(list((tmp_path / "out").rglob("fit.json"))) == fits


@pytest.mark.proof("paper")
def test_ocrr_quick(tmp_path: Path) -> None:
    vectors(tmp_path / "data" / "intent")
    rows = quick("ocrr", tmp_path)
    runs = set((tmp_path / "out" / "quick-runs" / "ocrr").glob("*/*/run.json"))
    again = quick("ocrr", tmp_path, "--only", "sanity-check", "--seeds", "0-1")
    assert {one["seeds"] for one in again} == {"2"}
    new = set((tmp_path / "out" / "quick-runs" / "ocrr").glob("*/*/run.json")) - runs
    assert len(new) == 4  # the other seed of four learners
    cells = {(one["row"], one["learner"]) for one in rows if one["item"] == "sweep"}
    assert len(cells) == 2 * 3 * 13
    headline = [one for one in rows if one["item"] == "table-1"]
    assert {one["score"] for one in headline} == {"novel", "original", "corrections_to_70"}
    assert all(one["paper"] for one in headline if one["score"] == "novel")
    recall = {
        one["learner"]: float(one["ours"]) for one in rows if (one["item"], one["score"]) == ("scale-study", "recall")
    }
    assert recall["brute"] == 1 > recall["hnsw"] > 0.9


@pytest.mark.proof("paper")
def test_learners_of_ocrr_that_read_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LoRA on a model of --data, beside the printed value; a language model on this machine, and none there."""
    folder = tmp_path / "data" / "intent"
    folder.mkdir(parents=True)
    for side, n in (("train", 6), ("test", 3)):
        lines = ["text,category", *(f"card {i} of {k},intent {k:02}" for k in range(12) for i in range(n))]
        (folder / f"banking77_{side}.csv").write_text("\n".join(lines))
    tiny_bert(folder / "deberta-v3-large", ["card", "of", *map(str, range(12))])
    rows = quick("ocrr", tmp_path, "--only", "table-1,llm")
    assert {one["learner"]: one["paper"] for one in rows if one["score"] == "novel"} == {"lora": "0.771"}
    said = json.loads((tmp_path / "out" / "table.json").read_text())["items"][1]["because"]
    assert "llm was skipped: http://127.0.0.1:11434/v1 cannot be reached. Start the server." in " ".join(said)
    paper = paper_named("ocrr")
    (item,) = chosen(paper, ["llm"])
    with chat_server() as chat:
        monkeypatch.setitem(item.cells[0].quick, "llm.endpoint", chat.url)
        work = Work(paper, tmp_path / "data", tmp_path / "out", True, "cpu", Executor("local", 1), RunLog(None, True))
        (only,) = [one for one in work.items([item])["rows"] if one["score"] == "novel"]
    assert (only["learner"], only["agreement"], bool(chat.bodies)) == ("llm", "no value in print", True)


@pytest.mark.proof("paper")
def test_clear_quick(tmp_path: Path) -> None:
    (tmp_path / "data" / "clear10").mkdir(parents=True)
    for name in ("moco-yfcc-b0", "imagenet"):
        x, y = made_intents(11, 660, 12, 0.2)
        step = np.repeat(np.arange(3), 220)
        np.savez(tmp_path / "data" / "clear10" / f"{name}.npz", x=x, y=y, step=step)
    items = "table-1-linear,table-2,supplement-table-6,figure-6"
    rows = quick("clear", tmp_path, "--only", items)
    assert {one["item"] for one in rows} == set(items.split(","))
    nap = [one for one in rows if (one["item"], one["learner"]) == ("table-2", "nap")]
    assert {one["score"]: one["paper"] for one in nap if "iid" in one["row"]}["in_domain"] == "0.867"
    assert {one["row"] for one in rows if one["item"] == "table-2"} == {
        f"moco-yfcc-b0, linear, {protocol}" for protocol in ("clear-iid", "clear-streaming")
    }
    assert "clip.npz" in " ".join(json.loads((tmp_path / "out" / "table.json").read_text())["items"][2]["because"])


@pytest.mark.proof("paper")
def test_near_future_quick(tmp_path: Path) -> None:
    orders(tmp_path / "data" / "cglm")
    items = "figure-2,figure-4,figure-6,figure-12"
    rows = quick("near-future", tmp_path, "--only", items)
    assert {one["item"] for one in rows} == set(items.split(","))
    cosine = [one for one in rows if one["item"] == "figure-6" and one["learner"].startswith("cosine-fc")]
    assert {one["score"]: one["paper"] for one in cosine if one["row"] == "cglm"} == {
        "near_future": "0.38", "retention": "0.77"
    }  # fmt: skip


@pytest.mark.proof("paper")
@pytest.mark.shared(twin="tests/pipelines/test_reproduce.py::test_ocrr_quick")
def test_each_paper_on_published_data(shared: Path, tmp_path: Path) -> None:
    script = Path(__file__).resolve().parents[2] / "studies" / "reproduction.py"
    words = ("--data", str(shared), "--out", str(tmp_path), "--quick")
    done = subprocess.run([sys.executable, str(script), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    items = [json.loads(line) for line in done.stdout.splitlines()]
    assert ({item["paper"] for item in items}, min(item["rows"] for item in items) > 0) == (set(PAPERS), True)


class TestBadInput:
    """One sentence, and no work before it."""

    def told(self, *words: Any) -> str:
        done = reproduced(*words)
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        return str(done.stderr)

    def test_an_unknown_item_and_an_empty_folder(self, tmp_path: Path) -> None:
        out = ("--data", tmp_path, "--quick", "--out", tmp_path / "out")
        assert "--only is 'table-3'. Did you mean" in self.told("seq-to-final", "--only", "table-3", *out)
        said = self.told("seq-to-final", "--only", "table-12", *out)
        assert f"{tmp_path} has nothing for table-12: {tmp_path / 'cifar100'} (CIFAR-100" in said

    def test_a_folder_of_another_layout(self, tmp_path: Path) -> None:
        (tmp_path / "cifar10").mkdir()
        (tmp_path / "cifar10" / "readme.txt").write_text("later")
        said = self.told("seq-to-final", "--data", tmp_path, "--only", "table-15", "--quick", "--out", tmp_path / "out")
        assert f"{tmp_path / 'cifar10'} has no known dataset format." in said

    def test_data_too_few_for_one_stream_leave_the_others(self, tmp_path: Path) -> None:
        images(tmp_path / "cifar10", 10, 50)
        images(tmp_path / "cifar100", 100, 4, coarse=True)
        out = ("seq-to-final", "--data", tmp_path, "--quick", "--out", tmp_path / "out")
        refused = reproduced(*out, "--only", "table-12")
        assert (refused.returncode, "the step needs" in refused.stderr) == (1, True)
        done = reproduced(*out, "--only", "table-7,table-12")
        assert done.returncode == 0, done.stderr
        item = json.loads((tmp_path / "out" / "table.json").read_text())["items"][1]
        assert (item["rows"], "sss, conv-1 was skipped: " in item["because"][-1]) == (0, True)

    def test_order_files_without_images(self, tmp_path: Path) -> None:
        orders(tmp_path / "cglm")
        shutil.rmtree(tmp_path / "cglm" / "images")
        said = self.told("near-future", "--data", tmp_path, "--only", "figure-7", "--quick", "--out", tmp_path / "out")
        assert f"{tmp_path / 'cglm'} has order files and no folder images." in said

    def test_vectors_without_labels(self, tmp_path: Path) -> None:
        (tmp_path / "intent").mkdir()
        np.savez(tmp_path / "intent" / "banking77_minilm.npz", train_x=np.ones((2, 2)))
        done = reproduced("ocrr", "--data", tmp_path, "--only", "table-1", "--quick", "--out", tmp_path / "out")
        assert "banking77_minilm.npz has no array train_y." in done.stderr
        assert "Traceback" not in done.stderr
