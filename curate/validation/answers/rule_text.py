"""The rule that decided on labels and the answers that were given, in words, for cards and Croissant."""

from collections.abc import Mapping
from typing import Any

BY_CATALOGUE = "Labels of the source's own catalogue; nobody was asked."
NEEDED = {"agree", "rule", "aggregate", "confidence", "sensitive_hold", "sensitive_drop"}
MODELS = {"one-coin": "a model of the workers (one coin)", "dawid-skene": "a model of the workers (Dawid–Skene)"}


def rule_text(rules: Mapping[str, Any]) -> str:
    """What `verdict` and `tally` do with these rules. rules: method and further fields of ValidationSettings."""
    if rules["method"] != "crowd":
        return BY_CATALOGUE
    if not rules.keys() >= NEEDED:
        return "By answers of people; the rule was not recorded."
    if (model := MODELS.get(rules["aggregate"])) is None:
        tick = "tick its class, with or without others" if rules["rule"] == "per-option" else "tick its class alone"
        text = f"An image is kept if at least {rules['agree']} answers, more than half of all and of people's, {tick}."
    else:
        text = (
            f"An image is kept if {model} gives its class alone a probability of at least {rules['confidence']:g}, and "
            "at least one person ticked it alone."
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
        "verdict and the votes of each image, and how far answers agreed (`deleted` in `release.json`)."
    )
    return " ".join([text, *_people_texts(entry["agreement"])])
