"""Predictions: what a learner answered for each test sample at each test.

Answers, with how sure the learner is, are derived from what it gives and checked. They become both a row's counts and
records in one place, `Tally`. The records of a run are in `predictions.parquet` beside its rows; they name samples by
their position in the stream: steps in order, in each step train, val and test.
"""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.atomic_io import sha256_bytes, writing
from driftline.curate.core.errors import BadArray, BadInput, IncompatibleStream, IntegrityError, reason
from driftline.curate.core.late import pa
from driftline.eval import rows as row_files
from driftline.eval.learner import NO_ANSWER, Learner, best, small, sureness
from driftline.eval.rows import Answers, Row, Run
from driftline.stream_builder.step import Split
from driftline.stream_builder.stream import SPLITS, Stream

FILE = row_files.PREDICTIONS
MOST = 2**26  # records of one run
MEANING = {
    "row": "the line of `rows.parquet`, from 0 (int32)",
    "sample": "position in the stream: steps in order; in each step train, val, test (int32 or int64)",
    "label": "class of the sample (integer)",
    "predicted": "class that the learner answered (integer)",
    "group": "of the sample's uploader or near-duplicates (integer), if known",
    "confidence": "255 times the learner's probability that its answer is right (uint8), if known",
}
COLUMNS = tuple(MEANING)
ROUNDING = 1e-6  # of a confidence or probability
Labels = npt.NDArray[Any]
Test = tuple[slice, Labels, Labels, Labels | None]  # place among the records, samples, labels, groups


@dataclass
class Shared:
    """What runs have in common: equal arrays are one array, which saves memory and comparisons."""

    arrays: dict[tuple[str, bytes], Labels] = field(default_factory=dict)
    """type and content → array"""
    tests: dict[bytes, list[Test]] = field(default_factory=dict)
    """digest of a run's samples and labels → its tests"""


def numbered(stream: Stream) -> Stream:
    """The stream with the position of every sample."""
    total = sum(len(split) for step in stream.steps for split in step.splits.values())
    kind, steps, start = np.int32 if total < 2**31 else np.int64, [], 0
    for step in stream.steps:
        splits = dict(step.splits)
        for name in (name for name in SPLITS if name in splits):
            split = splits[name]
            positions: Labels = np.arange(start, start + len(split), dtype=kind)
            splits[name] = replace(split, position=positions)
            start += len(split)
        steps.append(replace(step, splits=splits))
    return replace(stream, steps=steps)


@dataclass
class Tally:
    """One test, while its answers come."""

    tested_on: str
    """of the row"""
    positions: list[Labels | None] = field(default_factory=list)
    """of the samples, part after part; None: not known"""
    labels: list[Labels] = field(default_factory=list)
    predicted: list[Labels] = field(default_factory=list)
    confidence: list[Labels | None] = field(default_factory=list)
    """of each answer of a part; None: it was not asked for, or there is none"""

    def add(
        self, positions: Labels | None, labels: Labels, predicted: Labels, confidence: Labels | None = None
    ) -> None:
        """Answers (N,) to samples with these positions and labels. confidence: (N,), 0 … 1."""
        self.positions.append(positions)
        self.labels.append(labels)
        self.predicted.append(predicted)
        self.confidence.append(confidence)

    def row(self, by_class: bool = False, **fields: Any) -> Row:
        """The row, with its records if all positions are known. by_class: also counts of each class."""
        labels, predicted = _joined(self.labels), _joined(self.predicted)
        right = labels == predicted
        if by_class:
            classes = int(labels.max()) + 1 if len(labels) else 0
            counts, hits = np.bincount(labels, minlength=classes), np.bincount(labels[right], minlength=classes)
            fields |= {"class_n": counts.tolist(), "class_correct": hits.tolist()}
        marked = [positions for positions in self.positions if positions is not None]
        answers = None
        if len(marked) == len(self.positions):
            answers = Answers(_joined(marked), labels, np.array(predicted), self._confidence())
        return Row(self.tested_on, len(labels), int(np.count_nonzero(right)), **fields, answers=answers)

    def _confidence(self) -> Labels | None:
        """(N,); None: nowhere."""
        if len(self.confidence) == 1 and self.confidence[0] is not None:  # nearly every test
            return np.array(self.confidence[0])  # a copy: torch's small blocks, kept, break up its memory
        if all(value is None for value in self.confidence):
            return None
        parts = zip(self.confidence, self.labels, strict=True)
        return _joined([np.full(len(part), np.nan) if c is None else c for c, part in parts])


def check_classes(rows: Sequence[Row], name: str, stream: Stream) -> None:
    """Raise BadArray for an answer of the learner `name` that is neither a class of the stream nor `NO_ANSWER`."""
    classes = len(stream.classes)
    for answers in (row.answers for row in rows if row.answers is not None and len(row.answers)):
        if answers.predicted.min() >= NO_ANSWER and answers.predicted.max() < classes:
            continue
        place = int(((answers.predicted < NO_ANSWER) | (answers.predicted >= classes)).argmax())
        splits = [step.splits[part] for step in stream.steps for part in SPLITS if part in step.splits]
        sample = np.concatenate([split.ids for split in splits])[answers.sample[place]]
        problem = f"{name} answered {answers.predicted[place]} to the sample {str(sample)!r}."
        raise BadArray(problem, f"Expected 0 … {classes - 1}, or {NO_ANSWER} for no answer.")


def recorded(confidence: Labels) -> npt.NDArray[np.float32]:
    """Confidences, 0 … 1 to rounding, as they are stored: float32 in steps of 1 / 255; NaN: not known."""
    return np.divide(np.rint(confidence * 255), 255, dtype=np.float32, casting="unsafe")


def table(rows: Sequence[Row], groups: Labels | None = None) -> "pa.Table | None":
    """The records of a run's rows as they are stored; the rows' own records become parts of it. None if a row that
    counts right answers has none. groups: (N,) number within the stream of each sample's group, by position.

    Numbers get their stored types here, for all tests at once: one test has too few samples for so many small steps.
    """
    tested = [(i, row.answers) for i, row in enumerate(rows) if row.answers is not None]
    if not tested:
        return None
    answers = [one for _, one in tested]
    sizes = [len(one) for one in answers]
    label, predicted = (small(np.concatenate([getattr(one, name) for one in answers])) for name in COLUMNS[2:4])
    sure = [np.full(len(one), np.nan) if one.confidence is None else one.confidence for one in answers]
    confidence = recorded(np.concatenate(sure))
    for one, (low, high) in zip(answers, pairwise([0, *accumulate(sizes)]), strict=True):
        one.label, one.predicted = label[low:high], predicted[low:high]
        one.confidence = None if one.confidence is None else confidence[low:high]
    if any(row.answers is None and row.n_correct for row in rows):
        return None
    columns: dict[str, Any] = {"row": np.repeat(np.array([i for i, _ in tested], np.int32), sizes)}
    columns |= {"sample": np.concatenate([one.sample for one in answers]), "label": label, "predicted": predicted}
    if groups is not None:
        columns["group"] = small(groups[columns["sample"]])
    if any(one.confidence is not None for one in answers):
        unknown = np.isnan(confidence)
        steps = np.rint(np.where(unknown, 0, confidence) * 255).astype(np.uint8)
        columns["confidence"] = pa.array(steps, mask=unknown if unknown.any() else None)
    return pa.table(columns)


def write(path: Path, records: "pa.Table | None") -> None:
    """Write the records, completely or not at all; nothing if there are none. `rows.save` is called next."""
    import pyarrow.parquet as pq

    if records is None:
        return
    # Bytes of equal weight are side by side: the upper ones are all zero, and a test that comes again, with another
    # model, repeats the lower ones of samples and labels. In memory first: Parquet writes in many small pieces.
    content = pa.BufferOutputStream()
    pq.write_table(
        records, content, compression="zstd", row_group_size=2**20, write_statistics=False, use_dictionary=False,
        column_encoding=dict.fromkeys(records.column_names, "BYTE_STREAM_SPLIT"), store_schema=False,
    )  # fmt: skip
    with writing(path, last=False) as file:
        file.write(content.getvalue())


def find(paths: Sequence[str | Path]) -> tuple[list[Run], list[str]]:
    """`load` of all runs below some folders, in path order. Raises as `rows.find`."""
    shared, folders = Shared(), row_files.folders([Path(path) for path in paths])
    runs, wrong = zip(*(load(folder, shared) for folder in folders), strict=True)
    return list(runs), list(filter(None, wrong))


def load(folder: Path, shared: Shared | None = None) -> tuple[Run, str]:
    """One run with its records, and what is wrong with them ("": nothing): then its rows have none."""
    run, path = row_files.load(folder), folder / FILE
    expected, data = run.about.get(row_files.PREDICTIONS_DIGEST), path.read_bytes() if path.is_file() else None
    try:
        if expected is not None and data is None:  # a protocol that records no samples expects none
            raise BadInput(f"{path} is missing.", "Expected the per-sample predictions of the run.", AGAIN)
        if expected is not None and data is not None and sha256_bytes(data) != expected:
            raise BadInput(f"{path} was changed after it was written.", f"Expected SHA-256 {expected}.", AGAIN)
        return Run(run.about, run.rows if data is None else attached(path, data, run.rows, shared)), ""
    except (BadInput, IntegrityError) as error:
        return run, str(error)


def check_stream(runs: Sequence[Run], stream: Stream) -> None:
    """Raise IncompatibleStream, naming both versions, if a run's predictions are of another stream: their positions
    would be those of other samples."""
    for run in runs:
        of = run.about["stream"]
        if of["sha256"] != stream.sha256:
            problem = f"The run of {run.about['learner']}, seed {run.about['seed']}, is of {of['name']!r}"
            raise IncompatibleStream(
                f"{problem}, version {of['sha256'][:12]}; the stream is {stream.name!r}, version {stream.sha256[:12]}.",
                "Expected the stream on which the run was evaluated.",
                "Name that one, or evaluate again.",
            )


def attached(path: Path, source: Any, rows: Sequence[Row], shared: Shared | None = None) -> list[Row]:
    """The rows with their records. path: for messages. source: its content, a file, or its path. shared: samples and
    labels of other runs; equal ones become one array, which saves memory and comparisons.

    Raises BadInput for a file that has no records, IntegrityError for records of rows that do not exist.
    """
    columns = _read(path, source)
    number, sample, label, predicted = (columns[name] for name in COLUMNS[:4])
    if len(number) and (number[-1] >= len(rows) or bool((number[1:] < number[:-1]).any())):
        raise IntegrityError(f"{path} has predictions of missing test results, or not in their order.", "", AGAIN)
    confidence, right = columns.get("confidence"), label == predicted
    gaps = confidence is not None and bool(np.isnan(confidence).any())
    edges = np.searchsorted(number, np.arange(len(rows) + 1)).tolist()
    tests = _tests(sample, label, columns.get("group"), edges, shared or Shared())
    out = []
    for row, (part, of, true, group) in zip(rows, tests, strict=True):
        if part.start < part.stop:
            sure = None if confidence is None else confidence[part]
            sure = None if sure is None or (gaps and np.isnan(sure).all()) else sure
            answers = Answers(of, true, predicted[part], sure, group)
            answers.right = right[part]
            row = row_files.changed(row, {"answers": answers})
        out.append(row)
    return out


def _tests(sample: Labels, label: Labels, group: Labels | None, edges: Sequence[int], shared: Shared) -> list[Test]:
    """Place, samples, labels and groups of each test; those of another run with the same tests, if there is one."""

    def once(array: Labels) -> Labels:
        return shared.arrays.setdefault((array.dtype.char, array.tobytes()), array)

    whole = hashlib.sha256(repr((edges, sample.dtype.char, label.dtype.char)).encode())
    whole.update(sample.tobytes())
    whole.update(label.tobytes())
    whole.update(b"" if group is None else group.tobytes())
    if whole.digest() not in shared.tests:
        parts = [slice(low, high) for low, high in pairwise(edges)]
        shared.tests[whole.digest()] = [
            (part, once(sample[part]), once(label[part]), None if group is None else once(group[part]))
            for part in parts
        ]
    return shared.tests[whole.digest()]


def groups_of(stream: Stream) -> Labels | None:
    """Cluster of each sample by position in the stream: its group of uploader and near-duplicates; None: not known."""
    splits = [step.splits[name] for step in stream.steps for name in SPLITS if name in step.splits]
    groups = [split.group for split in splits if split.group is not None]
    if len(groups) < len(splits):
        return None
    return np.asarray(np.unique(np.concatenate(groups), return_inverse=True)[1], np.int64)


def groups_in(runs: Sequence[Run]) -> Labels | None:
    """(N,) number within the stream of the group of each tested sample, by its position in the stream; None: the
    records of a run do not say it."""
    tests = {(id(row.answers.sample), id(row.answers.group)): row.answers
             for run in runs for row in run.rows if row.answers is not None}  # fmt: skip
    if not tests or any(answers.group is None for answers in tests.values()):
        return None
    groups = np.zeros(1 + max(int(answers.sample.max()) for answers in tests.values()), np.int64)
    for answers in tests.values():
        groups[answers.sample] = answers.group
    return groups


def _read(path: Path, source: Any) -> dict[str, Labels]:
    """The columns; a file of a few bytes may claim millions of records."""
    from driftline.curate.foreign.tables import BoundedParquet

    try:
        with BoundedParquet(pa.BufferReader(source) if isinstance(source, bytes) else source, path) as file:
            names = file.schema.names
            if file.rows > MOST:
                raise BadInput(f"{path} has {file.rows:,} records.", f"Expected at most {MOST:,}.")
            if names != [name for name in COLUMNS if name in COLUMNS[:4] or name in names]:
                raise BadInput(f"{path} has the columns {', '.join(names)[:200]}.", f"Expected {', '.join(COLUMNS)}.")
            table = file.read(threads=False)
            columns = {name: table[name].to_numpy() for name in names}
    except (pa.ArrowException, OSError, ValueError, LookupError) as error:
        raise BadInput(
            f"{path} cannot be read ({reason(error)}).", "Expected per-sample predictions of driftline eval."
        ) from None
    if "confidence" in columns:
        stored, values = table.schema.field("confidence").type, columns["confidence"]
        if stored != pa.uint8():
            raise BadInput(f"The column confidence of {path} has other values than 0 … 255.", "Expected those.")
        columns["confidence"] = values.astype(np.float32) / np.float32(255)
    for name in COLUMNS[: 4 + ("group" in columns)]:
        least = NO_ANSWER if name == "predicted" else 0
        if columns[name].dtype.kind not in "iu" or (len(columns[name]) and int(columns[name].min()) < least):
            raise BadInput(
                f"The column {name} of {path} has other values than numbers from {least}.", "Expected those."
            )
    return columns


AGAIN = "Evaluate again: delete the folder of the run."


def _joined(parts: Sequence[Labels]) -> Labels:
    return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.zeros(0, np.int64)


CHUNK = 8192  # samples predicted at once
Sure = tuple[Labels, Any]  # answers (N,), confidences (N,); None: not known


@cache
def answers_by_scores(kind: type) -> bool:
    """Whether `scores` answers and not `predict`: the one of both that the class or its nearest base defines."""
    own = (name for base in kind.__mro__ for name in ("predict", "scores") if name in vars(base))
    return next(own, "") == "scores"


def answers(learner: Learner, x: Any, n: int, ahead: int = 0) -> Labels:
    """The learner's answers (n,) for n samples. ahead: how many samples after the next one they come. Raises BadArray
    if they have another shape, or are no whole numbers."""
    predicted = learner.predict_ahead(x, ahead) if ahead else learner.predict(x)
    return _labels(learner, predicted[0] if isinstance(predicted, tuple) else predicted, n)


def sure_answers(learner: Learner, x: Any, n: int) -> Sure:
    """The same with confidences (n,). Raises BadArray."""
    kind = type(learner)
    if answers_by_scores(kind):
        scores = np.asarray(learner.scores(x))
        if scores.ndim != 2 or len(scores) != n:
            raise BadArray(f"{kind.__name__}.scores gave shape {scores.shape} for {n} samples.", "Expected (N, C).")
        labels = best(scores)
        return labels, sureness(scores, labels)
    predicted = learner.predict(x)
    labels, sure = predicted if isinstance(predicted, tuple) else (predicted, None)
    labels = _labels(learner, labels, n)
    if sure is not None and np.ndim(sure) == 2:
        shares = np.asarray(sure)
        there = (labels >= 0) & (labels < shares.shape[1])
        sure = np.where(there, shares[np.arange(n), np.where(there, labels, 0)], 0)
    return labels, checked_confidence(kind.__name__, sure, n)


def checked_confidence(name: str, values: Any, n: int) -> npt.NDArray[np.float64] | None:
    """What a learner gave as the confidence of n answers. Raises BadArray, which names the learner, if it has another
    shape or a value that is not in 0 … 1."""
    if values is None:
        return None
    confidence = np.asarray(values)
    if confidence.shape != (n,):
        problem = f"{name}.predict gave confidences of shape {confidence.shape} for {n} samples."
        raise BadArray(problem, "Expected (N,), or probabilities (N, C).")
    # Two ends cost half of what two masks do; NaN is neither.
    ends = (np.minimum.reduce(confidence), np.maximum.reduce(confidence)) if n else (0, 0)
    if not (ends[0] >= -ROUNDING and ends[1] <= 1 + ROUNDING):
        inside = (confidence >= -ROUNDING) & (confidence <= 1 + ROUNDING)
        problem = f"{name}.predict gave the confidence {confidence[int(inside.argmin())]!s} for a sample."
        raise BadArray(problem, "Expected a number from 0 to 1 for each answer, or labels alone.")
    return confidence


def _labels(learner: Learner, predicted: Any, n: int) -> Labels:
    """(n,) whole numbers; no answer, `NO_ANSWER` or None, is `NO_ANSWER`. `check_classes` needs the stream."""
    labels, name = np.asarray(predicted), f"{type(learner).__name__}.predict"
    if labels.shape != (n,):
        raise BadArray(f"{name} gave shape {labels.shape} for {n} samples.", f"Expected ({n},).")
    if labels.dtype.kind == "O":
        labels = np.array([NO_ANSWER if label is None else label for label in labels.tolist()])
    if labels.dtype.kind in "biu":
        return labels
    whole = np.isfinite(labels) & (labels == np.floor(labels)) if labels.dtype.kind == "f" else np.zeros(n, bool)
    if not whole.all():
        place = int(whole.argmin())
        problem = f"{name} answered {labels[place].item()!r} to sample {place} of {n} that were asked at once."
        raise BadArray(problem, f"Expected the number of a class, or {NO_ANSWER} for no answer.")
    return labels.astype(np.int64)


def evaluate_split(learner: Learner, split: Split, tested_on: str, begun: float, **at: int) -> Row:
    """Predict a split in chunks and count; the learner never sees the labels.

    begun: `time.process_time()` when the run began. at: `learned_to`, `seen`, `constant` and `corrections` of the
    row. Raises BadArray if the learner's answer has another shape than the labels.
    """
    tally = Tally(tested_on)
    for start in range(0, len(split), CHUNK):
        part = split.part(start, start + CHUNK)
        if part.position is None:  # nothing is recorded
            tally.add(None, part.y, answers(learner, part.x, len(part)))
        else:
            tally.add(part.position, part.y, *sure_answers(learner, part.x, len(part)))
    return tally.row(by_class=True, seconds=time.process_time() - begun, **at)
