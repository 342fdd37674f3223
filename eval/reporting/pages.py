"""The pages of a report beside its first: one for each protocol and stream."""

import hashlib
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from driftline.eval.plotting.charts import Section
from driftline.eval.protocol import PROTOCOLS, Document, primary_of
from driftline.eval.reporting.stream_page import page as page_of_stream
from driftline.eval.reporting.text import value_text
from driftline.eval.scoring import ranking
from driftline.eval.scoring.ranking import comparable, differing, labels, mean_of, rival
from driftline.stream_builder.stream import Stream

Documents = Sequence[Document]


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
        seen = (d["seen"]["results"] if d.get("seen") else None) or [None] * len(d["results"])
        cadences = d.get("retrain_every") or [[]] * len(d["results"])
        of_results = zip(d["results"], aged, seen, cadences, labels(d["results"]), strict=True)
        results = [
            {**r, "aged": age, "seen": gap, "cadences": every, "label": label}
            for r, age, gap, every, label in of_results
        ]
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
