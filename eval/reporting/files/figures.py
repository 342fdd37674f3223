"""The charts of a report's pages, as files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from driftline.curate.core.errors import IncompatibleStream, UnknownName, available, did_you_mean
from driftline.eval.plotting import files
from driftline.eval.plotting.charts import Figure
from driftline.eval.protocol import Document
from driftline.eval.reporting.document import shown
from driftline.eval.reporting.overview import mean_ranks
from driftline.eval.reporting.pages import linked
from driftline.eval.scoring.ranking import parts
from driftline.stream_builder.stream import Stream


def save_figures(
    documents: Sequence[Document], out: Path, titles: Sequence[str] = (), streams: Sequence[Stream] = ()
) -> list[Path]:
    """Write each chart of the pages into `out` as SVG, PDF and PNG, named by protocol, stream and title; returns the
    paths. documents: of `results_of`. titles: only these charts, as in "cost-against-accuracy".

    Raises IncompatibleStream if there is no chart, UnknownName if none has the name."""
    return [
        files.save(figure.picture, out / f"{stem}{kind}")
        for stem, figure in _named(documents, titles, streams)
        for kind in files.KINDS
    ]


def chart(documents: Sequence[Document], name: str = "", streams: Sequence[Stream] = ()) -> tuple[str, str]:
    """Title and SVG file of the first chart. Raises as `save_figures`."""
    _, figure = _named(documents, [name] if name else [], streams)[0]
    return figure.title, files.standalone(figure.picture.svg)


def _named(documents: Sequence[Document], titles: Sequence[str], streams: Sequence[Stream]) -> list[tuple[str, Figure]]:
    """(file's name, chart) of those of some titles, or of all. Raises as `save_figures`."""
    charts = list(_charts(documents, {stream.sha256: stream for stream in streams}))
    if not charts:
        raise IncompatibleStream("These results have no chart.", "", "Evaluate two learners, or on several steps.")
    names = list(dict.fromkeys(title for title, _, _ in charts))
    for name in titles:
        if name not in names:
            every = [*names, *files.OF_NETWORKS]
            raise UnknownName(f"There is no chart {name!r}.", did_you_mean(name, every), available(name, every))
    return [(stem, figure) for title, stem, figure in charts if not titles or title in titles]


def _charts(documents: Sequence[Document], streams: dict[str, Stream]) -> Iterator[tuple[str, str, Figure]]:
    """(title in letters of a file's name, file's name, chart) of all pages."""
    if figure := mean_ranks(documents):
        yield "mean-ranks", "mean-ranks", figure
    for part in (part for document in linked(documents) for part in parts(document)):
        stream = part["stream"]
        full = shown(part, streams.get(stream["sha256"]))
        first = [full["curves"], full["by_class"], (full["calibrated"] or [None])[0], full["cost"]]
        for figure in [*first, *full["figures"]]:
            if figure is not None and figure.picture.columns:
                plain = figure.title.removesuffix(f", {stream['name']}").lower()
                title = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
                pages = (part["page"], stream["page"])
                place = "-".join(page.partition("-")[2].removesuffix(".html") for page in pages)
                place += re.sub(r"[^A-Za-z0-9]+", "-", f"-{part['setting']}") if part["setting"] else ""
                yield title, f"{place}-{title}", figure
