"""What a data card cannot take from the data: parts that a person writes, each a paragraph with a bold name first."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """title: as in the judgement file and the card. asks: what to write. rai: the Croissant property it fills."""

    title: str
    asks: str
    rai: str | None = None


PARTS = (
    Part("Motivation", "what the data set is for, who made it, who paid"),
    Part("Intended uses", "what it was made to measure", "rai:dataUseCases"),
    Part("Uses to avoid", "what it cannot show", "rai:dataLimitations"),
    Part("Known biases", "who and what is over- and under-represented", "rai:dataBiases"),
    Part("People", "who can be recognised, and what was done about it", "rai:personalSensitiveInformation"),
    Part("Social impact", "who may be harmed or helped by models trained on it", "rai:dataSocialImpact"),
    Part(
        "Maintenance",
        "who answers, how errors and wishes to be taken out are handled",
        "rai:dataReleaseMaintenancePlan",
    ),
)


def parse(text: str | None) -> dict[str, str]:
    """Title → what is written, for the PARTS that a judgement file has; "" → its other paragraphs, as they are.

    >>> parse("**People.** None are shown.\\n\\nSee also the paper.")
    {'People': 'None are shown.', '': 'See also the paper.'}
    """
    titles = {part.title.lower(): part.title for part in PARTS}
    found: dict[str, str] = {}
    others = []
    for paragraph in re.split(r"\n\s*\n", (text or "").strip()):
        begins = re.match(r"\*\*([^*\n]+?)\.?\*\*\s*", paragraph)
        title = titles.get(begins.group(1).strip().lower()) if begins else None
        if begins and title and paragraph[begins.end() :].strip():
            found[title] = " ".join(paragraph[begins.end() :].split())
        elif paragraph.strip() and not title:
            others.append(paragraph.strip())
    return found | ({"": "\n\n".join(others)} if others else {})


def unwritten(text: str | None) -> list[str]:
    """Titles of the parts that nobody has written."""
    return [part.title for part in PARTS if part.title not in parse(text)]
