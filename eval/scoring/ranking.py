"""Which results may be ranked with each other, and in which order: by the primary score of their protocol."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from driftline.eval.learners import LEARNERS
from driftline.eval.protocol import MAJORITY, Document, Score, kind_of, primary_of
from driftline.eval.settings import deciding

Result = dict[str, Any]  # one of a document's results


class Place(NamedTuple):
    """A result in the order of its rank."""

    name: str
    """of the learner, with the settings that differ"""
    result: Result
    group: int
    """number of its group of comparable results"""
    best: bool
    """whether its primary score is the best of its group (`best`); never true for an upper bound"""
    mark: str
    """what a table says behind the name: see `untuned`"""

    @property
    def shown(self) -> str:
        """Name and mark."""
        return f"{self.name} ({self.mark})" if self.mark else self.name


def protocol_settings(document: Document, result: Result) -> dict[str, Any]:
    """The settings of the protocol that decide a result's scores; `rules` is "own" where the learner did not obey the
    protocol's network, grid and validation."""
    kind = kind_of(document)
    settings = {name: result["settings"].get(name, getattr(kind, name, None)) for name in deciding(kind)}
    return settings | ({"rules": result["rules"]} if result.get("rules") else {})


def bound(result: Document) -> bool:
    """Whether a result is an upper bound: it is listed last and never the best."""
    return bool(result.get("standing") == "bound")


def rival(result: Document) -> bool:
    """Whether a result competes: an upper bound does not, nor one that is another one again (`same_as`)."""
    return not bound(result) and "same_as" not in result


def uses_unlabelled(learner: str) -> bool:
    """Whether a learner may learn from unlabelled samples; of a learner of others, nobody knows.

    >>> uses_unlabelled("self-training(epochs=5)"), uses_unlabelled("finetune"), uses_unlabelled("acme:Own")
    (True, False, True)
    """
    base = learner.partition("(")[0].strip()
    return base not in LEARNERS or LEARNERS[base].needs.unlabelled


def entry_of(score: Score, result: Document) -> Document:
    """Mean, standard deviation and values of a score or measure in one of a document's results; {} if it lacks it."""
    places = (result["scores"], result.get("measures", {}), result.get("classes", {}))
    entry: Document = next((place[score.name] for place in places if place.get(score.name)), {})
    return entry


def mean_of(score: Score, result: Document) -> float | None:
    """Over the seeds; None if no seed got there."""
    mean: float | None = entry_of(score, result).get("mean")
    return mean


def rank(score: Score, result: Document) -> tuple[float, float]:
    """Order of results, the larger the better: the share of the seeds that got there, then the gain of their mean.

    A mean over those seeds that got there is no match for one over all: the others might have needed very long.
    """
    values = entry_of(score, result).get("values") or [None]
    return sum(value is not None for value in values) / len(values), score.gain(mean_of(score, result))


def best(score: Score, results: Iterable[Document]) -> list[Document]:
    """The results (several if their means are equal) with the best mean, of those with the most seeds, if all of these
    got there; [] if there are none."""
    results = list(results)
    most = max((len(entry_of(score, result).get("values", ())) for result in results), default=0)
    whole = [r for r in results if rank(score, r)[0] == 1 and len(entry_of(score, r)["values"]) == most]
    top = max((rank(score, result) for result in whole), default=None)
    return [result for result in whole if rank(score, result) == top]


def comparable(document: Document) -> list[list[Result]]:
    """Groups of results with equal settings of the protocol: only these may be ranked with each other. Each group is in
    the order of the primary score, the best first; behind them those that some seeds never reached, upper bounds last.
    """
    groups: dict[str, list[Result]] = {}
    for result in document["results"]:
        key = json.dumps(protocol_settings(document, result), sort_keys=True, default=str)
        groups.setdefault(key, []).append(result)
    if not groups:
        return []
    score = primary_of(document)

    def place(result: Result) -> tuple[bool, float, float]:
        share, gain = rank(score, result)
        return bound(result), -share, -gain

    return [sorted(group, key=place) for group in groups.values()]


def ranked(document: Document) -> list[Place]:
    """All results of a document, group after group, the best of each first."""
    results = document["results"]
    names = {id(result): name for result, name in zip(results, labels(results), strict=True)}
    places = []
    for number, group in enumerate(comparable(document)):
        bests = best(primary_of(document), (r for r in group if not bound(r)))
        places += [Place(names[id(r)], r, number, any(r is other for other in bests), untuned(r, group)) for r in group]
    return places


def untuned(result: Document, group: Iterable[Document]) -> str:
    """Which settings a result has that others of its group chose on samples that are not scored, and it did not.

    >>> own, chose = {"settings": {"lr": 1.0}}, {"settings": {"lr": "auto", "tune": {"lr": [1.0, 3.0]}}}
    >>> untuned(own, [own, chose]), untuned(chose, [own, chose]), untuned({"settings": {}}, [chose])
    ('lr not tuned', '', '')
    """
    chosen_by_others = {name for other in group for name in other["settings"].get("tune", ())}
    left = chosen_by_others & set(result["settings"]) - set(result["settings"].get("tune", ()))
    return f"{', '.join(sorted(left))} not tuned" if left else ""


def differing(document: Document) -> list[str]:
    """For each group of `comparable`, the settings that distinguish it from the others, behind the document's `side`,
    if it has one; "" for a single group.

    >>> scores = {"worst": {"mean": 0.5, "sd": 0.0, "values": [0.5]}}
    >>> names = ("oracle", "random_50")
    >>> results = [{"learner": "er", "settings": {"policy": n}, "scores": scores} for n in names]
    >>> differing({"protocol": "ocrr", "results": results})
    ['policy=oracle', 'policy=random_50']
    """
    settings = [protocol_settings(document, group[0]) for group in comparable(document)]
    every = {key: None for group in settings for key in group}
    keys = [key for key in every if any(s.get(key) != settings[0].get(key) for s in settings)]
    side = [document["side"]] if "side" in document else []
    return [", ".join([*side, *(f"{key}={s[key]}" for key in keys if key in s)]) for s in settings]


def parts(document: Document) -> list[dict[str, Any]]:
    """A document for each of its groups of comparable results, in the order of rank: each result has its `label` beside
    the registered name (`learner`), `is_best`, `mark` (see `untuned`), and `place`, its position in the whole document;
    `setting` names the group where there are several; `tested` and `when_old` are its facts of the document's
    `compared` and `old`, None without. A document without results is one part."""
    whole = [{**document, "setting": ""}]
    place = {id(result): k for k, result in enumerate(document["results"])}
    alone = []
    for group, setting in zip(comparable(document), differing(document), strict=True):
        bests = best(primary_of(document), (r for r in group if rival(r)))
        results = [
            {**r, "label": label, "is_best": any(r is other for other in bests), "place": place[id(r)]}
            | {"mark": untuned(r, group)}
            for r, label in zip(group, distinct(labels(group)), strict=True)
        ]
        places = {place[id(r)] for r in group}
        facts = {
            name: next((one for one in document.get(key, ()) if places.issuperset(one["members"])), None)
            for name, key in (("tested", "compared"), ("when_old", "old"))
        }
        alone.append({**document, "results": results, "setting": setting, **facts})
    return alone or whole


def references(results: Sequence[Result]) -> dict[str, float]:
    """What answers without a model reach by the primary score of comparable results: one number where all agree, else
    the first, which differs by what a seed draws. Without the class that `majority` answers, if it is among them."""
    reached: dict[str, float] = {}
    for result in results:
        reached = {**result.get("references", {}), **reached}
    if any(result["learner"] == "majority" for result in results):
        reached.pop(MAJORITY, None)
    return reached


def distinct(names: Sequence[str]) -> list[str]:
    """No two are equal: of rows that differ in nothing that is recorded, the number is added.

    >>> distinct(["er", "ft", "er"])
    ['er', 'ft', 'er, row 3']
    """
    return [name if name not in names[:k] else f"{name}, row {k + 1}" for k, name in enumerate(names)]


def labels(results: Sequence[Result]) -> list[str]:
    """Learners' names, with the settings that differ if a learner has several results.

    >>> labels([{"learner": "ft", "settings": {"network": n, "epochs": 2}} for n in ("conv-1", "res-4")])
    ['ft, network=conv-1', 'ft, network=res-4']
    """
    names = []
    for result in results:
        settings = [other["settings"] for other in results if other["learner"] == result["learner"]]
        differ = [key for key, value in result["settings"].items() if any(s.get(key, value) != value for s in settings)]
        code = _code_of(result, results)
        name = ", ".join([result["learner"], *(f"{key}={result['settings'][key]}" for key in differ), *code])
        names.append(name)
    return names


def _code_of(result: Result, results: Sequence[Result]) -> list[str]:
    """What tells a result from those of the same learner and settings that other code computed."""
    own = result.get("code_of", {})
    others = [
        other.get("code_of", {})
        for other in results
        if (other["learner"], other["settings"]) == (result["learner"], result["settings"])
    ]
    return [f"code of {k}={v.removeprefix('driftline ')}" for k, v in own.items() if any(o.get(k) != v for o in others)]
