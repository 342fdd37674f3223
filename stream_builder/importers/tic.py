"""TiC-DataComp, TiC-DataCompNet and TiC-YFCC: lists of uids by year or month, joined to a table → a stream.

Lists: {year: [uid, …]} or {year: {class: [uid, …]}} as JSON or pickle (…_year2uids.json, .pkl), or a folder of
YEAR.npy or YEARMONTH.npy with uids as pairs of 64-bit numbers, as DataComp stores them [TiC-CLIP, ICLR 2024].
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core.atomic_io import read_json
from driftline.curate.core.errors import BadConfig, BadInput, MissingFile
from driftline.curate.foreign.arrays import mapped, open_array
from driftline.curate.foreign.names import is_count
from driftline.stream_builder.importers.dated import column_of, images_of, labels_of, table_of, texts_of
from driftline.stream_builder.importers.pickles import read_pickle
from driftline.stream_builder.rows import Rows, cut, labelled
from driftline.stream_builder.stream import Split, Stream

IDS, LABELS, PATHS = ("uid", "key", "id"), ("label", "class"), ("path", "file", "filename")  # usual names of columns


def from_tic(
    lists: Path,
    table: Path | None = None,
    id: str | None = None,
    label: str | None = None,
    path: str | None = None,
    features: Path | None = None,
    root: Path | None = None,
    size: int = 224,
    period: str = "year",
    test_share: float = 0.3,
    seed: int = 0,
) -> Stream:
    """Join TiC's lists of uids by year or month to a table.

    The table has images or vectors; without a column of labels, those of the lists are used. Its columns, if no others
    are named: uid, key or id; label or class; path, file or filename. Rows that no list names are left out and counted
    in the stream's facts.

    lists LISTS: …_year2uids.json or .pkl, or a folder of YEAR.npy.

    Raises MissingFile, BadInput.
    """
    if table is None:
        raise BadConfig(f"{lists} has uids without data.", "Expected --table FILE with uid, label and file names.")
    listed = _listed(lists)
    rows = table_of(table, [name for name in (id, label, path, *IDS, *LABELS, *PATHS) if name])

    def what(row: int) -> str:
        return f"{table}, row {row + 1}"

    uids = [uid.lower() for uid in texts_of(rows[column_of(rows, table, id, IDS, "--id")], what, "uid")]
    listed_rows = [row for row, text in enumerate(uids) if text in listed]
    if not listed_rows:
        raise BadInput(
            f"No uid of {table} is in {lists}.", f"The lists have {len(listed):,}, the first {min(listed)!r}."
        )
    taken = rows.take(listed_rows)
    own = [listed[uids[row]][1] for row in listed_rows]
    if label is None and "label" not in rows.column_names and all(own):
        labels = own
    else:
        label = column_of(taken, table, label, LABELS, "--label")
        labels = labels_of(taken[label], lambda row: what(listed_rows[row]), label)
    if features is not None:
        vectors = open_array(features, "f", (len(rows), None), "Check --features.")
        x: Any = np.asarray(vectors[listed_rows], np.float32)
        if not np.isfinite(x).all():
            raise BadInput(f"{features} holds NaN or infinity.", "Expected finite numbers.")
    else:
        path = column_of(taken, table, path, PATHS, "--path")
        names = texts_of(taken[path], lambda row: what(listed_rows[row]), path)
        x = images_of(root or table.parent, names, size, table)
    y, classes = labelled(labels)
    time = np.array([listed[uids[row]][0] for row in listed_rows], np.int64)
    samples = Split(x, y, np.array([uids[row] for row in listed_rows], np.str_), time)
    facts = {
        "from": "tic",
        "source": "https://huggingface.co/datasets/apple/TiC-DataComp",
        "licence": "Apple's own for the lists; each image its own",
        "cite": "Garg et al.: TiC-CLIP: Continual Training of CLIP Models. ICLR 2024",
        "joined": f"{len(listed_rows):,} of {len(rows):,} rows are among the {len(listed):,} uids of the lists",
    }
    return cut(Rows(lists.stem.replace("_year2uids", ""), samples, classes), period, test_share, seed, facts,
               lambda sample: what(listed_rows[sample]))  # fmt: skip


def _listed(path: Path) -> dict[str, tuple[int, str]]:
    """uid → (first second of its year or month, class or ""). Raises BadInput naming a uid that is in two periods."""
    listed: dict[str, tuple[int, str]] = {}

    def add(period: str, uids: Any, name: str, source: Path) -> None:
        start = _start(period, source)
        if not isinstance(uids, list | np.ndarray):
            raise BadInput(f"{source}: {period} holds {type(uids).__name__}.", "Expected a list of uids.")
        for uid in map(str, uids):
            if listed.setdefault(uid.lower(), (start, name))[0] != start:
                raise BadInput(f"{source} has the uid {uid} in two periods.", "Expected each in one.")

    if path.is_dir():
        files = sorted(path.glob("*.npy"))
        if not files:
            raise MissingFile(f"{path} holds no lists.", "Expected YEAR.npy or YEARMONTH.npy.")
        for file in files:
            pairs = mapped(file, "Download it again.")
            if pairs.dtype.itemsize != 16 or len(pairs.dtype.names or ()) != 2 or pairs.ndim != 1:
                raise BadInput(f"{file} has dtype {pairs.dtype}.", "Expected uids as pairs of 64-bit numbers.")
            add(file.stem, [f"{int(high):016x}{int(low):016x}" for high, low in pairs.tolist()], "", file)
        return listed
    content = read_pickle(path) if path.suffix == ".pkl" else read_json(path)
    if not isinstance(content, Mapping) or not content:
        raise BadInput(f"{path} holds {type(content).__name__}.", "Expected {year: [uid, …]}.")
    for period, uids in content.items():
        for name, of_class in (uids if isinstance(uids, Mapping) else {"": uids}).items():
            add(str(period), of_class, str(name), path)
    return listed


def _start(period: str, source: Path) -> int:
    """The first second of 2014 or 201408. Raises BadInput."""
    if not is_count(period) or len(period) not in (4, 6) or (len(period) == 6 and not 1 <= int(period[4:]) <= 12):
        raise BadInput(f"{source}: the period {period!r}.", "Expected a year or a year and month, as 2014 or 201408.")
    date = f"{period[:4]}-{period[4:] or '01'}"
    return int(np.datetime64(date, "s").astype(np.int64))
