"""The pages of a report beside its first: one for each protocol, learner and stream. Every number links to the settings
and the hashes of its runs."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from curate.core.registry import Registry
from eval.learners import LEARNERS
from eval.plotting.charts import Section
from eval.protocol import PROTOCOLS, Document, primary_of, scores_of
from eval.reporting.stream_page import facts, sections
from stream_builder.stream import Stream

Documents = Sequence[Document]


def slug(kind: str, name: str, suffix: str = "") -> str:
    """A file's name. suffix: distinguishes two of one name.

    >>> slug("learner", "er"), slug("stream", "CIFAR / R", "5fe1")
    ('learner-er.html', 'stream-CIFAR-R-5fe1.html')
    """
    plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:60]
    if plain.replace("-", "") != name.replace("-", "") and not suffix:
        suffix = hashlib.sha256(name.encode()).hexdigest()[:6]  # two names may differ only in what was replaced
    return "-".join(part for part in (kind, plain, suffix) if part) + ".html"


def learner_page(name: str) -> str:
    """Of a learner, with any settings."""
    return slug("learner", name.partition("(")[0].strip())


def stream_page(stream: Mapping[str, Any]) -> str:
    """Of a stream; two streams of one name have two pages."""
    return slug("stream", stream["name"], hashlib.sha256(stream["sha256"].encode()).hexdigest()[:6])


def protocol_page(name: str) -> str:
    """Of a protocol."""
    return slug("protocol", name)


def anchor(document: Document, result: Mapping[str, Any]) -> str:
    """A result's place on its learner's page."""
    identity = [document["protocol"], document["stream"]["sha256"], result["learner"], result["settings"]]
    return "r-" + hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()[:10]


def linked(documents: Documents) -> list[dict[str, Any]]:
    """Documents whose results and streams name their pages."""
    return [
        {
            **document,
            "stream": {**document["stream"], "page": stream_page(document["stream"])},
            "page": protocol_page(document["protocol"]),
            "results": [
                {**result, "page": learner_page(result["learner"]), "anchor": anchor(document, result)}
                for result in document["results"]
            ],
        }
        for document in documents
    ]


def contents(documents: Documents) -> dict[str, list[tuple[str, str]]]:
    """Kind of page → (name, file) of each."""
    protocols = dict.fromkeys(d["protocol"] for d in documents)
    streams = dict.fromkeys((d["stream"]["name"], d["stream"]["page"]) for d in documents)
    names = [r["learner"] for d in documents for r in (*d["results"], *d.get("skipped", ()))]
    learners = dict.fromkeys(name.partition("(")[0].strip() for name in names if name != "all")
    return {
        "Protocols": [(name, protocol_page(name)) for name in protocols],
        "Learners": [(name, learner_page(name)) for name in sorted(learners)],
        "Streams": list(streams),
    }


def pages(
    environment: Any,
    documents: Documents,
    plain: Documents,
    title: str,
    streams: Mapping[str, Stream],
    across: Mapping[str, Section],
) -> dict[str, str]:
    """File → HTML. documents: as the template of a protocol takes them. plain: with links only. streams: by hash, those
    whose folders are known. across: protocol → a section over all of its streams."""
    files: dict[str, str] = {}
    for name in dict.fromkeys(d["protocol"] for d in documents):
        files[protocol_page(name)] = environment.get_template("protocol.html.j2").render(
            title=name,
            up=title,
            notice="",
            text=_paragraphs(PROTOCOLS, name),
            documents=[d for d in documents if d["protocol"] == name],
            after=[across[name]] if name in across else [],
        )
    for name, page in contents(plain)["Learners"]:
        files[page] = _learner(environment, name, plain, title)
    for d in plain:
        if d["stream"]["page"] not in files:
            files[d["stream"]["page"]] = _stream(environment, d["stream"], plain, title, streams)
    return files


def _learner(environment: Any, name: str, documents: Documents, title: str) -> str:
    groups = []
    for protocol in dict.fromkeys(d["protocol"] for d in documents):
        rows = [
            {**r, "stream": d["stream"]["name"], "stream_page": d["stream"]["page"]}
            for d in documents
            if d["protocol"] == protocol
            for r in d["results"]
            if r["learner"].partition("(")[0].strip() == name
        ]
        if rows:
            columns = scores_of({"protocol": protocol, "results": rows})
            for r in rows:  # other settings may give other scores
                none = {"mean": None, "sd": None, "values": [None] * len(r["seeds"])}
                r["scores"] = {score.name: none for score in columns} | r["scores"]
            groups.append({"protocol": protocol, "page": protocol_page(protocol), "columns": columns, "rows": rows})
    skipped = [
        {"protocol": d["protocol"], "stream": d["stream"]["name"], "because": s["because"]}
        for d in documents
        for s in d.get("skipped", ())
        if s["learner"].partition("(")[0].strip() == name
    ]
    text = _paragraphs(LEARNERS, name)
    return str(
        environment.get_template("learner.html.j2").render(
            title=name, up=title, notice="", text=text, groups=groups, skipped=skipped
        )
    )


def _paragraphs(registry: Registry, name: str) -> list[str]:
    """The docstring of a registered learner or protocol; [] for others."""
    if name not in registry:
        return []
    return [" ".join(part.split()) for part in inspect.cleandoc(registry[name].__doc__ or "").split("\n\n")]


def _stream(
    environment: Any, about: Mapping[str, Any], documents: Documents, title: str, streams: Mapping[str, Stream]
) -> str:
    known = streams.get(about["sha256"])
    protocols = []
    for d in documents:
        if d["stream"]["page"] != about["page"] or not d["results"]:
            continue
        score = primary_of(d)
        mean = score.best(map(score.mean, d["results"]))
        protocols.append(
            {
                "protocol": d["protocol"],
                "page": d["page"],
                "by": score.label,
                "best": next((r["learner"] for r in d["results"] if mean is not None and score.mean(r) == mean), "–"),
                "score": score.text(mean),
                "learners": len(d["results"]),
            }
        )
    properties = {"SHA-256": about["sha256"]} | ({} if known is None else facts(known))
    parts = [] if known is None else sections(known)
    return str(
        environment.get_template("stream.html.j2").render(
            title=about["name"], up=title, notice="", facts=properties, sections=parts, protocols=protocols
        )
    )
