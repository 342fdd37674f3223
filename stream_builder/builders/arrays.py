"""Arrays, in memory or in an `.npz` file → a stream."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from driftline.curate.core.errors import BadArray, BadInput, reason
from driftline.curate.core.late import pa
from driftline.curate.core.times import count_of
from driftline.curate.foreign.arrays import moments_of, read_arrays
from driftline.curate.foreign.limits import CLASSES
from driftline.stream_builder.rows import Rows, check_ids, periods_of, stepped
from driftline.stream_builder.splitting import FACT, KEPT
from driftline.stream_builder.step import check
from driftline.stream_builder.stream import SPLITS, Array, Split, Stream

KEYS = {"x", "y", "step", "time", "label_time", "split", "group", "test_in", "id", "classes"}
EXPECTED = "Expected arrays x and y saved with numpy.savez, without Python objects."
NAMED = {"y", "split", "group", "id", "classes"}  # arrays that may be texts


def from_arrays(
    source: str | Path | Mapping[str, Any],
    test_share: float = 0.3,
    seed: int = 0,
    grouping: Literal["grouped", "random"] = "grouped",
    period: str | int = 10,
) -> Stream:
    """Turn arrays in an .npz file into a stream.

    Without steps, times are cut into steps; without splits, a test split is random. From Python also arrays by name, or
    what pandas holds: a data frame as x, series.

    source FILE.npz: Arrays x and y; optional step, time, label_time, split, group, id, classes, test_in.

    `x (N, …)` floats, which become float32 unless they are float16, or uint8 `(N, H, W, 3)`; `y (N,)` integers from 0,
    or names of classes; optional `step (N,)` integers from 0, `time (N,)` dates, years, ISO 8601 or numbers since 1970,
    `label_time (N,)` the same for labels that come later than their samples, or none (null, NaT, NaN, infinity) for one
    that never comes: protocols that delay labels do not show it to learners, and score it; `split (N,)` of train, val
    and test, `group (N,)` whose equal values share an uploader or are near-duplicates, `test_in (N, K)` truths as in
    `Split`, `id (N,)`, `classes (C,)`. The order within a step and split is kept, also of equal times, and has meaning:
    bring it into another one if it has none.

    Without `step`, samples are put in order of time and cut into steps: period is their number (fewer if there are
    fewer times; about equally many samples each, equal times in one), or year, month, week, day. Without `split`, a
    random `test_share` of every step and class becomes the test split; grouping "grouped" keeps each group in one
    split, if there are groups. What was made is in the stream's facts ("made"), and what looks wrong ("check").

    Raises MissingFile, BadConfig, BadArray or BadInput naming the array and the first bad index, and IncompatibleStream
    if groups leave a step without test samples.
    """
    if isinstance(source, Mapping):
        name, what, arrays = "arrays", "the arrays", {key: _array(array) for key, array in source.items()}
    else:
        if not isinstance(source, str | Path):
            raise BadInput(f"The source is a {type(source).__name__}.", "Expected a file, or arrays by name: x and y.")
        path = Path(source)
        name, what, arrays = path.stem, str(path), read_arrays(path, EXPECTED)
    samples, classes, doubts = _samples_of(arrays, what)
    if "id" in arrays:
        check_ids(samples.ids, what, "index {}".format)
    facts = {"from": "arrays"} | ({} if isinstance(source, Mapping) else {"file": path.name})
    facts |= {} if samples.time is None else {FACT: KEPT}
    if "classes" not in arrays and (empty := sorted(set(range(len(classes))) - set(samples.y.tolist()))):
        counts = f"{len(empty):,} of {len(classes):,} classes have no sample, the first is {empty[0]}"
        doubts.append(f"{counts}: number the classes from 0 without gaps, or give y as names")
    if samples.x.shape[1:2] == (3,) and samples.x.dtype == np.uint8:
        size = " × ".join(map(str, samples.x.shape[1:3]))
        doubts.append(f"images are {size} pixels (height, width): if channels are first, x.transpose(0, 2, 3, 1)")
    facts |= {"check": "; ".join(doubts)} if doubts else {}
    order = np.arange(len(samples))
    if "step" in arrays or samples.time is None:
        step = arrays.get("step", np.zeros(len(samples), np.int64))
        if step.dtype.kind not in "iu" or step.min() < 0:
            raise BadArray(f"{what}: step has dtype {step.dtype}, or negative numbers.", "Expected integers from 0.")
        values, step = np.unique(step, return_inverse=True)
        names = [str(value) for value in values.tolist()]
    else:
        order = np.argsort(samples.time, kind="stable")
        step, names = periods_of(samples.time[order], period)
        how = "with about equally many samples, cut by time" if count_of(period) else f"of a {period}"
        facts["made"] = f"{len(names)} steps {how}"
    rows = Rows(name, samples, classes, _sides(arrays["split"], what) if "split" in arrays else None)
    return stepped(rows, order, step, names, test_share, seed, facts, grouping)


def _samples_of(arrays: Mapping[str, Array], what: str) -> tuple[Split, list[str], list[str]]:
    """All samples as a stream has them, the names of the classes, and what looks wrong."""
    if missing := {"x", "y"} - set(arrays):
        raise BadInput(
            f"{what}: {', '.join(sorted(missing))} is missing.", f"There is {', '.join(sorted(arrays)) or 'nothing'}."
        )
    if unknown := set(arrays) - KEYS:
        raise BadInput(
            f"{what}: unknown array {', '.join(sorted(unknown))}.", f"Expected only {', '.join(sorted(KEYS))}."
        )
    x = arrays["x"]
    n = len(arrays["y"]) if arrays["y"].ndim else 0
    if n == 0 or x.ndim == 0 or len(x) == 0:
        raise BadArray(f"{what}: no samples.", "Expected at least one.")
    x = _samples(x, what)
    for key in (KEYS - {"x", "y", "classes"}) & set(arrays):
        sides = key == "test_in" and arrays[key].dtype == bool and arrays[key].ndim == 2
        if (arrays[key][:, 0] if sides else arrays[key]).shape != (n,):
            raise BadArray(f"{what}: {key} has shape {arrays[key].shape}.", f"Expected ({n},).")
    arrays = {key: _readable(array, key, what) if key in NAMED else array for key, array in arrays.items()}
    y, classes = _labels(arrays, what)
    check(x, y, len(classes), what)
    if "label_time" in arrays and "time" not in arrays:
        raise BadInput(f"{what}: label_time is there, and time is missing.", "Expected both, or neither.")
    columns, doubts = _ids_times_and_groups(arrays, what)
    return Split(x, y, **columns, test_in=arrays.get("test_in")), classes, doubts


def _readable(array: Array, key: str, what: str) -> Array:
    """Numbers as they are, texts as text. Raises BadArray for other kinds, and for bytes and code points that are
    none."""
    if array.dtype.kind in "biuf":
        return array
    if array.dtype.kind == "O":
        place = next(i for i, value in enumerate(array.ravel().tolist()) if not isinstance(value, str))
        raise BadArray(f"{what}: {key} is {array.ravel()[place]!r} at index {place}.", "Expected numbers or texts.")
    try:
        if array.dtype.kind not in "US":
            raise ValueError(f"its dtype is {array.dtype}")
        texts = np.char.decode(array, "utf-8", "replace") if array.dtype.kind == "S" else array
        "".join(texts.ravel().tolist()).encode()
    except (ValueError, SystemError) as error:  # SystemError: a code point beyond Unicode
        raise BadArray(f"{what}: {key} is no text ({reason(error)}).", "Expected numbers or texts.") from None
    return texts


def _labels(arrays: Mapping[str, Array], what: str) -> tuple[Array, list[str]]:
    """(N,) labels and class names. Labels that are names become numbers, in the order of `classes` or sorted."""
    y = np.char.lower(arrays["y"].astype(np.str_)) if arrays["y"].dtype.kind == "b" else arrays["y"]
    declared = [str(c) for c in arrays["classes"].ravel()] if "classes" in arrays else None
    for name in [name for name, times in Counter(declared).items() if times > 1][:1]:
        raise BadArray(f"{what}: classes has {name!r} more than once.", "Expected each name once.", "Rename one.")
    if y.dtype.kind in "US" and y.ndim == 1:
        from driftline.stream_builder.importers.dated import labels_of

        number = {name: i for i, name in enumerate(declared or [])}
        labels, classes = np.array([number.get(name, -1) for name in y.tolist()]), declared or []
        if declared is None:
            labels, classes = labels_of(pa.chunked_array([pa.array(y.tolist(), pa.string())]), f"{what}: y")
        for place in np.flatnonzero(labels < 0)[:1].tolist():
            expected = "a name, or `classes` with this one" if declared is None else f"one of {', '.join(declared)}"
            raise BadArray(f"{what}: y is {str(y[place])!r} at index {place}.", f"Expected {expected}.")
        return labels, classes
    if y.dtype.kind not in "iu":
        raise BadArray(f"{what}: y has dtype {y.dtype}.", "Expected integers from 0, or names of classes.")
    if declared is None and y.max() >= CLASSES:
        raise BadArray(
            f"{what}: label {y.max()} at index {int(y.argmax())}.",
            f"Expected less than {CLASSES:,}.",
            "Number the classes from 0, or give y as names.",
        )
    return y.astype(np.int64), [str(c) for c in range(int(y.max()) + 1)] if declared is None else declared


def _samples(x: Array, what: str) -> Array:
    """Numbers of a data frame, and float64, as float32; others as they are."""
    numbers = x.dtype.kind == "O" or x.dtype == np.float64 or (x.dtype.kind in "iub" and x.ndim == 2)
    if not numbers:
        return x
    try:
        with np.errstate(over="ignore"):  # `check` names what became infinite
            return x.astype(np.float32)
    except (TypeError, ValueError) as error:
        raise BadArray(f"{what}: x has values that are no numbers ({reason(error)}).", "Expected numbers.") from None


def _array(values: Any) -> Array:
    """Objects that are all texts, as pandas has them, are text."""
    array = np.asarray(moments_of(values))
    if array.dtype.kind == "O" and array.size and all(isinstance(value, str) for value in array.flat):
        return array.astype(np.str_)
    return array


def _ids_times_and_groups(arrays: Mapping[str, Array], what: str) -> tuple[dict[str, Any], list[str]]:
    """Of `time` and `label_time` the seconds, of `id` and `group` the names, as far as they are there; and what looks
    wrong."""
    if not {"id", "time", "group"} & set(arrays):
        return {}, []
    from driftline.stream_builder.importers.dated import groups_of, label_times, texts_of, times_of

    def row_of(row: int) -> str:
        return f"{what}, index {row}"

    def column(name: str) -> pa.ChunkedArray:
        """The values; as texts if they are of several kinds."""
        try:
            return pa.chunked_array([pa.array(arrays[name], from_pandas=True)])
        except (pa.ArrowException, TypeError, ValueError):
            return pa.chunked_array([[None if value is None else str(value) for value in arrays[name].tolist()]])

    group, said = groups_of(column("group"), "group") if "group" in arrays else (None, "")
    columns: dict[str, Any] = {"group": group}
    if "id" in arrays:
        columns["ids"] = np.array(texts_of(column("id"), row_of, "id"), np.str_)
    if "time" in arrays:
        columns["time"] = times_of(column("time"), row_of)
    if "label_time" in arrays:
        columns["label_time"] = label_times(column("label_time"), column("time"), columns["time"], row_of)
    return columns, [said] if said else []


def _sides(split: Array, what: str) -> Array:
    sides = split.astype(np.str_)
    unknown = np.flatnonzero(~np.isin(sides, SPLITS))
    if len(unknown):
        first = int(unknown[0])
        raise BadArray(f"{what}: split is {str(sides[first])!r} at index {first}.", "Expected train, val or test.")
    return sides
