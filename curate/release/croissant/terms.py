"""Terms of use that follow from licences: ODRL 2.2 with the actions of ccREL, and DUO, as in Croissant 1.1.

Terms are claimed for Creative Commons licences alone, from their address; every other licence is named, without terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from driftline.curate.release.licences import Entry, deed, label_of

RESEARCH, NO_RESTRICTION, NON_COMMERCIAL = (
    ("DUO_0000042", "general research use"), ("DUO_0000004", "no restriction"),
    ("DUO_0000046", "non-commercial use only"),
)  # fmt: skip
TERMS: dict[str, tuple[str, str]] = {  # part of a deed's address → ODRL rule, and its action in ccREL
    "by": ("odrl:duty", "cc:Attribution"),
    "sa": ("odrl:duty", "cc:ShareAlike"),
    "nc": ("odrl:prohibition", "cc:CommercialUse"),
    "nd": ("odrl:prohibition", "cc:DerivativeWorks"),
}  # zero and mark have none
ALLOWED = ("cc:Reproduction", "cc:Distribution", "cc:DerivativeWorks")  # by every deed, less what it prohibits


def usage(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """The property `usageInfo` (Croissant 1.1, "Data Use Conditions"): DUO terms that hold for every image, if all
    licences are Creative Commons', and one ODRL offer a licence."""
    deeds = [deed(entry) for entry in entries]
    parts = {part for one in deeds if one for part in one[0]}
    terms = [RESEARCH if parts & TERMS.keys() else NO_RESTRICTION] if None not in deeds else []
    terms += [NON_COMMERCIAL] if "nc" in parts else []  # a set is as restricted as its most restricted image
    return [*map(_defined_term, terms), *map(_offer, {label_of(entry): entry for entry in entries}.values())]


def _defined_term(term: tuple[str, str]) -> dict[str, Any]:
    code, name = term
    url = f"http://purl.obolibrary.org/obo/{code}"
    return {"@type": "sc:DefinedTerm", "name": name, "termCode": code, "url": url}


def _offer(entry: Entry) -> dict[str, Any]:
    """What one licence allows; nothing is claimed of a licence without a deed."""
    offer = {"@type": "sc:CreativeWork", "name": entry["name"]} | ({"url": entry["url"]} if entry["url"] else {})
    if (parts := deed(entry)) is None:
        return offer | {"description": "The terms of this licence are not known."}
    rules = [TERMS[part] for part in parts[0] if part in TERMS]
    prohibited = [action for rule, action in rules if rule == "odrl:prohibition"]
    duties = [action for rule, action in rules if rule == "odrl:duty"]
    permission = _rule("odrl:Permission", [action for action in ALLOWED if action not in prohibited])
    permission |= {"odrl:duty": _rule("odrl:Duty", duties)} if duties else {}
    offer |= {"@type": ["sc:CreativeWork", "odrl:Offer"], "odrl:permission": permission}
    return offer | ({"odrl:prohibition": _rule("odrl:Prohibition", prohibited)} if prohibited else {})


def _rule(kind: str, actions: Iterable[str]) -> dict[str, Any]:
    return {"@type": kind, "odrl:action": [{"@id": action} for action in actions]}
