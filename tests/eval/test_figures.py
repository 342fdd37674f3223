"""Charts: well-formed, legible, and told in words too; the near-future page holds the paper's figures."""

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from support.console import answer
from support.helpers import correlated, drifting

from driftline.eval.plotting.cells import BINS, OF_BUCKETS, cells, timeline
from driftline.eval.plotting.charts import INCHES, lines, save_kinds, scatter, slopes
from driftline.eval.plotting.frames import GAP, GREY
from driftline.eval.protocol import Result, Score
from driftline.eval.protocols.clear import Iid
from driftline.eval.reporting.document import shown
from driftline.eval.reporting.pages import linked
from driftline.eval.reporting.protocols.ocrr import front
from driftline.eval.reporting.report import results_of, write
from driftline.eval.rows import Row
from driftline.eval.run import evaluate
from driftline.eval.scoring.aggregate import _mean_curve
from driftline.eval.scoring.ranking import parts
from driftline.stream_builder.stream import Stream

MANY = {f"learner {i}": ([0, 1, 2], [0.5, 0.5, 0.5 + i / 1000]) for i in range(40)}


def test_names_stand_apart_and_inside_however_many_there_are() -> None:
    svg = lines(MANY, "samples seen").svg
    height = float(ElementTree.fromstring(svg).attrib["viewBox"].split()[-1])
    spots = sorted(float(y) for y in re.findall(r"class='name' data-n='learner [^>]*translate\(\S+ (\S+)\)", svg))
    assert len(spots) == 40
    assert min(b - a for a, b in pairwise(spots)) >= GAP - 0.11
    assert spots[0] > 0
    assert spots[-1] <= height


def test_a_chart_says_in_words_what_it_shows() -> None:
    chart = slopes({"er": (0.9, 0.5), "blind": (0.7, 0.1)}, ("online", "near future"))
    label = ElementTree.fromstring(chart.svg).attrib
    assert label["role"] == "img"
    assert "er 90.0 to 50.0; blind 70.0 to 10.0" in label["aria-label"]


def test_points_lie_where_their_values_are() -> None:
    svg = lines({"a": ([0, 10], [0.0, 1.0])}, "x").svg
    (path,) = re.findall(r"<polyline points='([^']*)'", svg)
    (x0, y0), (x1, y1) = (tuple(map(float, p.split(","))) for p in path.split())
    assert x0 < x1
    assert y0 > y1


@pytest.mark.parametrize("series", [{}, {"a": ([], [])}, {"a": ([5], [0.0])}])
def test_little_to_show_is_no_trouble(series: dict[str, tuple[list[float], list[float]]]) -> None:
    ElementTree.fromstring(lines(series, "x").svg)


def test_the_near_future_page_has_the_papers_figures(tmp_path: Path) -> None:
    learners = ["blind", "fc-only(sampler=fifo)", "fc-only(sampler=uniform)", "acm"]
    settings = {"shift": 64, "also": "8+256"}
    found = evaluate(correlated(), "near-future", learners, seeds=[0, 1], settings=settings, out=tmp_path / "runs")
    page = write(results_of([tmp_path / "runs"]), tmp_path / "out").read_text()
    for title in ("The blind classifier", "Samplers", "Accuracy over shifts", "Retention by period"):
        assert f"<h3>{title}</h3>" in page, title
    assert "At S = 64, labels alone " in page
    assert "Batches of 64." in page
    for r in found["results"]:
        shown_scores = (f"{100 * r['scores'][k]['mean']:.1f}" for k in ("online", "near_future", "retention"))
        assert " → ".join(shown_scores) in page
    for svg in re.findall(r"<svg.*?</svg>", page, re.S):
        ElementTree.fromstring(svg)


ENDS = {  # title of a chart → the score of each row at which its line ends, or its only point is
    "near-future": {
        "Near-future accuracy along the stream": "near_future", "Online accuracy along the stream": "online",
        "Retention": "retention", "Cost against accuracy": "near_future",
    },
    "ocrr": {
        "Recovery": "novel", "Retention during recovery": "original", "Cost against accuracy": "worst",
    },
}  # fmt: skip


@pytest.mark.parametrize("protocol", ENDS)
def test_every_row_is_a_line_that_ends_at_its_score(protocol: str, tmp_path: Path) -> None:
    """Three rates of one learner are three lines; seeds whose streams of corrections differ in length count alike."""
    if protocol == "near-future":
        stream, settings = correlated(), {"shift": 64}
    else:
        stream, settings = drifting(steps=1, classes=8, n=400, noise=1.5), {"held_out": 2, "every": 20}
    learners = ["finetune", "nearest-mean"] if protocol == "ocrr" else ["fc-only", "majority"]
    for lr in (0.1, 1.0, 10.0):
        evaluate(stream, protocol, learners, [0, 1, 2], settings | {"lr": lr}, out=tmp_path)
    (document,) = linked(results_of([tmp_path]))
    (part,) = parts(document)
    full = shown(part, None)
    names = {r["label"] for r in full["results"]}
    assert len(names) == len(document["results"]) == 4, "three rates and one without"
    figures = {figure.title: figure.picture for figure in [*full["figures"], full["cost"]]}
    for title, score in ENDS[protocol].items():
        ends = {row[0]: row[2] for row in figures[title].rows}
        assert ends == {r["label"]: pytest.approx(100 * r["scores"][score]["mean"], abs=0.006) for r in part["results"]}


def test_curves_of_several_lengths_end_at_the_mean_of_their_ends() -> None:
    """A seed with fewer corrections keeps its last accuracy."""
    long, short = {"at": [0, 10, 20], "value": [0.0, 0.5, 0.9]}, {"at": [0, 6], "value": [0.1, 0.7]}
    assert _mean_curve([long, short]) == {"at": [0, 8, 13], "value": pytest.approx([0.05, 0.6, 0.8])}
    assert _mean_curve([long, {"at": [], "value": []}]) == {"at": [], "value": []}


class Counting(Iid):
    """A protocol of somebody else: a count, and a curve."""

    scores = (Score("asked", "labels asked", False, "labels"), Score("right", "right"))
    primary = "asked"

    def score(self, rows: Sequence[Row], steps: int) -> Result:
        tests = [row for row in rows if row.learned_to >= 0]
        shares = np.cumsum([row.n_correct for row in tests]) / np.cumsum([row.n for row in tests])
        asked = np.cumsum([row.n for row in tests]).tolist()
        curve = {
            "at": list(range(len(tests))),
            "value": asked,
            "right": shares.tolist(),
            "first": shares[:1].tolist() * len(tests),
        }
        return Result({"asked": float(asked[-1]), "right": float(shares[-1])}, curve=curve)


def test_the_curve_of_a_strangers_protocol_is_drawn_and_its_counts_are_counts(tmp_path: Path) -> None:
    result = evaluate(drifting(steps=3), Counting(), ["nearest-mean", "majority"])
    page = write([result], tmp_path).read_text()
    (part,) = parts(linked([result])[0])
    asked, right, first = shown(part, None)["figures"]
    for figure, score, what in ((asked, "asked", "labels"), (right, "right", "per cent")):
        assert figure.picture.columns[2] == what
        ends = {row[0]: row[2] for row in figure.picture.rows}
        factor = 1 if what == "labels" else 100
        expected = {
            r["label"]: factor * r["scores"][score]["mean"] for r in result["results"] for r["label"] in [r["learner"]]
        }
        assert ends == {name: pytest.approx(value, abs=0.01) for name, value in expected.items()}
        assert "not the end" not in figure.caption
    assert "The score first is not the end of its curve." in first.caption
    number = f"{result['results'][0]['scores']['asked']['mean']:.0f}"
    assert f">{number} <" in page
    assert f"{number}00" not in page


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=12))
def test_the_front_is_what_nobody_beats(pairs: list[tuple[int, int]]) -> None:
    places = {str(i): (x / 10, y / 10) for i, (x, y) in enumerate(pairs)}
    found = front(places)
    assert found
    for name, (x, y) in places.items():
        beaten = any(p >= x and q >= y and (p, q) != (x, y) for p, q in places.values())
        assert (name in found) != beaten


def test_the_timeline_shows_every_photo_in_the_shade_of_its_bucket() -> None:
    uploaded = np.arange(0, 10**8, 10**5)
    bucket = np.arange(1000) // 250
    bucket[:100] = -1
    picture = timeline(uploaded, bucket, {i: f"bucket {i}" for i in range(4)})
    photos = {name: sum(row[2] for row in picture.rows if row[0] == name) for name, _, _ in picture.rows}
    assert photos == {"none": 100, "bucket 0": 150, "bucket 1": 250, "bucket 2": 250, "bucket 3": 250}
    bars = re.findall(r"<rect x='([\d.]+)' [^>]*height='([\d.]+)' fill='(#\w+)'", picture.svg)
    fills = [fill for _, fill in sorted((float(x), fill) for x, _, fill in bars)]
    assert fills[0] == GREY
    assert {*fills[10:14], fills[-1]} == set(OF_BUCKETS)
    most = int(np.histogram(uploaded, BINS)[0].max())
    height = sum(float(height) for _, height, _ in bars) / len(uploaded)
    assert height * most == pytest.approx(116, rel=0.01), "all photos are drawn, each as high"
    assert re.findall(r">(bucket \d)</text>", picture.svg) == [f"bucket {i}" for i in range(4)]
    ElementTree.fromstring(timeline(uploaded[:0], bucket[:0], {}).svg)


def test_a_reports_charts_are_saved_with_legend_names_bands_and_dates(tmp_path: Path) -> None:
    runs, out, stream = tmp_path / "runs", tmp_path / "out", yearly(drifting(steps=4))
    evaluate(stream, "clear-iid", ["nearest-mean", "finetune"], seeds=[0, 1], out=runs)
    saved = answer("report", str(runs), "--out", str(tmp_path / "page"), "--figures", str(out), "--json")["figures"]
    assert sorted(map(str, out.iterdir())) == sorted(saved)
    assert {Path(one).suffix for one in saved} == {".svg", ".pdf", ".png"}
    (svg,) = (Path(one).read_text() for one in saved if one.endswith("accuracy-by-age.svg"))
    assert svg.count("data-n='nearest-mean'") == svg.count("data-n='finetune'") == 2, "a line and its name"
    assert svg.count("<polygon") == 2
    (matrix,) = (Path(one).read_text() for one in saved if one.endswith("matrix-finetune.svg"))
    assert all(matrix.count(f">{year}</text>") == 2 for year in range(2004, 2008)), "of rows and columns"


def yearly(stream: Stream) -> Stream:
    """With a step a year, from 2004 on."""
    start, year = 34 * 31_556_952 + 9_000_000, 31_556_952
    steps = [
        replace(s, splits={n: replace(p, time=p.time * 0 + start + s.index * year) for n, p in s.splits.items()})
        for s in stream.steps
    ]
    return replace(stream, steps=[replace(s, name=str(s.index + 1)) for s in steps])


TWO = {"a": ([0, 1, 2], [0.1, 0.2, 0.3]), "b": ([0, 1, 2], [0.3, 0.4, 0.5])}
DRAWN = {
    "lines": lines(TWO, "age", bands={"a": ([0, 0.1, 0.2], [0.2, 0.3, 0.4])}, y_name="loss"),
    "many": lines(MANY, "samples seen"),
    "slopes": slopes({"a": (0.1, 0.2), "b": (0.3, 0.1)}, ("online", "near future")),
    "scatter": scatter({f"learner {i}": (10.0 + i, 0.5) for i in range(25)}, ["learner 1"], "bytes", "right"),
    "cells": cells({"a": {"cup": [0.1, None], "car": [0.9, 1.0]}}, "12", (0, 1), "c", ("class", "age")),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_chart_on_paper_is_no_wider_than_its_text_and_its_letters_have_7_to_9_pt(name: str, tmp_path: Path) -> None:
    svg, pdf, png = (path.read_bytes() for path in save_kinds(DRAWN[name], tmp_path, name))
    root = ElementTree.fromstring(svg.decode())
    inches = float(root.attrib["width"].removesuffix("in"))
    assert inches == INCHES if name != "cells" else inches < INCHES
    assert float(root.attrib["height"].removesuffix("in")) < 9.5, "a page of paper"
    point = 72 * inches / float(root.attrib["viewBox"].split()[2])
    sizes = [float(one.attrib["font-size"]) * point for one in root.iter() if "font-size" in one.attrib]
    assert 6.95 < min(sizes) <= max(sizes) < 9
    assert b"/FontFile" in pdf
    (box,) = re.findall(rb"/MediaBox \[0 0 ([\d.]+) [\d.]+\]", pdf)
    assert float(box) == pytest.approx(72 * inches, abs=0.1)
    with Image.open(io.BytesIO(png)) as image:
        assert image.width == pytest.approx(300 * inches, abs=1)
        assert image.info["dpi"][0] == pytest.approx(300, abs=1)


def test_saved_charts_name_the_classes_of_a_stream_that_is_at_hand(tmp_path: Path) -> None:
    stream = drifting(steps=3, classes=3)
    stream = Stream("named", stream.steps, ["cup", "car", "cat"]).save(tmp_path / "s")
    evaluate(stream, "clear-iid", ["nearest-mean"], out=tmp_path / "runs")
    titles = {}
    for more in ([], ["--stream", str(tmp_path / "s")]):
        out = tmp_path / f"out{len(more)}"
        places = (str(tmp_path / "runs"), "--out", str(tmp_path / "page"), "--figures", str(out))
        saved = answer("report", *places, "--json", *more)["figures"]
        (svg,) = (Path(one).read_text() for one in saved if one.endswith("accuracy-of-each-class.svg"))
        titles[len(more)] = set(re.findall(r"text-anchor='end' font-size='11' fill='currentColor'>([^<]*)<", svg))
    assert titles == {0: {"0", "1", "2"}, 2: {"cup", "car", "cat"}}
