"""Numbers of a log for monitoring systems: Prometheus' text format, which its node exporter collects from files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

HELP = {
    "driftline_accuracy": "Accuracy in the last complete period of a version.",
    "driftline_age_days": "Days since the training data of a version ended, in that period.",
    "driftline_forecast": "Forecast accuracy of the furthest period.",
    "driftline_slope_per_period": "Change of accuracy per period since the training.",
    "driftline_half_life_days": "Days until half of the accuracy above chance is gone.",
    "driftline_predictions": "Rows of the log.",
    "driftline_labels": "Predictions with a label.",
    "driftline_alarm": "1 where the stated limit is crossed with confidence.",
}


def metrics_text(result: Mapping[str, Any]) -> str:
    """The text of `age --json`'s document: one gauge a line, with its interval as label `bound`.

    >>> print(metrics_text({"cells": [], "forecast": [], "slope_per_period": {"value": None}, "half_life_days": 9.0,
    ...                     "counts": {"read": 3, "labelled": 2}}), end="")
    # HELP driftline_half_life_days Days until half of the accuracy above chance is gone.
    # TYPE driftline_half_life_days gauge
    driftline_half_life_days 9.0
    # HELP driftline_predictions Rows of the log.
    # TYPE driftline_predictions gauge
    driftline_predictions 3
    # HELP driftline_labels Predictions with a label.
    # TYPE driftline_labels gauge
    driftline_labels 2
    """
    lines: dict[str, list[str]] = {}
    for name, labels, value in _gauges(result):
        if value is not None:
            of = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            lines.setdefault(name, []).append(f"{name}{'{' + of + '}' if of else ''} {value}")
    parts = [f"# HELP {name} {HELP[name]}\n# TYPE {name} gauge\n" + "\n".join(of) + "\n" for name, of in lines.items()]
    return "".join(parts)


def _gauges(result: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str], Any]]:
    last = {cell["version"]: cell for cell in result["cells"]}
    for version, cell in last.items():
        for bound, key in (("value", "accuracy"), ("low", "low"), ("high", "high")):
            yield "driftline_accuracy", {"version": version, "bound": bound}, cell[key]
        yield "driftline_age_days", {"version": version}, cell["age_days"]
    for version, one in {one["version"]: one for one in result["forecast"]}.items():
        for bound in ("value", "low", "high"):
            yield "driftline_forecast", {"version": version, "bound": bound}, one[bound]
    for bound, value in result["slope_per_period"].items():
        yield "driftline_slope_per_period", {"bound": bound}, value
    yield "driftline_half_life_days", {}, result["half_life_days"]
    yield "driftline_predictions", {}, result["counts"]["read"]
    yield "driftline_labels", {}, result["counts"]["labelled"]
    if "alarm" in result:
        yield "driftline_alarm", {}, int(result["alarm"]["crossed"])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
