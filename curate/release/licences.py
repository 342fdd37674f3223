"""The licences of a release: names and addresses that its records have, for card, Croissant and the Hub.

Terms of use (ODRL 2.2 with the actions of ccREL, and DUO, as in Croissant 1.1) are claimed for Creative Commons
licences alone, from their address; every other licence is named, without terms.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NOT_STATED = "not stated"
ADDRESS = re.compile(r"https?://[^\s/]+\S*")
DEED = re.compile(
    r"https?://creativecommons\.org/(?:licenses|publicdomain)/((?:by|nc|nd|sa)(?:-(?:by|nc|nd|sa))*|zero|mark)/([\d.]+)"
)
HUB = {  # identifiers that the Hugging Face Hub lists (huggingface.co/docs/hub/repositories-licenses)
    "cc0-1.0", "cc-by-2.0", "cc-by-2.5", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc-by-nc-2.0",
    "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nd-4.0", "cc-by-nc-nd-3.0", "cc-by-nc-nd-4.0", "cc-by-nc-sa-2.0",
    "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0",
}  # fmt: skip

# Creative Commons in all kinds (BY, SA, NC, ND: whole copies), public domain, and the free licences of Commons [Flickr:
# flickr.photos.licenses.getInfo; rightsstatements.org: of its twelve statements only two].
_PERMITS = re.compile(
    r"(?i)\s*(cc[ -]?(by|0|zero)\b|attribution\b|pd(m|$|-)|no restrictions|(copyrighted )?free use|gfdl|fal$)"
    r"|.*(creativecommons\.org/(licenses|publicdomain)/|public domain|no known copyright|usa\.gov/copyright"
    r"|rightsstatements\.org/(vocab|page)/(noc-us|nkc)"
    r"|united states government work|gnu free documentation|free art li)",
    re.DOTALL,
)

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

Entry = Mapping[str, Any]  # name; url or None; images


def licence_list(licences: Iterable[tuple[str | None, str | None]]) -> list[dict[str, Any]]:
    """Name, address (None: none is known) and number of images of each licence. licences: name and address of each
    image's.

    >>> licence_list([("CC0", "see below"), ("CC0", None), (None, None)])
    [{'name': 'CC0', 'url': None, 'images': 2}, {'name': 'not stated', 'url': None, 'images': 1}]
    """
    counts = Counter(
        (name or url or NOT_STATED, next((text for text in (url, name) if text and ADDRESS.fullmatch(text)), None))
        for name, url in licences
    )
    ordered = sorted(counts, key=lambda licence: (licence[0], licence[1] or ""))
    return [{"name": name, "url": url, "images": counts[name, url]} for name, url in ordered]


def listed(facts: Mapping[str, Any]) -> Sequence[Entry]:
    """`licence_list` of release.json; of a release without images, one entry."""
    return facts.get("licence_list") or [{"name": NOT_STATED, "url": None, "images": 0}]


def labels(entries: Iterable[Entry]) -> list[str]:
    """The address of each licence, or its name; each once."""
    return list(dict.fromkeys(map(label_of, entries)))


def hub_licences(entries: Iterable[Entry]) -> list[str]:
    """The Hub's identifier of each licence; "other" for those that it does not list."""
    codes = (f"cc-{'-'.join(parts[0])}-{parts[1]}" if (parts := deed(entry)) else "" for entry in entries)
    names = (code.replace("cc-zero", "cc0") for code in codes)
    return sorted({name if name in HUB else "other" for name in names}, key=lambda name: (name == "other", name))


def licence_nodes(entries: Iterable[Entry]) -> Any:
    """The property `license` of a Croissant document: addresses; a CreativeWork with a name where none is known."""
    nodes = [
        label if ADDRESS.fullmatch(label) else {"@type": "sc:CreativeWork", "name": label} for label in labels(entries)
    ]
    return nodes[0] if len(nodes) == 1 else nodes


def no_derivatives(licence: Sequence[str]) -> bool:
    """Whether a Creative Commons licence forbids altered copies. licence: its name and address, as far as known."""
    return any("noderiv" in text.lower().replace("-", "").replace(" ", "") or "-nd" in text.lower() for text in licence)


def permits_copies(*licence: str | None) -> bool:
    """Whether one of these names or addresses is that of a licence which permits copies; unknown ones do not.

    >>> permits_copies("Attribution License"), permits_copies(None, "https://creativecommons.org/licenses/by-nd/2.0/")
    (True, True)
    >>> permits_copies("All rights reserved"), permits_copies(None), permits_copies("http://rightsstatements.org/vocab/InC/1.0/")
    (False, False, False)
    """
    return any(text and _PERMITS.match(text) for text in licence)


def label_of(entry: Entry) -> str:
    """The address of a licence, or its name."""
    return str(entry["url"] or entry["name"])


def deed(entry: Entry) -> tuple[list[str], str] | None:
    """Parts and version of a Creative Commons licence, by its address."""
    match = DEED.match((entry["url"] or "").lower())
    return (match[1].split("-"), match[2].strip(".")) if match else None


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
