"""What `evaluate` returns: the document of `driftline eval --json`, as data frames, a chart, a page and a notebook's
table."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from driftline.curate.core.late import pd
from driftline.curate.foreign.notebook import Strong, table
from driftline.eval.protocol import primary_of, scores_of
from driftline.eval.reporting.exports import CLASS_COLUMNS, SCORE_COLUMNS, class_records, score_records
from driftline.eval.reporting.text import spread
from driftline.eval.rows import Run, stored_name
from driftline.eval.scoring.net import NO_CONTROL, Control
from driftline.eval.scoring.ranking import ranked
from driftline.stream_builder.stream import SPLITS, Stream

if TYPE_CHECKING:
    from driftline.eval.plotting.charts import Figure


class Results(dict[str, Any]):
    """A dictionary with the keys "protocol", "stream", "results" and "skipped"."""

    runs: Sequence[Run] = ()
    """the runs behind it"""
    on: Stream | None = None
    """the stream that they ran on; None where each seed had its own draw"""
    control: Control = NO_CONTROL
    """where nothing can age"""

    @property
    def best(self) -> str | None:
        """The learner with the best primary score of its protocol; None without results."""
        return next((place.name for place in ranked(self) if place.best), None)

    def frame(self, by_class: bool = False) -> "pd.DataFrame":
        """One row for each learner, score and seed, the best learner first, with the columns of a report's
        scores.csv; value: NaN for a score that the run never reached. Behind them a row for each learner that was
        skipped: the primary score without a value, and the reason in `skipped`.

        by_class: one row for each learner and class in their place: test samples of a run (`n`) and mean `recall` over
        seeds, NaN for a class without tests."""
        if by_class:
            of_classes = pd.DataFrame(class_records(self), columns=CLASS_COLUMNS)
            return of_classes.astype({"n": int, "recall": float})
        rows = [row | {"skipped": ""} for row in score_records([self])]
        score = primary_of(self) if self["results"] else None
        about = {"stream": self["stream"]["name"], "stream_sha256": self["stream"]["sha256"]}
        about |= {"protocol": self["protocol"], "score": score.name if score else ""}
        rows += [about | {"learner": entry["learner"], "skipped": entry["because"]} for entry in self["skipped"]]
        columns = [*SCORE_COLUMNS, "skipped"]
        return pd.DataFrame(rows, columns=columns).astype({"value": float, "seed": "Int64"})

    def matrix(self) -> "pd.DataFrame":
        """One row for each learner and step that it learned, the best learner first, one column for each tested step:
        accuracy, mean over seeds, NaN where it was not tested. Empty for a protocol without a matrix."""
        parts = {
            place.name: pd.DataFrame(np.array(place.result["matrix"], np.float64))
            for place in ranked(self)
            if place.result["matrix"]
        }
        return pd.concat(parts, names=["learner", "trained_to"]) if parts else pd.DataFrame()

    def ageing(self) -> "pd.DataFrame":
        """One row for each learner and age, the best learner first: accuracy with the ends of its 95 % interval, and
        the part of the fall that is the model's own age (`older`); age is in `unit`. Empty where no learner was tested
        after its training."""
        whole = self.whole()
        about, names = whole.get("ageing") or {"unit": "", "results": ()}, {}
        for place in ranked(whole):
            names[id(place.result)] = place.name
        ends = {"accuracy": "value", "low": "low", "high": "high"}
        rows = [
            {"learner": names[id(result)], "age": age, "unit": about["unit"]}
            | {name: float(getattr(one.curve.accuracy, end)[k]) for name, end in ends.items()}
            | {"older": float(one.older.value[k])}
            for result, one in zip(whole["results"], about["results"], strict=False)
            if one is not None
            for k, age in enumerate(one.curve.age.tolist())
        ]
        columns = ["learner", "age", "unit", "accuracy", "low", "high", "older"]
        order = list(names.values())
        return pd.DataFrame(rows, columns=columns).sort_values(
            "learner", key=lambda column: column.map(order.index), kind="stable", ignore_index=True
        )

    def predictions(self) -> "pd.DataFrame":
        """One row for each test sample and test: learner, seed, test (`tested_on`, `learned_to`), sample (position in
        the stream), id and time of the sample where the stream is known, label, answer (`predicted`), confidence."""
        tests = [(run.about, row, row.answers) for run in self.runs for row in run.rows if row.answers is not None]
        sizes = [len(one) for _, _, one in tests]
        of_tests = {
            "learner": [about["learner"] for about, _, _ in tests],
            "seed": [about["seed"] for about, _, _ in tests],
            "tested_on": [row.tested_on for _, row, _ in tests],
            "learned_to": [row.learned_to for _, row, _ in tests],
        }
        whole = pd.DataFrame({name: np.repeat(values, sizes) for name, values in of_tests.items()})
        for name in ("sample", "label", "predicted"):
            whole[name] = np.concatenate([np.zeros(0, np.int64), *(getattr(one, name) for _, _, one in tests)])
        confidences = [np.full(len(one), np.nan) if one.confidence is None else one.confidence for *_, one in tests]
        whole["confidence"] = np.concatenate([np.zeros(0, np.float32), *confidences]).astype(np.float32)
        if self.on is None or whole.empty:
            return whole
        splits = [step.splits[name] for step in self.on.steps for name in SPLITS if name in step.splits]
        ids = np.concatenate([split.ids for split in splits])
        whole.insert(5, "id", ids[whole["sample"].to_numpy()])
        if all(split.time is not None for split in splits):
            times = np.concatenate([np.asarray(split.time, np.int64) for split in splits])
            whole.insert(6, "time", pd.to_datetime(times[whole["sample"].to_numpy()], unit="s", utc=True))
        return whole

    def whole(self) -> dict[str, Any]:
        """The document with what a report says beyond scores: ageing, which learners differ."""
        from driftline.eval.reporting.report import FEW_RUNS, document_of

        about = self["stream"]
        key = (about["sha256"], self["protocol"], about["name"])
        runs = [replace(run, about=json.loads(json.dumps(run.about, sort_keys=True, default=str))) for run in self.runs]
        runs.sort(key=lambda run: stored_name(run.about))  # as rows are read: the page is the same
        return {**self, **document_of(runs, key, self.on, len(runs) > FEW_RUNS, self.control)} if runs else {**self}

    def plot(self, name: str = "") -> "Figure":
        """A chart of the report's pages, for a notebook: the first, or the one of this title, as in
        "cost-against-accuracy". Raises IncompatibleStream without charts, UnknownName for another title."""
        from driftline.eval.reporting.pages import chart

        return chart([self.whole()], name, [] if self.on is None else [self.on])

    def json(self) -> str:
        """The document of `driftline eval --json`."""
        return json.dumps(self)

    def page(self, out: str | Path) -> Path:
        """Write the report's pages into the folder `out`; returns the path of index.html."""
        from driftline.eval.reporting.report import report

        return report(self, out)

    def __repr__(self) -> str:
        seeds = max((len(result["seeds"]) for result in self.get("results", ())), default=0)
        about = f"{len(self.get('results', ()))} learners, {seeds} seeds, {len(self.get('skipped', ()))} skipped"
        return f"<Results of {self.get('protocol')} on {self.get('stream', {}).get('name')}: {about}>"

    def _repr_html_(self) -> str:
        """The score table, the best learner first; the best primary score is bold."""
        scores, places = scores_of(self), ranked(self)
        primary = primary_of(self) if places else None
        rows: list[list[object]] = []
        for place in places:
            texts = [spread(score, place.result).replace(" ", "\N{NO-BREAK SPACE}") for score in scores]
            bold = [place.best and score == primary for score in scores]
            rows.append([place.shown, *(Strong(t) if b else t for t, b in zip(texts, bold, strict=True))])
        seeds = max((len(place.result["seeds"]) for place in places), default=0)
        title = f"{self['protocol']} on {self['stream']['name']}"
        note = "Shares are in %." + (f" Mean ± standard deviation over {seeds} seeds." if seeds > 1 else "")
        skipped = [f"{entry['learner']} was skipped: {entry['because']}" for entry in self["skipped"]]
        return table(title, ["learner", *(score.label for score in scores)], rows, note if rows else "", *skipped)
