"""The pages of a report beside its first: one for each protocol and stream. And the charts of all pages, as files."""

import hashlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from driftline.curate.core.errors import IncompatibleStream, UnknownName, available, did_you_mean
from driftline.eval.plotting import files
from driftline.eval.plotting.cells import cells
from driftline.eval.plotting.charts import Figure, Section
from driftline.eval.protocol import PROTOCOLS, Document, primary_of
from driftline.eval.reporting import stream_page
from driftline.eval.reporting.document import shown
from driftline.eval.reporting.stream_page import page as page_of_stream
from driftline.eval.reporting.text import value_text
from driftline.eval.scoring import ranking
from driftline.eval.scoring.ranking import comparable, differing, labels, mean_of, parts, rival
from driftline.stream_builder.stream import Stream

Documents = Sequence[Document]
Chart = tuple[str, str, Figure]  # title in letters of a file's name, the file's name, chart


def slug(kind: str, name: str, suffix: str = "") -> str:
    """A file's name. suffix: distinguishes two of one name.

    >>> slug("protocol", "clear-iid"), slug("stream", "CIFAR / R", "5fe1")
    ('protocol-clear-iid.html', 'stream-CIFAR-R-5fe1.html')
    """
    plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:60]
    if plain.replace("-", "") != name.replace("-", "") and not suffix:
        suffix = hashlib.sha256(name.encode()).hexdigest()[:6]  # two names may differ only in what was replaced
    return "-".join(part for part in (kind, plain, suffix) if part) + ".html"


def linked(documents: Documents) -> list[dict[str, Any]]:
    """Documents whose streams name their pages, and whose results have their label."""
    full = []
    for d in documents:
        aged = d["ageing"]["results"] if d.get("ageing") else [None] * len(d["results"])
        cadences = d.get("retrain_every") or [[]] * len(d["results"])
        of_results = zip(d["results"], aged, cadences, labels(d["results"]), strict=True)
        results = [{**r, "aged": age, "cadences": every, "label": label} for r, age, every, label in of_results]
        suffix = hashlib.sha256(d["stream"]["sha256"].encode()).hexdigest()[:6]  # two streams may have one name
        stream = {**d["stream"], "page": slug("stream", d["stream"]["name"], suffix)}
        full.append({**d, "stream": stream, "page": slug("protocol", d["protocol"]), "results": results})
    return full


def contents(documents: Documents) -> dict[str, list[tuple[str, str]]]:
    """Kind of page → (name, file) of each."""
    protocols = dict.fromkeys((d["protocol"], d["page"]) for d in documents)
    streams = dict.fromkeys((d["stream"]["name"], d["stream"]["page"]) for d in documents)
    return {"Protocols": list(protocols), "Streams": list(streams)}


def pages(
    environment: Any,
    documents: Documents,
    plain: Documents,
    title: str,
    streams: Mapping[str, Stream],
    across: Mapping[str, Section],
    single: bool,
) -> dict[str, str]:
    """File → HTML. documents: as the template of a protocol takes them. plain: with links only. streams: by hash, those
    whose folders are known. across: protocol → a section over all of its streams. single: results are on index.html."""

    def page(kind: str, name: str, content: Mapping[str, Any]) -> str:
        template = environment.get_template(f"{kind}.html.j2")
        return str(template.render(title=name, up=title, notice="", **content))

    files: dict[str, str] = {}
    for name in dict.fromkeys(d["protocol"] for d in documents):
        own, after = [d for d in documents if d["protocol"] == name], [across[name]] if name in across else []
        about = inspect.cleandoc(PROTOCOLS[name].__doc__ or "") if name in PROTOCOLS else ""
        text = [" ".join(part.split()) for part in about.split("\n\n") if part]
        content = {"text": text, "documents": own, "after": after, "single": single}
        files[slug("protocol", name)] = page("protocol", name, content)
    for about in {d["stream"]["page"]: d["stream"] for d in plain}.values():
        files[about["page"]] = page("stream", about["name"], _stream(about, plain, streams))
    return files


def _stream(about: Mapping[str, Any], documents: Documents, streams: Mapping[str, Stream]) -> dict[str, Any]:
    stream = streams.get(about["sha256"])
    protocols = []
    for d in documents:
        if d["stream"]["page"] != about["page"]:
            continue
        for group, settings in zip(comparable(d), differing(d), strict=True):
            score = primary_of(d)
            bests = ranking.best(score, (r for r in group if rival(r)))
            best = next(iter(bests), {"label": "–", "scores": {}})
            text = value_text(score, mean_of(score, best))
            scored = {"by": score.label, "best": best["label"], "score": text, "learners": len(group)}
            shown = ", ".join(part for part in (d["protocol"], settings) if part)
            protocols.append({"protocol": shown, "page": d["page"], **scored})
    known: dict[str, Any] = {"summary": "", "checks": [], "sections": [], "facts": {}}
    known |= {} if stream is None else page_of_stream(stream)
    return known | {"facts": {"SHA-256": about["sha256"]} | known["facts"], "protocols": protocols}


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
