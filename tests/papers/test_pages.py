"""What the pages of the papers say in words follows from the tables beside the words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scipy.stats import spearmanr
from support.helpers import benchmark, correlated

from driftline.eval.run import evaluate

DOCS = Path(__file__).resolve().parents[2] / "docs" / "papers"
AS_FINETUNE = ["t3a"]  # it adapts to batches of test samples, which only `adaptation` gives
PULLED = ["ewc", "si", "lwf"]  # refused where a batch pays for one update: their pull is zero in it
NEED_MORE = ["text-probe", "wise-ft", "self-training"]  # texts of classes, or unlabelled samples
Table = dict[str, list[str]]


def page(name: str) -> str:
    """Its text on one line for each paragraph or row."""
    return re.sub(r"\n *(?=[^ \n|#-])", " ", (DOCS / name).read_text(encoding="utf-8"))


def table(text: str, head: str) -> Table:
    """First cell → other cells of the table whose head begins like this; rows of one cell divide it and are left
    out."""
    lines = text[text.index(f"| {head}") :].partition("\n\n")[0].splitlines()
    rows = [[cell.strip(" `*") for cell in line.strip("| ").split(" | ")] for line in lines[2:]]
    return {name: cells for name, *cells in rows if any(cells)}


def numbers(cells: list[str]) -> list[float]:
    return [float(cell.partition(" ±")[0]) for cell in cells]


@pytest.mark.parametrize(("name", "protocol"), [("near_future.md", "near-future"), ("clear.md", "clear-iid")])
def test_no_default_is_further_below_the_best_of_its_grid_than_the_page_says(name: str, protocol: str) -> None:
    text = page(name)
    rows = table(text, "learner | photo world | USDA | Banking77")
    pairs = [[float(v) for v in cell.split(" / ")] for cells in rows.values() for cell in cells if cell != "–"]
    said = re.search(r"No default is more than ([\d.]+) points below", text)
    assert said
    assert float(said[1]) == pytest.approx(max(best - default for default, best in pairs))
    assert float(said[1]) < 10
    others = [*AS_FINETUNE, *NEED_MORE, *(PULLED if protocol == "near-future" else ())]
    asked = [n for n in benchmark("defaults").trained(protocol) if n not in others]
    assert set(rows) == set(asked), "every learner with a default of its own"


def test_a_learner_that_only_adapts_is_finetune_where_there_is_nothing_to_adapt_to() -> None:
    names = ["finetune", *AS_FINETUNE]
    settings = {"shift": 50, "batch": 20, "prefix": 0, "lr": 3.0}
    found = evaluate(correlated(n=400), "near-future", names, settings=settings)["results"]
    assert [result["learner"] for result in found] == names
    assert all(result["scores"] == found[0]["scores"] for result in found)


class TestUsda:
    def test_what_is_near_in_time_is_easier_for_all(self) -> None:
        rows = table(page("usda.md"), "learner | in-domain | next-domain | accuracy | backward | forward")
        for learner, cells in rows.items():
            in_domain, next_domain, _, _, forward = numbers(cells)
            assert in_domain > next_domain > forward, learner

    def test_its_comparisons_have_the_tables_numbers(self) -> None:
        text = page("usda.md")
        rows = table(text, "learner | in-domain | next-domain | accuracy | backward | forward")
        known = {cell.partition(" ±")[0] for cells in rows.values() for cell in cells}
        orders = table(text, "published | on this CLIP's vectors")
        for published, (ours, *_) in orders.items():
            assert set(re.findall(r"\b\d\d\.\d\b", ours)) <= known, published


class TestThePast:
    SCRATCH = "learner | in-domain, from scratch | on past features"
    AGED = "learner | in-domain | next-domain | next-domain, `clear-streaming`"

    def test_the_past_helps_all_learners_by_what_the_page_says_and_one_seed_is_said(self) -> None:
        text = page("usda_past.md")
        rows = {name: numbers(cells) for name, cells in table(text, self.SCRATCH).items()}
        gains = [[b - a, d - c] for a, b, c, d in rows.values()]
        said = re.search(
            r"for all (\d+) learners\*\*, in-domain by (\d+) to (\d+) points and on the next bucket by (\d+) to (\d+)",
            text,
        )
        assert said
        in_domain, next_domain = zip(*gains, strict=True)
        ends = [min(in_domain), max(in_domain), min(next_domain), max(next_domain)]
        assert [int(number) for number in said.groups()] == [len(rows), *(round(end) for end in ends)]
        assert min(ends) > 0
        assert "in bfloat16, one seed" in text
        drops = {name: b - d for name, (_, b, _, d) in rows.items()}
        assert "by 1.6 points (`joint`, which has seen all steps) to 13.5 (`scratch`)" in text
        assert (round(drops["joint"], 1), round(drops["scratch"], 1)) == (1.6, 13.5)
        assert (min(drops, key=drops.__getitem__), max(drops, key=drops.__getitem__)) == ("joint", "scratch")
        aged = table(text, self.AGED)
        assert {name: numbers(aged[name][:2]) for name in rows} == {n: [b, d] for n, (_, b, _, d) in rows.items()}

    def test_spearmans_correlation_is_that_of_its_table(self) -> None:
        text = page("usda_past.md")
        near, kept = zip(*(numbers(c) for c in table(text, "learner | near-future | retention").values()), strict=True)
        said = re.search(r"order of (\w+) online learners \(Spearman ([\d.]+), one seed", text)
        assert said
        assert (said[1], len(near)) == ("eight", 8)
        assert float(said[2]) == pytest.approx(spearmanr(near, kept).statistic, abs=0.02)  # ties in print
