"""What a paper's file lists: tables and figures, each with the evaluations that make it and the values in print; and
the table and its page: the paper's value, ours, and what may be said of them."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import hypot
from pathlib import Path
from typing import Any, Literal

from driftline.curate.core.atomic_io import write_bytes, write_json
from driftline.eval.plotting.charts import Section
from driftline.eval.protocol import PROTOCOLS
from driftline.eval.reporting.markup import environment, render, table

Values = Mapping[str, Mapping[str, float]]  # learner → score → value in print, shares as 0 … 1
Kind = Literal["scores", "means", "distances", "parameters", "scale", "figure"]


@dataclass(frozen=True)
class Need:
    """A file or folder of --data."""

    path: str
    """below --data"""
    what: str
    source: str


@dataclass(frozen=True)
class Cell:
    """Learners on one stream, and what the paper printed for them."""

    stream: tuple[str, ...]
    """a function of `streams`, and its words; (): none"""
    learners: Sequence[str]
    """as --learners takes them"""
    printed: Values = field(default_factory=dict)
    """{} where the paper only draws"""
    row: str = ""
    """what the table calls it"""
    group: str = ""
    """cells of one group are one row of an item of means"""
    protocol: str = "seq-to-final"
    preset: str = ""
    """settings of the paper"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """further settings; a `Need` stands for its path"""
    quick: Mapping[str, Any] | None = None
    """with --quick: settings in place of `settings`, and a preset in place of `preset`; None: the cell is left out"""
    seeds: Sequence[int] = (0,)
    """as many as the paper has"""
    lacks: str = ""
    """what is not as in the paper"""


@dataclass(frozen=True)
class Item:
    """A table or figure."""

    name: str
    """as --only takes it"""
    title: str
    kind: Kind = "scores"
    """scores and means (over the cells of a group): accuracies; distances of `stream measure`; parameters of networks;
    scale: what an index costs and finds; figure: plots of networks"""
    cells: Sequence[Cell] = ()
    """its evaluations; (): there are none, and `because` says why"""
    core_hours: float = 0.0
    """on CPU cores, estimated; 0: minutes"""
    gpu_hours: float = 0.0
    """on one H200, estimated; 0: minutes"""
    because: str = ""
    """why it has no evaluation, or what is not as in the paper"""
    plots: Sequence[str] = ()
    """of `plotting.finetuning`, for each cell"""
    digits: int = 2
    """digits that the paper prints after the point"""


@dataclass(frozen=True)
class Paper:
    """A paper's tables and figures."""

    title: str
    """and authors"""
    needs: Mapping[str, Need]
    """word of a cell's stream → the file behind it"""
    items: Sequence[Item]
    """in the order of the paper"""
    reduced: str
    """what --quick leaves out, in a sentence"""
    best_of: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """name in print → learners, of which the paper prints the best test"""


Agreement = Literal["within interval", "same order", "differs", "no value in print"]
AGREE = 0.75  # share of the row's other learners that stand on the paper's side of it
HEADS = (
    "",
    "learner",
    "score",
    "paper",
    "ours",
    "95 %",
    "difference",
    "seeds",
    "n",
    "agreement",
    "not as in the paper",
)
ABOUT = (
    "within interval: the printed value lies in the 95 % interval of ours, over seeds and, for the score that ranks, "
    "test samples. same order: it does not, but three of four of the row's other learners that the paper puts clearly "
    "above or below are so in ours."
)


@dataclass(frozen=True)
class Row:
    """One number."""

    item: str
    row: str
    """stream and network"""
    learner: str
    score: str
    ours: float
    low: float
    """lower end of the 95 % interval of ours, over seeds and, for the score that ranks, test samples"""
    high: float
    paper: float | None
    seeds: int
    n: int
    """test samples of a seed"""
    agreement: Agreement = "no value in print"
    because: str = ""
    """what is not as in the paper"""

    def plain(self) -> dict[str, Any]:
        """With the difference."""
        difference = None if self.paper is None else round(self.ours - self.paper, 4)
        return asdict(self) | {"difference": difference}


def scores_of(item: Item, cell: Cell) -> list[str]:
    """The scores that are printed of a cell, else those of the item's other cells; all, if it only draws."""
    cells = [cell] if cell.printed else item.cells
    printed = {score for one in cells for of in one.printed.values() for score in of}
    own = [score.name for score in PROTOCOLS[cell.protocol].scores]
    return [name for name in own if name in printed] or own


def rows_of(item: Item, cell: Cell, document: Mapping[str, Any], best_of: Mapping[str, Sequence[str]]) -> list[Row]:
    """A row for each learner and score of a cell, without its agreement."""
    rows = []
    for result in document["results"]:
        n = sum(result.get("classes", {}).get("n", ()))
        own = result.get("told", {}).get("draws") == "own"
        lacks = ", ".join(filter(None, [cell.lacks, "own samples" if own else ""]))
        for score in scores_of(item, cell):
            if (mean := result["scores"][score]["mean"]) is not None:
                parts = [result.get(name, {}).get(score) or 0.0 for name in ("ci95", "ci95_samples")]
                half = hypot(*parts)
                paper = cell.printed.get(result["learner"], {}).get(score)
                rows.append(Row(item.name, cell.row, result["learner"], score, mean, mean - half, mean + half, paper,
                                len(result["seeds"]), n, because=lacks))  # fmt: skip
    return [_best(row, rows, best_of) for row in rows]


def _best(row: Row, rows: Sequence[Row], best_of: Mapping[str, Sequence[str]]) -> Row:
    """The row, or the best of those of which the paper prints the best, under its name."""
    alike = best_of.get(row.learner, ())
    found = max((other for other in rows if other.learner in alike), key=lambda other: other.ours, default=row)
    why = f"The best test of {', '.join(alike)}, as in the paper."
    return replace(found, learner=row.learner, paper=row.paper, because=why) if alike else row


def means_of(item: str, groups: Mapping[str, Sequence[Row]], counts: Any) -> list[Row]:
    """The means over the cells of each group; interval: the mean of theirs. counts: whether a mean includes a row."""
    means = []
    for group, rows in groups.items():
        for learner in dict.fromkeys(row.learner for row in rows):
            own = [row for row in rows if row.learner == learner and counts(row)]
            if own:
                papers = [row.paper for row in own if row.paper is not None]
                paper = round(sum(papers) / len(papers), 6) if len(papers) == len(own) else None
                ours, low, high = (
                    sum(getattr(row, name) for row in own) / len(own) for name in ("ours", "low", "high")
                )
                name = f"{group}, mean of {len(own)}" if len(own) > 1 else own[0].row
                means.append(Row(item, name, learner, own[0].score, ours, low, high, paper, own[0].seeds, own[0].n,
                                 because=own[0].because))  # fmt: skip
    return means


def judged(rows: Sequence[Row], digits: int) -> list[Row]:
    """With agreements. within interval: the printed value, with its rounding, is in the 95 % interval of ours. same
    order: at least three of four other rows that the paper puts clearly above or below are so in ours."""
    rounding = 0.5 * 10.0**-digits
    groups: dict[tuple[str, str], list[Row]] = {}
    keys = [(row.row.partition(", mean")[0], row.score) for row in rows]
    for key, row in zip(keys, rows, strict=True):
        groups.setdefault(key, []).append(row)
    return [replace(row, agreement=agreement(row, groups[key], rounding)) for key, row in zip(keys, rows, strict=True)]


def agreement(row: Row, others: Sequence[Row], rounding: float) -> Agreement:
    """Of one row. others: of the same stream, network and score."""
    if row.paper is None:
        return "no value in print"
    if row.low - rounding <= row.paper <= row.high + rounding:
        return "within interval"
    clear = [o for o in others if o.paper is not None and abs(o.paper - row.paper) > 2 * rounding + 1e-12]
    same = sum((o.ours - row.ours) * (o.paper - row.paper) > 0 for o in clear if o.paper is not None)
    return "same order" if clear and same >= AGREE * len(clear) else "differs"


def page(document: Mapping[str, Any]) -> str:
    """HTML; figures are linked."""
    sections = []
    for item in document["items"]:
        rows = [row for row in document["rows"] if row["item"] == item["item"]]
        html = table(HEADS, [_line(row) for row in rows]) if rows else render("soft", "No numbers.")
        html += "".join(render("soft", text) for text in item["because"])
        html += "".join(render("link", file) for file in item["files"] if file.endswith(".svg"))
        sections.append(Section(item["item"], f"{item['item']}: {item['title']}", html))
    notice = f"Reduced: {document['reduced']}." if document["reduced"] else ""
    template = environment().get_template("reproduce.html.j2")
    return str(template.render(title=document["title"], up="", notice=notice, about=ABOUT, sections=sections))


def _line(row: Mapping[str, Any]) -> list[Any]:
    paper = "–" if row["paper"] is None else f"{row['paper']:g}"
    difference = "–" if row["difference"] is None else f"{row['difference']:+.3f}".replace("-", "−")
    interval = f"{row['low']:.3f} – {row['high']:.3f}"
    return [row["row"], row["learner"], row["score"], paper, f"{row['ours']:.3f}", interval, difference, row["seeds"],
            row["n"] or "–", row["agreement"], row["because"]]  # fmt: skip


def written(document: Mapping[str, Any], out: Path) -> list[Path]:
    """The table as CSV and JSON, and the page; returns their paths."""
    sink = io.StringIO()
    if document["rows"]:
        lines = csv.DictWriter(sink, list(document["rows"][0]), lineterminator="\n")
        lines.writeheader()
        lines.writerows(document["rows"])
    paths = [out / name for name in ("index.html", "table.csv", "table.json")]
    write_bytes(paths[0], page(document).encode())
    write_bytes(paths[1], sink.getvalue().encode())
    write_json(paths[2], dict(document))
    return paths
