"""Answers → one verdict per image, with its votes; the rule and the answers in words, for cards and Croissant.

CLEAR keeps an image if 2 of 3 workers agree on the single expected label and too few call it sensitive [CLEAR,
supplement 1]. Where this text is ambiguous, a setting selects the interpretation.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.curate.core.parsing import rows_of
from driftline.curate.retrieval.settings import BACKGROUND
from driftline.curate.validation.answers.agreement import Votes, dawid_skene, summary, worker_table
from driftline.curate.validation.answers.answers import JUDGE, of_people
from driftline.curate.validation.asking.batches import expected_of
from driftline.curate.validation.settings import ValidationSettings

VERDICTS = pa.schema(
    [
        ("id", pa.string()),
        ("bucket", pa.int32()),
        ("concept", pa.string()),
        ("decision", pa.string()),
        ("votes", pa.string()),
        ("answers", pa.int32()),
        ("agreement", pa.float32()),
        ("sensitive", pa.int32()),
    ]
)

BY_CATALOGUE = "Labels of the collection; no annotator was asked."
NEEDED = {"agree", "rule", "aggregate", "confidence", "sensitive_hold", "sensitive_drop"}
# A photo may be asked for several concepts; its own verdict is the best of them, in this order.
BEST = ("kept", "held_for_review", "unsure", "no_majority", "several_concepts", "wrong_concept", "sensitive", "pending",
        "unlabelled")  # fmt: skip
ENOUGH_GOLD = 3  # fewer answers to gold questions are not evidence
LEAST_GOLD = 0.5  # share of them that must be right
ENOUGH = 10  # fewer answers do not show a habit
FASTEST = 0.1  # of the time that a typical worker needs; below it nobody looks at the image


def verdict(
    answers: Sequence[tuple[frozenset[str], bool]],
    concept: str,
    settings: ValidationSettings,
    joint: Mapping[frozenset[str], float] | None = None,
    people: int | None = None,
) -> str:
    """Answers (ticked checkboxes, called sensitive) to one image → "kept", or the reason why the image is dropped.

    The expected answer needs `settings.agree` votes and a strict majority, of all answers and of the people's: models
    cannot outvote people, and are no reason to keep what people doubt. people: how many of the answers, the first ones,
    are of people (default: all); without `settings.workers` of them the image is `pending`. joint: probability of each
    set of checkboxes, if workers are weighted; the expected one needs `settings.confidence` and the vote of a person;
    `unsure`: it is the most probable one, but not probable enough.

    >>> yes, other = (frozenset({"bus"}), False), (frozenset({"bus", "car"}), False)
    >>> rules = ValidationSettings()
    >>> verdict([yes, yes, other], "bus", rules), verdict([yes, other, other], "bus", rules)
    ('kept', 'several_concepts')
    """
    people = len(answers) if people is None else people
    if people < settings.workers:
        return "pending"
    sensitive = sum(flag for _, flag in answers)
    if sensitive >= settings.sensitive_drop:
        return "sensitive"
    expected = expected_of(concept)
    sets = [ticked for ticked, _ in answers]
    agreed = [ticked >= expected if settings.rule == "per-option" else ticked == expected for ticked in sets]
    if joint is not None:
        if joint.get(expected, 0.0) < settings.confidence:
            top = max(sorted(joint, key=sorted), key=lambda ticked: joint[ticked])
            return "unsure" if top == expected else "several_concepts" if len(top) > 1 else "wrong_concept"
        if not any(ticked == expected for ticked in sets[:people]):
            return "unsure"
    elif sum(agreed) < settings.agree or 2 * sum(agreed) <= len(agreed) or 2 * sum(agreed[:people]) <= people:
        top, votes = Counter(sets[:people]).most_common(1)[0]
        if top == expected or 2 * votes <= people or sets.count(top) < settings.agree:
            return "no_majority"
        return "several_concepts" if len(top) > 1 else "wrong_concept"
    return "held_for_review" if sensitive >= settings.sensitive_hold else "kept"


def _votes_by_image(table: pa.Table) -> dict[str, list[tuple[frozenset[str], bool]]]:
    """id → (ticked checkboxes, called sensitive) of each answer that counts. table: of ANSWERS."""
    votes: dict[str, list[tuple[frozenset[str], bool]]] = {}
    for id_, labels, sensitive, fault in rows_of(table, "id", "labels", "sensitive", "fault"):
        if fault is None:
            votes.setdefault(id_, []).append((frozenset(labels), sensitive))
    return votes


def tally(
    items: Sequence[dict[str, Any]],
    answers: pa.Table,
    settings: ValidationSettings,
    decided: Mapping[str, frozenset[str]] = MappingProxyType({}),
) -> pa.Table:
    """items: id, bucket, concept of everything asked; answers: table of ANSWERS → table of VERDICTS, item order.

    decided: id → the label set that judges give to an image which no person was asked; `pending` without it.
    """
    by_id = _votes_by_image(of_people(answers))
    by_judge = _votes_by_image(answers.filter(pc.starts_with(answers["worker"], JUDGE)))
    joint = {} if settings.aggregate == "votes" else joint_probabilities(answers)
    rows = []
    for item in items:
        people, judges = by_id.get(item["id"], []), by_judge.get(item["id"], [])
        everyone = people + judges
        votes = Counter(label for ticked, _ in everyone for label in ticked)
        most = max(Counter(ticked for ticked, _ in everyone).values(), default=0)
        if not people and item["id"] in decided:
            result = _of_judges(decided[item["id"]], item["concept"])
        else:
            result = verdict(everyone, item["concept"], settings, joint.get(item["id"]), len(people))
        rows.append(
            {
                **item,
                "decision": result,
                "votes": json.dumps(dict(sorted(votes.items()))),
                "answers": len(everyone),
                "agreement": most / len(everyone) if everyone else None,
                "sensitive": sum(flag for _, flag in everyone),
            }
        )
    return pa.Table.from_pylist(rows, schema=VERDICTS)


def _of_judges(labels: frozenset[str], concept: str) -> str:
    """The verdict of judges alone."""
    if labels == expected_of(concept):
        return "kept"
    return "several_concepts" if len(labels) > 1 else "wrong_concept"


def numbered(table: pa.Table) -> tuple[Votes, list[list[str]]] | None:
    """The answers that count, with numbers in place of names, and the names of items, workers and sets of labels
    (joined by "|") in the order of the numbers; None without an answer. table: of ANSWERS."""
    rows = [
        (id_, worker, "|".join(sorted(labels)))
        for id_, worker, labels, fault in rows_of(table, "id", "worker", "labels", "fault")
        if fault is None
    ]
    if not rows:
        return None
    columns = [np.unique(np.array(column, object), return_inverse=True) for column in zip(*rows, strict=True)]
    return Votes(*(numbers for _, numbers in columns)), [names.tolist() for names, _ in columns]


def joint_probabilities(answers: pa.Table) -> dict[str, dict[frozenset[str], float]]:
    """id → probability of each set of checkboxes that a worker ticked, by a model of the workers."""
    if (found := numbered(answers)) is None:
        return {}
    counted, (ids, _, labels) = found
    sets = [frozenset(label.split("|")) for label in labels]
    return {id_: dict(zip(sets, row, strict=True)) for id_, row in zip(ids, dawid_skene(counted).tolist(), strict=True)}


def agreement(answers: pa.Table, gold: Mapping[str, frozenset[str]] | None = None) -> dict[str, Any]:
    """Fleiss' κ, Krippendorff's α, the share of equal pairs, and a row for every worker (hashed id).

    gold: id → known labels: questions that do not count for κ, α and pairs, because they were chosen to be easy; adds
    to each worker the share of correct answers to them. `reasons` of a worker, and
    `suggest_reject` where there is one: gold questions below LEAST_GOLD on at least ENOUGH_GOLD answers, faster than
    FASTEST of the typical worker, one answer to everything against the others. They are suggestions for a person
    to check; nothing is rejected automatically.
    """
    if (found := numbered(answers)) is None:
        return {"answers": 0}
    counted, (ids, workers, labels) = found
    seconds = np.array([took for took, fault in rows_of(answers, "seconds", "fault") if fault is None], np.float64)
    timed = None if np.isnan(seconds).any() else seconds
    table = [row | {"worker": workers[row["worker"]]} for row in worker_table(counted, timed)]
    asked = ~np.isin(counted.items, [i for i, id_ in enumerate(ids) if gold and id_ in gold])
    columns = (column[asked] for column in (counted.items, counted.workers, counted.labels))
    open_ones = Votes(*columns) if asked.any() else None
    right: dict[str, list[bool]] = {}
    for item, worker, given in zip(counted.items, counted.workers, counted.labels, strict=True):
        if gold and ids[item] in gold:
            right.setdefault(workers[worker], []).append(frozenset(labels[given].split("|")) == gold[ids[item]])
    typical = None if timed is None else float(np.median([row["median_seconds"] for row in table]))
    for row in table:
        results = right.get(row["worker"], [])
        if gold:
            row |= {"gold_answers": len(results), "gold_right": float(np.mean(results)) if results else None}
        reasons = _reasons(row, results, typical)
        row |= {"suggest_reject": bool(reasons), "reasons": reasons}
    return {
        "answers": len(counted.items),
        "median_seconds": None if timed is None else float(np.median(timed)),
        **summary(open_ones),
        "workers": table,
    }


def _reasons(row: Mapping[str, Any], gold: Sequence[bool], typical: float | None) -> list[str]:
    """Why a worker's answers look like those of a program, or of nobody who looks; empty for a worker like others."""
    reasons = []
    if len(gold) >= ENOUGH_GOLD and sum(gold) < LEAST_GOLD * len(gold):
        reasons.append(f"{sum(gold) / len(gold):.0%} of {len(gold)} questions with known answers were right")
    if row["answers"] >= ENOUGH:
        if typical is not None and row["median_seconds"] < FASTEST * typical:
            reasons.append(f"{row['median_seconds']:g} seconds for an image, where {typical:g} are typical")
        if row["one_answer"] and row["agreement"] is not None and row["agreement"] < LEAST_GOLD:
            reasons.append(f"the same answer to all {row['answers']} images; {row['agreement']:.0%} agree with others")
    return reasons


def suggested_rejections(answers: pa.Table, report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(assignment, reasons) of all answers of workers with `suggest_reject` in a report of `agreement`."""
    poor = {row["worker"]: "; ".join(row["reasons"]) for row in report.get("workers", []) if row.get("reasons")}
    return [(name, poor[w]) for name, w in rows_of(answers, "assignment", "worker") if w in poor and name]


def verdicts_from_labels(
    items: Sequence[dict[str, Any]], catalogue: dict[str, str | None], labels: dict[str, str]
) -> pa.Table:
    """Verdicts from labels of the source (such as a museum's catalogue) instead of workers.

    catalogue: id → the source's label. labels: concept → the source's name of it. A background image is kept if its
    known label belongs to no concept; an image without a known label is `unlabelled`.
    """
    names = set(labels.values())
    rows = []
    for item in items:
        label = catalogue.get(item["id"])
        if label is None:
            result = "unlabelled"
        elif item["concept"] == BACKGROUND:
            result = "wrong_concept" if label in names else "kept"
        else:
            result = "kept" if label == labels[item["concept"]] else "wrong_concept"
        votes = json.dumps({label: 1} if label is not None else {})
        rows.append({**item, "decision": result, "votes": votes, "answers": int(label is not None), "sensitive": 0})
    return pa.Table.from_pylist(rows, schema=VERDICTS)


def rule_text(rules: Mapping[str, Any]) -> str:
    """What `verdict` and `tally` do with these rules. rules: method and further fields of ValidationSettings."""
    if rules["method"] != "crowd":
        return BY_CATALOGUE
    if not rules.keys() >= NEEDED:
        return "By answers of people; the rule was not recorded."
    if rules["aggregate"] != "dawid-skene":
        tick = "tick its class, with or without others" if rules["rule"] == "per-option" else "tick its class alone"
        text = f"An image is kept if at least {rules['agree']} answers, more than half of all and of people's, {tick}."
    else:
        text = (
            "An image is kept if a model of the workers (Dawid–Skene) gives its class alone a probability of at least "
            f"{rules['confidence']:g}, and at least one person ticked it alone."
        )
    if rules.get("skip_people") == "agreed":
        text += (
            f" Images on which all models agree are decided by the models alone, except a random share of "
            f"{rules['audit_share']:g}, which people answered."
        )
    least = min(rules["sensitive_hold"], rules["sensitive_drop"])
    return f"{text} An image that {least} or more answers call sensitive is left out."


def per_image(counts: Mapping[str, int]) -> str:
    """Answers an image. counts: answers → images.

    >>> per_image({"3": 90}), per_image({"2": 1, "3": 80, "5": 9})
    ('3', '2 to 5')
    """
    numbers = sorted(map(int, counts))
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def answers_text(answers: Mapping[str, Mapping[str, int]]) -> str:
    """How many answers the published images have; "" if nobody was asked. answers: "people", "judges" → answers →
    images.

    >>> answers_text({"people": {"2": 10, "3": 290}, "judges": {"1": 300}})
    'Published images have 2 to 3 answers of people (2: 10 images, 3: 290 images) and 1 of models.'
    """
    parts = []
    for who, name in (("people", "answers of people"), ("judges", "of models")):
        if counts := answers.get(who, {}):
            shown = ", ".join(f"{n}: {images:,} images" for n, images in counts.items())
            parts.append(f"{per_image(counts)} {name}" + (f" ({shown})" if len(counts) > 1 else ""))
    return f"Published images have {' and '.join(parts)}." if parts else ""


def agreement_texts(agreement: Mapping[str, Any] | None) -> list[str]:
    """How people agreed, and what models decided: a paragraph each, for those that are known. agreement: of
    release.json.

    >>> agreement_texts({"judged": {"judges": ["clip"], "unseen_labels": 1, "kept_labels": 2}})
    ['Models answered, too: clip. No person saw 1 of the 2 accepted labels.']
    """
    facts = agreement or {}
    texts = [*map(_deletion_text, facts.get("deleted", ())), *_people_texts(facts)]
    if judged := facts.get("judged"):
        text = f"Models answered, too: {', '.join(judged['judges'])}. No person saw {judged['unseen_labels']:,} of the "
        text += f"{judged['kept_labels']:,} accepted labels"
        if n := judged.get("audit", {}).get("images"):
            right, low = judged["audit"]["confirmed"], judged["audit"]["precision_low"]
            text += (
                f"; of {n:,} images that models had accepted, drawn at random, people confirmed {right:,}: a precision "
                f"of {right / n:.1%}, at least {low:.1%} (95 %, Clopper–Pearson)"
            )
        texts.append(f"{text}.")
    return texts


def _people_texts(facts: Mapping[str, Any]) -> list[str]:
    if "fleiss_kappa" not in facts:
        return []
    text = (
        f"{facts['workers']} workers gave {facts['answers']:,} answers; Fleiss' κ {facts['fleiss_kappa']}, "
        f"Krippendorff's α {facts['krippendorff_alpha']}, equal pairs {facts['pairwise']}."
    )
    if (right := facts.get("gold_right")) is not None:
        text += f" Of their {facts['gold_answers']:,} answers to gold questions, {right:.1%} were correct."
    return [text]


def _deletion_text(entry: Mapping[str, Any]) -> str:
    text = (
        f"{entry['date']}, after release {entry['release']}: the {entry['answers']:,} answers of {entry['people']:,} "
        f"people to {entry['images']:,} images were deleted, and all that names these people. What remains are the "
        "label and the votes of each image, and how far answers agreed (`deleted` in `release.json`)."
    )
    return " ".join([text, *_people_texts(entry["agreement"])])
