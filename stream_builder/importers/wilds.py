"""WILDS data sets of images with a time column, FMoW and iWildCam among them → a stream [WILDS, ICML 2021].

FMoW: rgb_metadata.csv, and images/rgb_img_ROW.png for each of its rows. iWildCam 2.0: metadata.csv, and train/FILENAME.
"""

from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core.errors import BadInput, MissingFile
from driftline.stream_builder.importers.dated import (
    column_of,
    groups_of,
    images_of,
    labels_of,
    table_of,
    texts_of,
    times_of,
)
from driftline.stream_builder.rows import Rows, cut, labelled
from driftline.stream_builder.stream import Split, Stream

TABLES = ("rgb_metadata.csv", "metadata.csv")
TIMES = ("timestamp", "datetime", "date", "year")
TEXTS = ("split", "category", "label", "y", "filename", "file", "path", "seq_id", "sequence")  # columns
SIDES = {"train": "train", "val": "val", "id_val": "val", "test": "test", "id_test": "test"}
CITE = "Koh et al.: WILDS: A Benchmark of in-the-Wild Distribution Shifts. ICML 2021; and the data set's own paper"
LICENCES = {
    "rgb_metadata.csv": "FMoW Challenge Public License",
    "metadata.csv": "the data set's own (iWildCam: Community Data License Agreement, Permissive 1.0)",
}


def from_wilds(
    folder: Path,
    time: str | None = None,
    label: str | None = None,
    path: str | None = None,
    group: str | None = None,
    size: int = 224,
    period: str = "year",
    test_share: float = 0.3,
    seed: int = 0,
) -> Stream:
    """Read a WILDS data set of images: FMoW, iWildCam.

    Any other with a time column, too. Its columns, if no others are named: timestamp, datetime, date or year; category,
    label or y; filename, file or path; seq_id. The split column gives the sides; rows that WILDS sets aside (split seq)
    are left out, and counted in the stream's facts.

    folder DIR: An unpacked WILDS data set of images.

    Raises MissingFile, BadInput naming table and row.
    """
    source = next((folder / name for name in TABLES if (folder / name).is_file()), None)
    if source is None:
        raise MissingFile(f"{folder} holds neither {' nor '.join(TABLES)}.", "Expected an unpacked WILDS data set.")
    table = table_of(source, [name for name in (label, path, group, *TEXTS) if name])
    sides = table["split"].to_pylist() if "split" in table.column_names else None
    used = [row for row in range(len(table)) if sides is None or sides[row] != "seq"]
    if sides is not None and (unknown := {str(sides[row]) for row in used} - set(SIDES)):
        raise BadInput(f"{source} has the split {min(unknown)!r}.", f"Expected {', '.join(SIDES)} or seq.")
    if not used:
        raise BadInput(f"{source} has no row to use.", "Expected rows of train, val and test.")
    taken = table.take(used)

    def what(row: int) -> str:
        return f"{source}, row {used[row] + 1}"

    times = times_of(taken[column_of(taken, source, time, TIMES, "--time")], what)
    label = column_of(taken, source, label, ("category", "label", "y"), "--label")
    y, classes = labelled(labels_of(taken[label], what, label))
    if source.name == TABLES[0] and path is None:
        root, names = folder / "images", [f"rgb_img_{row}.png" for row in used]
    else:
        path = column_of(taken, source, path, ("filename", "file", "path"), "--path")
        names = texts_of(taken[path], what, path)
        root = next((folder / name for name in ("train", "images") if (folder / name).is_dir()), folder)
    group = group or next((name for name in ("seq_id", "sequence") if name in taken.column_names), None)
    group = None if group is None else column_of(taken, source, group, (), "--group")
    groups: Any = None if group is None else groups_of(taken[group], group)
    side = None if sides is None else np.array([SIDES[str(sides[row])] for row in used])
    samples = Split(images_of(root, names, size, source), y, np.array(names, np.str_), times, groups)
    facts = {"from": "wilds", "source": "https://wilds.stanford.edu", "licence": LICENCES[source.name], "cite": CITE}
    facts |= {"left_out": f"{len(table) - len(used)} rows of split seq"} if len(used) < len(table) else {}
    return cut(Rows(folder.resolve().name, samples, classes, side), period, test_share, seed, facts, what)
