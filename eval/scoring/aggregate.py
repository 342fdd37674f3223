"""Rows of several runs → the numbers that `driftline eval --json` prints and the report draws."""

import math
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadInput, BadPlugin, shortened
from driftline.eval.experiment.runs import ours
from driftline.eval.protocol import MAJORITY, Protocol, Result, Score, primary_of, scores_of, stored_protocol
from driftline.eval.rows import Row, Run, digest, groups
from driftline.eval.scoring import published_values as published
from driftline.eval.scoring import ranking
from driftline.eval.scoring.bands import Array, half_width, share, student
from driftline.eval.scoring.comparing import Comparison, Scored, compare, score_of
from driftline.eval.scoring.ranking import comparable, rival
from driftline.eval.scoring.sums import Resampling, draws_of
from driftline.eval.settings import setting_names
from driftline.stream_builder.measures.label_correlation import half_width as of_runs

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Comparisons = list[tuple[list[int], Comparison]]


def summary(
    runs: Sequence[Run], stream: str, sha256: str, protocol: str, clusters: Array | None = None
) -> dict[str, Any]:
    """Rows of several runs → scores with mean, standard deviation (of the population) and values over seeds. clusters:
    of uploaders and near copies, as of `predictions.groups_of`, for tests of differences."""
    return compared(runs, stream, sha256, protocol, clusters)[0]


def compared(
    runs: Sequence[Run], stream: str, sha256: str, protocol: str, clusters: Array | None
) -> tuple[dict[str, Any], Comparisons]:
    """The `summary`, and of each group of comparable results that can be tested the positions of its rivals among the
    results, and how they differ."""
    results, together, draws = [], groups(runs), draws_of(runs, Resampling(groups=clusters))
    of = cache(lambda i: score_of(together[i], draws))
    for i, group in enumerate(together):
        about = group[0].about
        kind = stored_protocol(about["protocol"])
        if unknown := sorted(set(about["protocol_settings"]) - set(setting_names(kind))):
            problem = f"A run of {about['learner']} has the protocol setting {shortened(unknown[0])!r}."
            raise BadInput(problem, f"Expected settings of {about['protocol']}.", "Evaluate again.")
        copied = ("told", "budget", "learner_facts", "rules", "label_time")
        notes: dict[str, Any] = {key: about[key] for key in copied if key in about}
        instance = kind(**about["protocol_settings"])
        scored = [_score(instance, run) for run in group]
        tests = [instance.roles.decisive(run.rows) for run in group]
        matrices = [result.matrix for result in scored if result.matrix is not None]
        results.append(
            {
                "learner": about["learner"],
                "standing": about.get("standing", ""),
                "settings": {**about["settings"], **about["protocol_settings"]},
                "seeds": [run.about["seed"] for run in group],
                "runs": [digest(run) for run in group],
                "code": "other" if any(of_other_code(run) for run in group) else "this",
                **({"code_of": about["code_of"]} if "code_of" in about else {}),
                "codes": [run.about["code"] for run in group if "code" in run.about],
                **_each(group, "chosen", "selection", "kernel"),
                **({"draws": len(set(drawn))} if all(drawn := [run.about.get("tests") for run in group]) else {}),
                **({"published": values} if (values := published.beside(about)) else {}),
                "scores": {name: _spread([s.scores[name] for s in scored]) for name in scored[0].scores},
                "measures": {name: _spread([s.measures[name] for s in scored]) for name in scored[0].measures},
                **_of_classes(tests),
                "references": _references(instance, tests, group),
                "ci95": {name: half_width([s.scores[name] for s in scored]) for name in scored[0].scores},
                "ci95_samples": _over_samples(instance, group, partial(of, i), next(iter(scored[0].scores))),
                "matrix": plain(np.mean(matrices, axis=0)) if matrices else None,
                "curve": _mean_curve([s.curve for s in scored]),
                **notes,
                "stored_bytes": max(run.about["stored_bytes"] for run in group),
                "gradient_steps": max(run.about["gradient_steps"] for run in group),
                "seconds": round(sum(run.about["seconds"] for run in group), 3),
            }
        )
    document = {"protocol": protocol, "stream": {"name": stream, "sha256": sha256}, "results": results}
    position = {id(result): i for i, result in enumerate(results)}
    answered = {id(result): _answered(group) for result, group in zip(results, together, strict=True)}
    comparisons: Comparisons = []
    for rivals in comparable(document):
        first: dict[int, str] = {}  # what was answered → the learner that is listed first with it
        for result in rivals:
            same = first.setdefault(answered[id(result)], result["learner"])
            if same.partition("(")[0] != result["learner"].partition("(")[0]:
                result["same_as"] = same
        for result in rivals:
            result["p_against_best_adjusted"] = dict.fromkeys(score.name for score in scores_of(document))
        members = sorted(position[id(result)] for result in rivals if rival(result))
        chosen = [together[i] for i in members]
        if len(members) > 1 and (one := compare(chosen, scored=[*map(of, members)])) is not None:
            comparisons.append((members, one))
            _against_best([results[i] for i in members], one, primary_of(document))
    return document, comparisons


def _answered(group: Sequence[Run]) -> int:
    """A number that is equal for runs with equal tests and equal counts of right answers, class by class, for the same
    seeds."""
    rows = (
        (r.tested_on, r.learned_to, r.seen, r.corrections, r.n, r.n_correct, *r.class_correct)
        for run in group
        for r in run.rows
    )
    return hash((*(run.about["seed"] for run in group), *rows))


def of_other_code(run: Run) -> bool:
    """Whether other code than this computed a run: another driftline, another version of its learner or protocol where
    that is known, or files that were edited while it ran."""
    stored = run.about.get("code_of", {}).get("driftline", ours())
    return stored != ours() or bool(run.about.get("other_code") or run.about.get("edited_while_running"))


def _each(group: Sequence[Run], *keys: str) -> dict[str, list[Any]]:
    """What the record of each run says, for those keys that all records have."""
    return {key: [run.about[key] for run in group] for key in keys if all(key in run.about for run in group)}


def _score(protocol: Protocol, run: Run) -> Result:
    result = protocol.score(run.rows, run.about["steps"])
    if not isinstance(result, Result):
        raise BadPlugin(f"{type(protocol).__name__}.score returned {result!r}.", "Expected a driftline.ext.Result.")
    return result


def _over_samples(
    protocol: Protocol, group: Sequence[Run], scored: Callable[[], Scored | None], first: str
) -> dict[str, float]:
    """Half the 95 % interval of the primary score over other test samples of the same kind; {} where they are not
    known. scored: as of `score_of`. first: the primary score if the protocol names none. Tests that bring new
    samples each time are consecutive parts of a stream, whose answers may come in runs."""
    rows, fresh = protocol.roles.decisive(group[0].rows), tuple(protocol.roles.fresh)
    name = protocol.primary or first
    if fresh and rows and all(row.tested_on.startswith(fresh) for row in rows):
        return {name: of_runs(np.array([row.n_correct for row in rows]), np.array([row.n for row in rows]))}
    if (mean := scored()) is None or mean[0].clusters < 2:
        return {}
    of_samples = mean[0].variances()[0]
    return {name: float(student(mean[0].clusters) * np.sqrt(of_samples))}


def _against_best(results: Sequence[dict[str, Any]], one: Comparison, score: Score) -> None:
    """Add to every result the p of its difference from the best one, over other seeds and test samples, after Holm over
    all pairs of the results: the best was selected on the same scores, so any pair could have been the one shown (None:
    the best itself, no predictions, one seed, or other seeds). Upper bounds are no rivals."""
    for best in ranking.best(score, results)[:1]:
        place = next(i for i, result in enumerate(results) if result is best)
        for result, value in zip(results, one.adjusted[place].tolist(), strict=True):
            result["p_against_best_adjusted"][score.name] = None if np.isnan(value) else value


def _references(protocol: Protocol, tests: Sequence[Sequence[Row]], group: Sequence[Run]) -> dict[str, float]:
    """What answers without a model reach by the primary score, in mean over seeds: of the class that most training
    samples so far have, and those that the protocol's records name ("references" in "told")."""
    reached = [_majority(protocol, rows) for rows in tests]
    known = [value for value in reached if value is not None]
    references = {MAJORITY: float(np.mean(known))} if len(known) == len(reached) and known else {}
    stated = [run.about.get("told", {}).get("references", {}) for run in group]
    names = [name for name in stated[0] if all(name in other for other in stated)]
    return references | {name: float(np.mean([other[name] for other in stated])) for name in names}


def _majority(protocol: Protocol, rows: Sequence[Row]) -> float | None:
    """None for a protocol without decisive tests, and where training labels or those of a test are not known."""
    if not rows or any(row.constant < 0 or not (row.class_n or row.answers) for row in rows):
        return None
    right = np.zeros(len(rows))
    for k, row in enumerate(rows):
        if row.class_n:
            right[k] = row.class_n[row.constant] if row.constant < len(row.class_n) else 0
        elif row.answers is not None:
            right[k] = np.count_nonzero(row.answers.label == row.constant)
    return float(protocol.roles.pooled(right, np.array([row.n for row in rows], np.float64)))


def _of_classes(tests: Sequence[Sequence[Row]]) -> dict[str, Any]:
    """What the decisive tests of each run say of classes: `classes` has balanced accuracy, macro-F1, and for each label
    from 0 the samples of a run (`n`) and the mean recall over seeds, None without samples. `tests`: samples of one
    run. `constant`, if a test has one answer for all samples; `no_answer`, the share of samples without one. {} where a
    run has no such tests or predictions."""
    counts = [one for rows in tests if (one := counts_of(rows)) is not None]
    if len(counts) < len(tests) or not (size := max((one.shape[1] for one in counts), default=0)):
        return {}
    counts = [np.hstack([one, np.zeros((3, size - one.shape[1]), np.int64)]) for one in counts]
    n, recalls = np.stack([one[0] for one in counts]), np.stack([recall(one) for one in counts])
    answered = int(sum(one[2].sum() for one in counts))
    return {
        "classes": {
            "balanced_accuracy": _spread([balanced_accuracy(one) for one in counts]),
            "macro_f1": _spread([macro_f1(one) for one in counts]),
            "n": n.max(0).tolist(),
            "recall": [None if not of.any() else float(np.nanmean(r)) for r, of in zip(recalls.T, n.T, strict=True)],
        },
        "tests": int(n.sum(1).max()),
        **({"constant": True} if all(map(constant, tests)) else {}),
        **({"no_answer": 1 - answered / int(n.sum())} if answered < n.sum() else {}),
    }


def counts_of(rows: Sequence[Row]) -> Counts | None:
    """(3, C) samples, right answers and all answers of each class, of some tests; None without tests, and where one has
    no predictions."""
    answers = [row.answers for row in rows]
    present = [one for one in answers if one is not None]
    if not present or len(present) < len(answers):
        return None
    label, predicted = (
        np.concatenate([getattr(one, name) for one in present]).astype(np.int64) for name in ("label", "predicted")
    )
    size = 1 + max(int(label.max(initial=-1)), int(predicted.max(initial=-1)))
    each = (label, label[label == predicted], predicted[predicted >= 0])
    return np.stack([np.bincount(which, minlength=size) for which in each])


def recall(counts: Counts) -> Floats:
    """(C,) share of each class's samples that are right; NaN for a class without samples.

    >>> recall(np.array([[4, 2, 0], [3, 1, 0], [4, 1, 1]]))
    array([0.75, 0.5 ,  nan])
    """
    n, right, _ = counts
    return share(right, n)


def balanced_accuracy(counts: Counts) -> float:
    """Mean recall of the classes that have samples [Brodersen et al. 2010].

    >>> balanced_accuracy(np.array([[4, 2, 0], [3, 1, 0], [4, 1, 1]]))
    0.625
    """
    return float(np.nanmean(recall(counts)))


def macro_f1(counts: Counts) -> float:
    """Mean over the classes that have samples of F1, 2 · right / (samples + answers).

    >>> round(macro_f1(np.array([[4, 2, 0], [3, 1, 0], [4, 1, 1]])), 4)  # 6 / 8 and 2 / 3
    0.7083
    """
    n, right, answers = counts
    return float((2 * right / np.maximum(n + answers, 1))[n > 0].mean())


def constant(rows: Sequence[Row]) -> bool:
    """Whether each test has one answer for all of its samples, and some test has samples of several classes."""
    answers = [row.answers for row in rows if row.answers is not None and len(row.answers) > 1]
    several = any(np.ptp(one.label) > 0 for one in answers)
    return several and all(np.ptp(one.predicted) == 0 for one in answers)


def _spread(values: Sequence[float | None]) -> dict[str, Any]:
    """None: a seed that never got there; mean and deviation are of the others, and `reached` says how many."""
    reached = [value for value in values if value is not None]
    mean, sd = (float(np.mean(reached)), float(np.std(reached))) if reached else (None, None)
    count = {} if len(reached) == len(values) else {"reached": len(reached)}
    return {"mean": mean, "sd": sd, "values": list(values), **count}


def _mean_curve(curves: Sequence[Any]) -> dict[str, list[float]] | None:
    """Means over seeds. A curve that is shorter than another seed's keeps its last place and value, so that the mean
    ends where the runs end."""
    if not curves or curves[0] is None:
        return None
    size = {key: max(len(c[key]) for c in curves) if all(len(c[key]) for c in curves) else 0 for key in curves[0]}
    whole = {
        key: [[*c[key], *[c[key][-1]] * (n - len(c[key]))] if n else [] for c in curves] for key, n in size.items()
    }
    return {key: np.mean(values, axis=0).tolist() for key, values in whole.items()}


def plain(value: Any, without: frozenset[str] = frozenset(), digits: int | None = None) -> Any:
    """Dataclasses as objects, arrays and tuples as lists, NaN and infinity as None. without: names of fields that are
    left out, at any depth. digits: decimals of numbers; None: all.

    >>> plain({"a": np.array([1.5, np.nan]), "b": (np.int64(2), float("inf"))})
    {'a': [1.5, None], 'b': [2, None]}
    """
    if isinstance(value, float):
        number = float(value) if digits is None else round(float(value), digits)
        return number if math.isfinite(number) else None
    if isinstance(value, np.ndarray):
        listed = value.tolist()
        return plain(listed, without, digits) if value.dtype.kind == "f" else listed
    if is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in fields(value) if field.name not in without)
        return {name: plain(getattr(value, name), without, digits) for name in names}
    if isinstance(value, dict):
        return {str(key): plain(one, without, digits) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one, without, digits) for one in value]
    return value.item() if isinstance(value, np.generic) else value
