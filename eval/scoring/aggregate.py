"""Rows of several runs → the numbers that `driftline eval --json` prints and the report draws."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eval.experiment.learner_spec import named
from eval.learners import LEARNERS
from eval.protocol import PROTOCOLS
from eval.rows import Run, digest
from eval.scoring import published_values as published
from eval.scoring.significance import half_width, paired


def summary(runs: Sequence[Run], stream: str, sha256: str, protocol: str) -> dict[str, Any]:
    """Rows of several runs → scores with mean, standard deviation (of the population) and values over seeds."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        key = json.dumps([run.about["learner"], run.about["settings"], run.about["protocol_settings"]], sort_keys=True)
        groups.setdefault(key, []).append(run)
    results = []
    for group in groups.values():
        about = group[0].about
        walk = PROTOCOLS[about["protocol"]](**about["protocol_settings"])
        scored = [walk.score(run.rows, about["steps"]) for run in group]
        results.append(
            {
                "learner": about["learner"],
                "settings": {**about["settings"], **about["protocol_settings"]},
                "seeds": [run.about["seed"] for run in group],
                "runs": [digest(run) for run in group],
                **({"chosen": [run.about["chosen"] for run in group]} if "chosen" in about else {}),
                **({"published": told} if (told := _published(about)) else {}),
                "scores": {name: _spread([s["scores"][name] for s in scored]) for name in scored[0]["scores"]},
                "measures": {name: _spread([s["measures"][name] for s in scored]) for name in scored[0]["measures"]},
                "per_class": _mean_by_class([s["by_class"] for s in scored]),
                "ci95": {name: _half_width([s["scores"][name] for s in scored]) for name in scored[0]["scores"]},
                "matrix": _mean_matrix([s["matrix"] for s in scored]),
                "curve": _mean_curve([s.get("curve") for s in scored]),
                **({"told": about["told"]} if "told" in about else {}),
                **({"budget": about["budget"]} if "budget" in about else {}),
                **({"learner_facts": about["learner_facts"]} if "learner_facts" in about else {}),
                "stored_bytes": max(run.about["stored_bytes"] for run in group),
                "gradient_steps": max(run.about["gradient_steps"] for run in group),
                "seconds": round(sum(run.about["seconds"] for run in group), 3),
            }
        )
    _compare(results)
    return {"protocol": protocol, "stream": {"name": stream, "sha256": sha256}, "results": results}


def labels(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Learners' names, with the settings that differ where a learner has several results.

    >>> labels([{"learner": "ft", "settings": {"network": n, "epochs": 2}} for n in ("conv-1", "res-4")])
    ['ft, network=conv-1', 'ft, network=res-4']
    """
    found = []
    for result in results:
        of = [r["settings"] for r in results if r["learner"] == result["learner"]]
        differ = [key for key, value in result["settings"].items() if any(s.get(key, value) != value for s in of)]
        found.append(", ".join([result["learner"], *(f"{key}={result['settings'][key]}" for key in differ)]))
    return found


def _published(about: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """What the stream's paper printed for this learner, if the run's settings are the ones it is named for."""
    name = about["learner"]
    if "published" not in about or name.partition("(")[0] not in LEARNERS:
        return {}
    usual = [named(name)[1]().settings(), dataclasses.asdict(PROTOCOLS[about["protocol"]]())]
    same = json.dumps([about["settings"], about["protocol_settings"]], sort_keys=True) == json.dumps(
        usual, sort_keys=True
    )
    return published.values(about["published"], about["protocol"], name) if same else {}


def _compare(results: Sequence[dict[str, Any]]) -> None:
    """Add to every result, by score, the p of a paired test against the best learner's same seeds (None: itself, or one
    seed, or other seeds)."""
    for result in results:
        result["p_against_best"] = {}
    for name in results[0]["scores"] if results else []:
        best = max(results, key=lambda r: -np.inf if r["scores"][name]["mean"] is None else r["scores"][name]["mean"])
        for result in results:
            values = result["scores"][name]["values"], best["scores"][name]["values"]
            same = result is not best and result["seeds"] == best["seeds"] and None not in [*values[0], *values[1]]
            result["p_against_best"][name] = paired(*values) if same else None


def _mean_by_class(found: Sequence[list[float | None] | None]) -> list[float | None] | None:
    if not found or any(f is None for f in found):
        return None
    columns = zip(*(f for f in found if f is not None), strict=True)
    return [None if None in column else float(np.mean([c for c in column if c is not None])) for column in columns]


def _spread(values: Sequence[float | None]) -> dict[str, Any]:
    """None: a seed that never got there; mean and deviation are of the others, and `reached` says how many."""
    there = [v for v in values if v is not None]
    mean, sd = (float(np.mean(there)), float(np.std(there))) if there else (None, None)
    return {"mean": mean, "sd": sd, "values": list(values)} | (
        {} if len(there) == len(values) else {"reached": len(there)}
    )


def _half_width(values: Sequence[float | None]) -> float | None:
    there = [v for v in values if v is not None]
    return half_width(there) if len(there) == len(values) else None


def _mean_curve(curves: Sequence[Any]) -> dict[str, list[float]] | None:
    """Means over seeds; they were all taken at the same places."""
    if not curves or curves[0] is None:
        return None
    shared = {key: min(len(curve[key]) for curve in curves) for key in curves[0]}  # seeds may differ in length
    return {key: np.mean([curve[key][:n] for curve in curves], axis=0).tolist() for key, n in shared.items()}


def _mean_matrix(matrices: Sequence[Any]) -> list[list[float | None]] | None:
    if matrices[0] is None:
        return None
    mean = np.mean(np.stack(matrices), axis=0)
    return [[None if np.isnan(cell) else float(cell) for cell in row] for row in mean]
