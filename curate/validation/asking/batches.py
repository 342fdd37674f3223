"""Batches: candidates → questions for workers: one question page, opaque image names, hidden gold questions.

No file that a worker can see shows the expected class: an address such as `…/soccer/12.jpg` would give the answer away.
The modules of `platforms/` bring a batch into the form of a marketplace.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import (
    check_format,
    csv_text,
    fingerprint,
    private,
    read_object,
    write_bytes,
    write_json,
    write_secret,
    write_text,
)
from driftline.curate.core.errors import BadConfig, BadInput, MissingFile
from driftline.curate.core.late import jinja2
from driftline.curate.core.seeding import name_for, rng_for
from driftline.curate.foreign.delimited import csv_rows
from driftline.curate.retrieval.settings import BACKGROUND, Concept
from driftline.curate.validation.settings import ValidationSettings

FORMAT = 1
NONE = "none"  # value of the exclusive checkbox "None of the above"
CREATED = "Annotation.created"  # column of results: when an annotation of Label Studio was made
COLUMNS = ("batch", "item", "image_url")


def expected_of(concept: str) -> frozenset[str]:
    """The answer that accepts an image which was asked for a concept."""
    return frozenset({NONE if concept == BACKGROUND else concept})


def question_html(concepts: Sequence[Concept], alone: bool = True) -> str:
    """CLEAR's question [supplement, figures 3 and 4] as plain inputs with `${image_url}` for the image.

    It has no form element, because MTurk's requester pages and Turkle add their own. alone: it makes "None of the
    above" exclude the others by itself; a page that forbids such code has its own script. Concept texts are escaped;
    `$` is removed, so that no template engine finds a variable.
    """
    template = files("driftline.curate.validation").joinpath("templates/question.html.j2").read_text(encoding="utf-8")
    options = [(c.name, c.option, c.examples) for c in concepts]
    page = jinja2.Environment(autoescape=True).from_string(template).render(options=options, nothing=NONE, alone=alone)
    return page.replace("@@image_url@@", "${image_url}")


def question_page(concepts: Sequence[Concept]) -> str:
    """The question as a complete page with a form, for the local page, which has its own script."""
    asked = question_html(concepts, alone=False)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<title>Which of these are in the image?</title>\n</head>\n<body>\n"
        f'<form method="post" action="/mturk/externalSubmit">\n{asked}\n</form>\n</body>\n</html>\n'
    )


def write_batch(
    asked: Sequence[tuple[str, bytes, str]],
    concepts: Sequence[Concept],
    out: Path,
    seed: int,
    settings: ValidationSettings,
    gold: Mapping[str, frozenset[str]] | None = None,
    after: str | None = None,
) -> dict[str, Any]:
    """Write `batch.csv`, `page.html`, `images/` and last `batch.json`, whose content is returned; rows in seeded order.

    asked: (id, image bytes, extension). gold: id → known labels; workers cannot tell gold questions from others. after:
    name of the previous batch. Raises BadConfig for a
    concept whose name is no option of a page.
    """
    for concept in concepts:
        if concept.name == NONE or "|" in concept.name:
            raise BadConfig(
                f"A concept is named {concept.name!r}.", f"Expected a name without '|', other than {NONE!r}."
            )
    image_of = {id_: (data, extension) for id_, data, extension in asked}
    gold, page = gold or {}, question_page(concepts)
    # The page is part of the name: answers to other options are answers to another question.
    batch = name_for(seed, "batch", fingerprint(page), *sorted(image_of))
    ids = [asked[i][0] for i in rng_for(seed, "batch order").permutation(len(asked)).tolist()]
    items = {name_for(seed, "item", batch, id_): id_ for id_ in ids}
    facts = {
        "format": FORMAT,
        "batch": batch,
        "after": after,
        "items": items,
        "concepts": [c.name for c in concepts],
        "gold": {item: sorted(gold[id_]) for item, id_ in items.items() if id_ in gold},
        "workers": settings.workers,
        "reward_usd": settings.reward_usd,
        "estimate_usd": estimate(len(asked), settings),
        "usd_an_hour": wage(settings.reward_usd, settings.seconds),
    }
    rows = []
    for item, id_ in items.items():
        data, extension = image_of[id_]
        write_bytes(out / "images" / f"{item}.{extension}", data)
        rows.append((batch, item, f"{settings.image_base_url.rstrip('/')}/{item}.{extension}"))
    write_text(out / "batch.csv", marketplace_csv(COLUMNS, rows))
    write_text(out / "page.html", page)
    write_json(out / "batch.json", facts)
    return facts


def marketplace_csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A CSV document in the form of marketplaces: every cell quoted, lines end in CRLF."""
    return csv_text(header, rows, end="\r\n", quote_all=True)


def write_results(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Write a results CSV. Lines of an earlier file whose assignment and item `rows` does not have stay: the answers of
    a file never become fewer. Raises BadInput for an earlier file that is no results CSV; it stays as it is."""
    names = ("AssignmentId", "Input.item")
    places = [header.index(name) for name in names]
    written = {tuple(str(row[place]) for place in places) for row in rows}
    stored: list[Sequence[Any]] = []
    if path.is_file():
        way_out = "Restore it as it was written: nothing is written over it until then."
        lines = csv_rows(path, names, "Expected a results CSV.", way_out)
        stored = [
            [line.get(column, "") for column in header]
            for _, line in lines
            if tuple(line[name] for name in names) not in written
        ]
    private(path.parent)
    write_secret(path, marketplace_csv(header, [*stored, *rows]))


def estimate(images: int, settings: ValidationSettings) -> float:
    """Cost in US dollars of people's answers to so many images, with the platform's fee.

    >>> estimate(100, ValidationSettings()), estimate(100, ValidationSettings(platform="mturk"))
    (8.0, 9.0)
    """
    return round(images * settings.price(), 2)


def wage(reward: float, seconds: float) -> float:
    """Wage of a worker in US dollars per hour.

    >>> wage(0.02, 9)
    8.0
    """
    return round(reward * 3600 / seconds, 2)


def read_batch(folder: Path) -> dict[str, Any]:
    """Read `batch.json`, which is written last: if it exists, the batch is complete."""
    needed = {"batch": str, "items": dict, "concepts": list, "gold": dict, "workers": int}
    way_out = "Repeat the stage ask: driftline run DIR --from ask."
    batch = read_object(folder / "batch.json", needed, way_out)
    check_format(folder / "batch.json", batch.get("format"), FORMAT, way_out)
    return batch


def read_gold(path: Path, concepts: Sequence[str]) -> dict[str, frozenset[str]]:
    """Read gold questions, id → labels, from a CSV with the columns id and labels (joined by "|", or "none" alone).

    Raises MissingFile, BadInput with the line.
    """
    if not path.is_file():
        raise MissingFile(f"There is no file {path}.", "Expected gold questions: a CSV with the columns id and labels.")
    gold: dict[str, frozenset[str]] = {}
    for number, line in csv_rows(path, ["id", "labels"], "Expected id and labels."):
        labels = frozenset(line["labels"].strip().split("|"))
        options = {*concepts, NONE}
        if labels - options or (NONE in labels and len(labels) > 1):
            raise BadInput(
                f"{path}, line {number}: labels is {line['labels']!r}.",
                f"Expected some of {', '.join(sorted(concepts))} joined by '|', or {NONE!r} alone.",
            )
        if gold.setdefault(line["id"], labels) != labels:
            raise BadInput(f"{path}, line {number}: {line['id']!r} has other labels in an earlier line.")
    return gold


def draw_gold(pool: Mapping[str, frozenset[str]], wanted: int, seed: int) -> dict[str, frozenset[str]]:
    """A seeded choice of `wanted` gold questions, with the answers in shares as equal as possible.

    >>> pool = {f"p{i}": frozenset({"bus" if i else "none"}) for i in range(9)}
    >>> sorted(",".join(v) for v in draw_gold(pool, 3, 0).values())
    ['bus', 'bus', 'none']
    """
    strata: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for id_ in sorted(pool):
        strata[tuple(sorted(pool[id_]))].append(id_)
    for key, ids in strata.items():
        order = rng_for(seed, "gold", *key).permutation(len(ids))
        strata[key] = [ids[i] for i in order.tolist()]
    longest = max(map(len, strata.values()), default=0)
    answers = sorted(strata)
    in_turn = []
    for i in range(longest):  # the last round is for some answers only
        order = rng_for(seed, "gold round", i).permutation(len(answers)).tolist()
        in_turn += [strata[answers[k]][i] for k in order if i < len(strata[answers[k]])]
    return {id_: pool[id_] for id_ in in_turn[:wanted]}
