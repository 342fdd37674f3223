"""Where a release comes from, as nodes of PROV-O, for Croissant 1.1 ("Provenance Representation"); who publishes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from driftline.curate.release.croissant.responsible import SOURCES, judges_of
from driftline.curate.release.licences import NOT_STATED

ACTIVITIES = {  # what was done → its item of Wikidata, as NeurIPS's editor of RAI metadata has it; stages
    "Data collection": ("Q4929239", ("ingest", "filter", "fetch")),
    "Data preprocessing": ("Q5227332", ("bucket", "embed", "retrieve")),
    "Data annotation": ("Q109719325", ("ask", "tally")),
}


def provenance_nodes(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The `prov:` properties: entities that the release was derived from, activities that made it, and their agents."""
    provenance = facts["provenance"]
    name = provenance["source"]
    source = _node("Entity", SOURCES.get(name, (None,))[0] or f"#source-{quote(name, safe='')}", name)
    entities = [source]
    if former := (facts.get("changes") or {}).get("against"):
        entities.append(_node("Entity", "#previous-version", f"{former['name']} {former['version']}"))
    program = f"driftline {provenance['driftline']}, seed {provenance['seed']}"
    software, encoder = (_node("Agent", "#driftline", program),
                         _node("Agent", "#encoder", str(provenance["encoder"]["model"])))  # fmt: skip
    people = [_node("Agent", "#people", "people who answered")] if facts.get("answers", {}).get("people") else []
    judges = [_node("Agent", f"#judge-{i}", judge) for i, judge in enumerate(judges_of(facts))]
    agents = ([software], [software, encoder], [software, *people, *judges])
    activities = []
    for (label, (item, stages)), own in zip(ACTIVITIES.items(), agents, strict=True):
        counts = [(stage, provenance["counts"][stage]) for stage in stages if stage in provenance["counts"]]
        text = "; ".join(f"{stage} read {count['read']} and kept {count['kept']}" for stage, count in counts)
        activity = _node("Activity", f"#{label.lower().replace(' ', '-')}", label)
        activity |= {
            "prov:type": {"@id": f"https://www.wikidata.org/wiki/{item}"},
            "sc:description": text or "Not known: no stage is recorded.",
            "prov:wasAssociatedWith": own,
        }
        activities.append(activity)
    activities[0]["prov:used"] = {"@id": source["@id"]}
    creator, _ = maker(facts)
    attributed = {} if creator == NOT_STATED else {"prov:wasAttributedTo": _node("Agent", "#creator", creator)}
    return {"prov:wasDerivedFrom": entities, "prov:wasGeneratedBy": activities, **attributed}


def maker(facts: Mapping[str, Any]) -> tuple[str, str]:
    """Name and contact of who publishes the release; "not stated" where the settings do not say it.

    >>> maker({"provenance": {"author": "A Lab <lab@example.org>"}}), maker({"provenance": {"author": "A Lab"}})
    (('A Lab', 'lab@example.org'), ('A Lab', 'not stated'))
    """
    name, bracket, contact = (facts["provenance"].get("author") or "").partition("<")
    return name.strip() or NOT_STATED, contact.rstrip("> ") if bracket and contact.rstrip("> ") else NOT_STATED


def _node(kind: str, id_: str, label: str) -> dict[str, Any]:
    return {"@type": f"prov:{kind}", "@id": id_, "prov:label": label}
