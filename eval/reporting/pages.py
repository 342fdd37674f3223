"""The pages of a report beside its first: one for each protocol, and one for each stream with a summary, three checks,
steps, drift, what labels alone predict. And the charts of all pages, as files."""

import hashlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from driftline.curate.core.errors import DriftlineError, IncompatibleStream, UnknownName, available, did_you_mean
from driftline.curate.foreign.time_cells import span
from driftline.eval.plotting import charts
from driftline.eval.plotting.cells import cells
from driftline.eval.plotting.charts import Figure, Section, lines
from driftline.eval.protocol import PROTOCOLS, Document, primary_of
from driftline.eval.reporting.document import shown
from driftline.eval.reporting.markup import render, table
from driftline.eval.reporting.text import counted, named_steps, value_text
from driftline.eval.scoring import ranking
from driftline.eval.scoring.ranking import comparable, differing, labels, mean_of, parts, rival
from driftline.stream_builder.measures.label_correlation import autocorrelation, blind_curve_of, labels_in_order
from driftline.stream_builder.measures.shift_distance import Drift, drift, sharing
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
    known |= {} if stream is None else page(stream)
    return known | {"facts": {"SHA-256": about["sha256"]} | known["facts"], "protocols": protocols}


def save_figures(every: Sequence[Chart], out: Path) -> list[Path]:
    """Write charts into `out` as SVG, PDF and PNG; returns the paths. Raises IncompatibleStream if there is none."""
    chosen = _chosen(every, "")
    return [path for _, stem, figure in chosen for path in charts.save_kinds(figure.picture, out, stem)]


def chart(documents: Sequence[Document], name: str = "", streams: Sequence[Stream] = ()) -> Figure:
    """The first chart, or the one of this title. Raises IncompatibleStream, and UnknownName if none has the name."""
    return _chosen(list(charts_of(documents, streams)), name)[0][2]


def _chosen(every: Sequence[Chart], name: str) -> list[Chart]:
    if not every:
        raise IncompatibleStream("These results have no chart.", "", "Evaluate two learners, or on several steps.")
    names = list(dict.fromkeys(title for title, _, _ in every))
    if name and name not in names:
        raise UnknownName(f"There is no chart {name!r}.", did_you_mean(name, names), available(name, names))
    return [one for one in every if not name or one[0] == name]


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
        for figure in figures(streams_of[digest]) if digest in streams_of else ():
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


class Check(NamedTuple):
    """What a reader must know before the numbers."""

    what: str
    verdict: str
    because: str


def summary(stream: Stream) -> str:
    """Steps, time, classes and samples in one line."""
    days = [ends for step in stream.steps if (ends := step.days())]
    splits = [split for step in stream.steps for split in step.splits.values()]
    time = [f"{days[0][0]} to {days[-1][1]}"] if days else []
    prior = [f"{len(stream.unlabelled):,} unlabelled before the first"] if stream.unlabelled is not None else []
    shape = f"{' × '.join(map(str, stream.x_shape))} numbers each" if stream.x_shape else "texts"
    steps, classes = counted(len(stream.steps), "step"), f"{len(stream.classes)} classes"
    return ", ".join([steps, *time, classes, f"{sum(map(len, splits)):,} samples ({shape})", *prior]) + "."


def facts(stream: Stream) -> dict[str, str]:
    """What is recorded of the stream's origin."""
    known = (str, int, float)
    return {str(k).replace("_", " "): str(v) for k, v in stream.facts.items() if isinstance(v, known)}


def page(stream: Stream) -> dict[str, Any]:
    """What the template of a stream's page shows of a stream that is at hand."""
    distance = _measured(stream)
    parts = [Section("steps", "Steps", _steps(stream))]
    parts += [Section(f.title.split()[0].lower(), f.title, render("figure", f, "")) for f in _figures(stream, distance)]
    checks = [leakage(stream), contamination(stream), drifts(stream, distance)]
    return {"summary": summary(stream), "checks": checks, "sections": parts, "facts": facts(stream)}


def figures(stream: Stream) -> list[Figure]:
    """The charts for which the stream has data."""
    return _figures(stream, _measured(stream))


def _figures(stream: Stream, distance: Drift | None) -> list[Figure]:
    shown = [] if distance is None else [_drift(stream, distance)]
    with suppress(DriftlineError):  # one sample
        shown += [one for one in [_blind(stream)] if one is not None]
    return shown


def _measured(stream: Stream) -> Drift | None:
    try:
        return drift(stream) if stream.x_shape else None
    except DriftlineError:  # one step, no test split
        return None


def leakage(stream: Stream) -> Check:
    """Whether training and test share uploaders or near-duplicates."""
    shared = stream.shared_with_training()
    if shared is None:
        return Check("Leakage", "not known", "the source names no uploaders.")
    if not shared:
        return Check("Leakage", "none", "no uploader or near-duplicate is in both training and test data.")
    text = f"{shared:.1%} of the test samples share an uploader or are near-duplicates: the test is too easy."
    return Check("Leakage", "found", text)


def contamination(stream: Stream) -> Check:
    """Whether the encoder may have seen the tests."""
    what, cutoff = "Encoder contamination", str(stream.facts.get("encoder_cutoff", "unknown"))
    if len(stream.x_shape) != 1 and "encoder_cutoff" not in stream.facts:
        return Check(what, "none", "samples are not encoded.")
    times = [split.time for step in stream.steps if (split := step.splits.get("test")) is not None]
    try:
        last = span(cutoff)[1]
    except ValueError:
        return Check(what, "not known", "the encoder's training data has no stated date (--trained-until).")
    dated = [time for time in times if time is not None]
    if len(dated) < len(times) or not dated:
        return Check(what, "not known", f"the encoder was trained until {cutoff}; test samples have no times.")
    old = float(np.mean(np.concatenate(dated) <= last))
    newer = f"{old:.1%} of the test samples are not newer" if old else "all test samples are newer"
    return Check(what, "possible" if old else "none", f"the encoder was trained until {cutoff}; {newer}.")


def _steps(stream: Stream) -> str:
    names = [n for n in ("train", "val", "test") if any(n in s.splits for s in stream.steps)]
    unlabelled = any(s.unlabelled is not None for s in stream.steps)
    dates = [step.days() for step in stream.steps]
    columns = ["step", *(["from", "to"] if any(dates) else []), *names, *(["unlabelled"] if unlabelled else [])]
    rows = []
    for step, ends in zip(stream.steps, dates, strict=True):
        cells = list(ends or ("–", "–")) if any(dates) else []
        cells += [f"{len(step.splits[n]):,}" if n in step.splits else "–" for n in names]
        cells += [f"{len(step.unlabelled):,}" if step.unlabelled is not None else "–"] if unlabelled else []
        rows.append([step.name, *cells])
    return table(columns, rows, "plain")


def drifts(stream: Stream, distance: Drift | None) -> Check:
    """Whether the first step is farther from the last tests than chance alone gives."""
    if distance is None:
        return Check("Drift", "not known", "one step, no test samples, or texts.")
    if distance.floor is None:
        return Check("Drift", "not known", f"the floor of chance is {distance.because}.")
    if distance.values[0] <= distance.floor[0]:
        because = "the first step is not farther from the last test samples than chance alone gives."
        return Check("Drift", "not shown", because)
    times = f"{distance.values[0] / distance.floor[0]:.2f} times"
    return Check("Drift", "found", f"the first step is {times} as far from the last test samples as chance gives.")


def _drift(stream: Stream, found: Drift) -> Figure:
    along, top = list(range(len(found.values))), max([*found.values, *(found.floor or ())]) or 1.0
    series, bands = {"to the last step's test samples": (along, [v / top for v in found.values])}, {}
    if found.floor is not None:
        series |= {"floor of chance": (along, [v / top for v in found.floor])}
        bands = {"floor of chance": ([0.0] * len(along), series["floor of chance"][1])}
    dates: dict[float, str] = dict(enumerate(named_steps(stream)))
    picture = lines(series, "step", y_name="distance", dates=dates, bands=bands)
    caption = (
        f"Sliced Wasserstein distance of each step's training data, as a share of the largest. Floor: {found.because}."
    )
    caption += f" {sharing(stream)}"
    return Figure("Drift", caption.strip(), picture)


def _blind(stream: Stream) -> Figure | None:
    y = labels_in_order(stream)
    repetition = autocorrelation(y)
    if not repetition or len(y) < 2:
        return None
    lags, values = zip(*((lag, max(0.0, value)) for lag, value in repetition.items()), strict=True)
    picture = lines(
        {"the same label again": (list(lags), list(values))}, "samples later", log=True, y_name="above chance"
    )
    curve = blind_curve_of(stream)  # the suggested shift, too
    caption = (
        "How much more often than by chance the same label comes so many samples later; 100: always. Near 0: random "
        f"order. A line that begins high: a learner can score by repeating earlier labels. {stream.ties_text()} "
        f"Labels alone: {curve.best[0]:.1%} are right one sample later. {curve.text(curve.suggested)}"
    )
    return Figure("Label correlation", caption, picture)
