"""The charts of pages, as files."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from driftline.curate.core.errors import IncompatibleStream, UnknownName, available, did_you_mean
from driftline.eval.plotting import files
from driftline.eval.plotting.cells import cells
from driftline.eval.plotting.charts import Figure
from driftline.eval.protocol import Document
from driftline.eval.reporting import stream_page
from driftline.eval.reporting.document import shown
from driftline.eval.reporting.pages import linked
from driftline.eval.scoring.ranking import parts
from driftline.stream_builder.stream import Stream

Chart = tuple[str, str, Figure]  # title in letters of a file's name, the file's name, chart


def save_figures(charts: Sequence[Chart], out: Path) -> list[Path]:
    """Write charts into `out` as SVG, PDF and PNG; returns the paths. Raises
    IncompatibleStream if there is no chart."""
    chosen = _chosen(charts, "")
    return [path for _, stem, figure in chosen for path in files.save_kinds(figure.picture, out, stem)]


def chart(documents: Sequence[Document], name: str = "", streams: Sequence[Stream] = ()) -> Figure:
    """The first chart, or the one of this title. Raises IncompatibleStream, and UnknownName if none has the name."""
    return _chosen(list(charts_of(documents, streams)), name)[0][2]


def _chosen(charts: Sequence[Chart], name: str) -> list[Chart]:
    if not charts:
        raise IncompatibleStream("These results have no chart.", "", "Evaluate two learners, or on several steps.")
    names = list(dict.fromkeys(title for title, _, _ in charts))
    if name and name not in names:
        raise UnknownName(f"There is no chart {name!r}.", did_you_mean(name, names), available(name, names))
    return [one for one in charts if not name or one[0] == name]


def charts_of(documents: Sequence[Document], streams: Sequence[Stream] = ()) -> Iterator[Chart]:
    """The charts of all pages of a report."""
    streams_of = {stream.sha256: stream for stream in streams}
    full_of_streams = {}
    for part in (part for document in linked(documents) for part in parts(document)):
        stream = part["stream"]
        full_of_streams[stream["sha256"]] = stream["page"]
        full = shown(part, streams_of.get(stream["sha256"]))
        first = [full["first"], full["second"], full["placebo"], full["by_class"], full["cost"]]
        for figure in [*first, *full["figures"], *_matrices(full)]:
            if figure is not None and figure.picture.columns:
                title = letters(figure.title.removesuffix(f", {stream['name']}").lower())
                place = f"{_place(part['page'])}-{_place(stream['page'])}"
                place += f"-{letters(part['setting'])}" if part["setting"] else ""
                yield title, f"{place}-{title}", figure
    for digest, page in full_of_streams.items():
        for figure in stream_page.figures(streams_of[digest]) if digest in streams_of else ():
            yield letters(figure.title.lower()), f"{_place(page)}-{letters(figure.title.lower())}", figure


def _matrices(full: dict[str, Any]) -> Iterator[Figure]:
    """The accuracy matrix of each learner."""
    for r in full["results"]:
        if r["matrix"]:
            rows = dict(zip(full["names"], r["matrix"], strict=False))
            label, heads = f"Accuracy of {r['label']}", ("trained to", "tested on")
            picture = cells({r["label"]: rows}, full["names"], full["span"], label, heads, framed=True)
            yield Figure(f"Matrix {r['label']}", full["texts"].matrix_note, picture)


def letters(text: str) -> str:
    """A text in letters of a file's name.

    >>> letters("Who loses: accuracy of each class")
    'Who-loses-accuracy-of-each-class'
    """
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")


def _place(page: str) -> str:
    """What a page is about.

    >>> _place("protocol-clear-iid.html")
    'clear-iid'
    """
    return page.partition("-")[2].removesuffix(".html")
