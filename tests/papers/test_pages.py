"""What the pages of the papers say in words follows from the tables beside the words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.helpers import benchmark

DOCS = Path(__file__).resolve().parents[2] / "docs"
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


@pytest.mark.parametrize("protocol", ["clear-iid", "near-future"])
def test_no_default_is_further_below_the_best_of_its_grid_than_the_page_says(protocol: str) -> None:
    text = page("project/performance.md").partition(f"Under `{protocol}` no default is more than ")[2]
    rows = table(text, "learner | photo world | USDA | Banking77")
    gaps = {
        name: max(round(best - default, 1) for default, best in (map(float, cell.split(" / ")) for cell in cells))
        for name, cells in rows.items()
    }
    points = re.match(r"([\d.]+) points below", text)
    assert points
    assert float(points[1]) == pytest.approx(max(gaps.values()))
    assert float(points[1]) < 10
    assert min(gaps.values()) >= 2, "rows that differ"
    others = [*NEED_MORE, *(PULLED if protocol == "near-future" else ())]
    assert set(rows) <= set(benchmark("defaults").trained(protocol)) - set(others)


class TestUsda:
    def test_what_is_near_in_time_is_easier_for_all(self) -> None:
        for learner, cells in table(page("studies/usda.md"), "learner | in-domain | next-domain | forward").items():
            in_domain, next_domain, forward = numbers(cells)
            assert in_domain > next_domain > forward, learner


class TestThePast:
    SCRATCH = "learner | in-domain, from scratch | on past features"

    def test_the_past_helps_all_learners_by_what_the_page_says_and_one_seed_is_said(self) -> None:
        text = page("studies/usda_past.md")
        rows = {name: numbers(cells[:4]) for name, cells in table(text, self.SCRATCH).items()}
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
