"""The sections of a data card that a person writes: paragraphs that begin with a bold title."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class CardSection:
    """One section."""

    title: str
    """in the judgement file and in the card"""
    asks: str
    """what to write"""
    rai: str | None = None
    """property of Croissant's responsible-AI vocabulary"""


CARD_SECTIONS = (
    CardSection("Motivation", "what the data set is for, who made it, who paid for it"),
    CardSection("Intended uses", "what it was made to measure", "rai:dataUseCases"),
    CardSection("Uses to avoid", "what it cannot show", "rai:dataLimitations"),
    CardSection("Known biases", "who and what is over- and under-represented", "rai:dataBiases"),
    CardSection("People", "who can be recognised, and how they are protected", "rai:personalSensitiveInformation"),
    CardSection("Social impact", "who may be harmed or helped by models trained on it", "rai:dataSocialImpact"),
    CardSection(
        "Maintenance",
        "who is responsible, how errors and removal requests are handled",
        "rai:dataReleaseMaintenancePlan",
    ),
)


def parse_judgement(text: str | None) -> dict[str, str]:
    """Title → text of the sections in a judgement file; "" → its other paragraphs, unchanged.

    >>> parse_judgement("**People.** None are shown.\\n\\nSee also the paper.")
    {'People': 'None are shown.', '': 'See also the paper.'}
    """
    titles = {section.title.lower(): section.title for section in CARD_SECTIONS}
    sections: dict[str, str] = {}
    others = []
    for paragraph in re.split(r"\n\s*\n", (text or "").strip()):
        bold = re.match(r"\*\*([^*\n]+?)\.?\*\*\s*", paragraph)
        title = titles.get(bold.group(1).strip().lower()) if bold else None
        if bold and title and paragraph[bold.end() :].strip():
            sections[title] = " ".join(paragraph[bold.end() :].split())
        elif paragraph.strip() and not title:
            others.append(paragraph.strip())
    return sections | ({"": "\n\n".join(others)} if others else {})


def missing_sections(text: str | None) -> list[str]:
    """Titles of the sections that are not written."""
    return [section.title for section in CARD_SECTIONS if section.title not in parse_judgement(text)]
