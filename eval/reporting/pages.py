"""The pages beside a report's first: one a protocol, one a learner, one a stream. Every number leads to the settings
and the hashes of the runs that it comes from."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from eval.learners import LEARNERS
from eval.protocol import PROTOCOLS
from eval.reporting.stream_page import facts, sections
from stream_builder.stream import Stream

Documents = Sequence[Mapping[str, Any]]


def slug(kind: str, name: str, of: str = "") -> str:
    """A file's name. of: what else tells two of one name apart.

    >>> slug("learner", "er"), slug("stream", "CIFAR / R", "5fe1")
    ('learner-er.html', 'stream-CIFAR-R-5fe1.html')
    """
    plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:60]
    if plain.replace("-", "") != name.replace("-", "") and not of:
        of = hashlib.sha256(name.encode()).hexdigest()[:6]  # what was cut away may have told two names apart
    return "-".join(part for part in (kind, plain, of) if part) + ".html"


def learner_page(name: str) -> str:
    """Of a learner, whatever its settings."""
    return slug("learner", name.partition("(")[0].strip())


def stream_page(stream: Mapping[str, Any]) -> str:
    """Of a stream: two of one name have pages of their own."""
    return slug("stream", stream["name"], hashlib.sha256(stream["sha256"].encode()).hexdigest()[:6])


def protocol_page(name: str) -> str:
    """Of a protocol."""
    return slug("protocol", name)


def anchor(document: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """Where on its learner's page a result stands."""
    told = [document["protocol"], document["stream"]["sha256"], result["learner"], result["settings"]]
    return "r-" + hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:10]


def linked(documents: Documents) -> list[dict[str, Any]]:
    """Documents whose results and streams know their pages."""
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
    told = [r["learner"] for d in documents for r in (*d["results"], *d.get("skipped", ()))]
    learners = dict.fromkeys(name.partition("(")[0].strip() for name in told if name != "all")
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
    across: Mapping[str, Any],
) -> dict[str, str]:
    """File → HTML. documents: as the template of a protocol takes them. plain: with links only. streams: by hash, those
    whose folders are known. across: protocol → a section over all of its streams."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(d["protocol"] for d in documents):
        mine = [d for d in documents if d["protocol"] == name]
        told = {"title": name, "up": title, "notice": "", "told": PROTOCOLS.summary(name), "documents": mine}
        page = environment.get_template("protocol.html.j2").render(**told, after=across.get(name, []))
        found[protocol_page(name)] = page
    for name, page in contents(plain)["Learners"]:
        found[page] = _learner(environment, name, plain, title)
    for d in plain:
        if d["stream"]["page"] not in found:
            found[d["stream"]["page"]] = _stream(environment, d["stream"], plain, title, streams)
    return found


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
            columns = list(dict.fromkeys(c for r in rows for c in r["scores"]))
            none = {"mean": None, "sd": None}
            for r in rows:  # settings may bring scores that others do not have
                r["scores"] = {c: r["scores"].get(c, none | {"values": [None] * len(r["seeds"])}) for c in columns}
            groups.append({"protocol": protocol, "page": protocol_page(protocol), "columns": columns, "rows": rows})
    skipped = [
        {"protocol": d["protocol"], "stream": d["stream"]["name"], "because": s["because"]}
        for d in documents
        for s in d.get("skipped", ())
        if s["learner"].partition("(")[0].strip() == name
    ]
    told = _paragraphs(name)
    return str(
        environment.get_template("learner.html.j2").render(
            title=name, up=title, notice="", told=told, groups=groups, skipped=skipped
        )
    )


def _paragraphs(name: str) -> list[str]:
    """What a learner of the catalogue says of itself; nothing is known of others."""
    if name not in LEARNERS:
        return []
    return [" ".join(part.split()) for part in inspect.cleandoc(LEARNERS[name].__doc__ or "").split("\n\n")]


def _stream(
    environment: Any, about: Mapping[str, Any], documents: Documents, title: str, streams: Mapping[str, Stream]
) -> str:
    known = streams.get(about["sha256"])
    protocols = []
    for d in documents:
        if d["stream"]["page"] != about["page"] or not d["results"]:
            continue
        by = next(iter(d["results"][0]["scores"]))
        there = [r for r in d["results"] if r["scores"].get(by, {}).get("mean") is not None]
        best: Mapping[str, Any] = max(there, key=lambda r: r["scores"][by]["mean"], default={})
        protocols.append(
            {
                "protocol": d["protocol"],
                "page": d["page"],
                "by": by,
                "best": best.get("learner", "–"),
                "score": best["scores"][by]["mean"] if best else None,
                "learners": len(d["results"]),
            }
        )
    told = {"SHA-256": about["sha256"]} | ({} if known is None else facts(known))
    parts = [] if known is None else sections(known)
    return str(
        environment.get_template("stream.html.j2").render(
            title=about["name"], up=title, notice="", facts=told, sections=parts, protocols=protocols
        )
    )
