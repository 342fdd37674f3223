"""The data card of a release: facts from `release.json`, other sections from the judgement file."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from driftline.curate.core.late import jinja2, yaml
from driftline.curate.images.changes import KINDS, alters, kinds_of
from driftline.curate.release.licences import NOT_STATED, Entry, hub_licences, labels, listed
from driftline.curate.release.selection import absences
from driftline.curate.validation.answers.verdicts import agreement_texts, answers_text, rule_text

STAGES = ("ingest", "filter", "fetch", "bucket", "embed", "retrieve", "ask", "tally")
UNWRITTEN = "Not written yet: this needs a person's judgement"


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
    CardSection("Motivation", "what the dataset is for, who made it, who paid for it"),
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


def card(facts: Mapping[str, Any], layout: Literal["webdataset", "parquet"] = "webdataset") -> str:
    """Content of `release.json` → README.md with the YAML header of the Hugging Face Hub. layout: of the release's
    files. The sections come from `provenance.judgement` (Markdown)."""
    text = files("driftline.curate.release").joinpath("templates/card.md.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["md"] = plain
    judgement = facts["provenance"].get("judgement")
    complete: dict[str, Any] = {"answers": {}, "file_changes": {}, **facts, "provenance": _ordered(facts)}
    complete["licence_list"] = listed(facts)
    creator, contact = maker(facts)
    return environment.from_string(text).render(
        **complete,
        absent=_absent(facts),
        filled=[b for b in facts["buckets"] if any(facts["per_class"].get(str(b["index"]), {}).values())]
        or facts["buckets"],
        prepared=prepared_text(complete["file_changes"]),
        altered=sum(n for what, n in complete["file_changes"].items() if alters(what)),
        label_rule=rule_text(facts["provenance"]["validation"]),
        answers_given=answers_text(complete["answers"]),
        size=_size(facts["images"]),
        layout=layout,
        licence_header=_licence_header(complete["licence_list"]),
        creator=creator,
        contact=contact,
        time_span=coverage(facts),
        agreement_texts=agreement_texts(facts["provenance"].get("agreement")),
        judged=section_text(judgement),
        judged_otherwise=parse_judgement(judgement).get("", ""),
    )


def _absent(facts: Mapping[str, Any]) -> str:
    """Classes and buckets without images, as one paragraph."""
    named = {str(bucket["index"]): plain(bucket["name"]) for bucket in facts["buckets"]}
    counts = {(named[b], plain(c)): n for b, of_class in facts["per_class"].items() for c, n in of_class.items()}
    return " ".join(absences(counts, list(named.values()), [plain(c) for c in facts["classes"]]))


def prepared_text(file_changes: Mapping[str, int]) -> str:
    """kind of preparation and images, in words, of `file_changes`; "" if pictures are as they were stored.

    >>> prepared_text({"none": 5, "turned upright; compressed again": 2})
    'orientation 2'
    """
    counts: Counter[str] = Counter()
    for record, n in file_changes.items():
        counts.update(dict.fromkeys(kinds_of(record), n))
    return ", ".join(f"{kind} {counts[kind]:,}" for kind in KINDS if counts[kind])


def _ordered(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The provenance with stages as they ran and prompts as the classes: a JSON file has both by name."""
    counts, prompts = facts["provenance"]["counts"], facts["provenance"]["prompts"]
    stages, classes = [*STAGES, *counts], [*facts["classes"], *prompts]
    return {
        **facts["provenance"],
        "counts": {name: counts[name] for name in dict.fromkeys(stages) if name in counts},
        "prompts": {name: prompts[name] for name in dict.fromkeys(classes) if name in prompts},
    }


def section_text(judgement: str | None) -> Callable[[str], str]:
    """A function: title of a section → its paragraph in a card, or a note of what is to be written."""
    written = parse_judgement(judgement)
    asks = {section.title: section.asks for section in CARD_SECTIONS}

    def text(title: str) -> str:
        return f"**{title}.** {written.get(title) or f'*{UNWRITTEN} ({asks[title]}).*'}\n"

    return text


def _licence_header(entries: Sequence[Entry]) -> str:
    """The keys of the header about licences: identifiers of the Hub; `licences` lists them as Croissant does."""
    hub = hub_licences(entries)
    other = {"license_name": "per-image", "license_link": "ATTRIBUTION.csv"} if "other" in hub else {}
    header = {"license": hub[0] if len(hub) == 1 else hub, **other, "licences": labels(entries)}
    return str(yaml.safe_dump(header, sort_keys=False, allow_unicode=True, width=4096)).rstrip()


def plain(text: Any) -> str:
    """Any text as one line of Markdown without markup or HTML.

    >>> plain("a|b <script>")
    'a\\\\|b &lt;script&gt;'
    """
    line = re.sub(r"\s+", " ", str(text)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([|`*_\[\]])", r"\\\1", line)


def _size(n: int) -> str:
    """Size category of the Hugging Face Hub.

    >>> _size(999), _size(66_000)
    ('n<1K', '10K<n<100K')
    """
    steps = [(10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M")]
    return next((name for limit, name in steps if n < limit), "10M<n<100M")


def time_span(facts: Mapping[str, Any]) -> list[str]:
    """Begin of the first bucket and end of the last one, as far as they are known."""
    starts = [b["start"] for b in facts["buckets"] if b["start"]]
    ends = [b["end"] for b in facts["buckets"] if b["end"]]
    return [*starts[:1], *ends[-1:]]


def coverage(facts: Mapping[str, Any]) -> str:
    """The time span as an interval of ISO 8601; "" if an end is not known."""
    span = time_span(facts)
    return "/".join(span) if len(span) == 2 else ""


def maker(facts: Mapping[str, Any]) -> tuple[str, str]:
    """Name and contact of who publishes the release; "not stated" where the settings do not say it.

    >>> maker({"provenance": {"author": "A Lab <lab@example.org>"}}), maker({"provenance": {"author": "A Lab"}})
    (('A Lab', 'lab@example.org'), ('A Lab', 'not stated'))
    """
    name, bracket, contact = (facts["provenance"].get("author") or "").partition("<")
    return name.strip() or NOT_STATED, contact.rstrip("> ") if bracket and contact.rstrip("> ") else NOT_STATED
