"""Published sets with dates, and folders by time → streams: WILDS, Wild-Time, TiC, class folders of photos.

WILDS [ICML 2021]: FMoW has rgb_metadata.csv, and images/rgb_img_ROW.png for each of its rows; iWildCam 2.0 has
metadata.csv, and train/FILENAME.

Wild-Time [NeurIPS 2022]: a file (yearbook, FMoW, HuffPost, arXiv) holds {year: {0: training samples, 1: test samples,
2: both}}. It is read without running code (`pickles`).

TiC-DataComp, TiC-DataCompNet and TiC-YFCC [TiC-CLIP, ICLR 2024]: lists of uids by year or month, joined to a table.
Lists: {year: [uid, …]} or {year: {class: [uid, …]}} as JSON or pickle (…_year2uids.json, .pkl), or a folder of
YEAR.npy or YEARMONTH.npy with uids as pairs of 64-bit numbers, as DataComp stores them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from driftline.curate.core.atomic_io import read_json
from driftline.curate.core.errors import BadConfig, BadInput, MissingFile, UnknownName
from driftline.curate.core.seeding import time_order
from driftline.curate.core.times.dates import shown_date
from driftline.curate.core.times.path_dates import DATES
from driftline.curate.foreign.arrays import mapped, open_array
from driftline.curate.foreign.images import IMAGE_SUFFIXES
from driftline.curate.foreign.limits import CLASSES
from driftline.curate.foreign.names import is_count
from driftline.stream_builder.rows import Rows, cut, labelled
from driftline.stream_builder.splitting import drawn
from driftline.stream_builder.step import check
from driftline.stream_builder.stream import Array, Split, Step, Stream, pick

from .dated import column_of, groups_of, images_of, labels_of, table_of, texts_of, times_of
from .pickles import read_pickle

TABLES = ("rgb_metadata.csv", "metadata.csv")
TIMES = ("timestamp", "datetime", "date", "year")
TEXTS = ("split", "category", "label", "y", "filename", "file", "path", "seq_id", "sequence")  # columns
SIDES = {"train": "train", "val": "val", "id_val": "val", "test": "test", "id_test": "test"}
CITE = "Koh et al.: WILDS: A Benchmark of in-the-Wild Distribution Shifts. ICML 2021; and the dataset's own paper"
LICENCES = {
    "rgb_metadata.csv": "FMoW Challenge Public License",
    "metadata.csv": "the dataset's own (iWildCam: Community Data License Agreement, Permissive 1.0)",
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
    """Read a WILDS dataset of images: FMoW, iWildCam.

    Any other with a time column, too. Its columns, if no others are named: timestamp, datetime, date or year; category,
    label or y; filename, file or path; seq_id. The split column gives the sides; rows that WILDS sets aside (split seq)
    are left out, and counted in the stream's facts.

    folder DIR: An unpacked WILDS dataset of images.

    Raises MissingFile, BadInput naming table and row.
    """
    source = next((folder / name for name in TABLES if (folder / name).is_file()), None)
    if source is None:
        raise MissingFile(f"{folder} holds neither {' nor '.join(TABLES)}.", "Expected an unpacked WILDS dataset.")
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
    y, classes = labels_of(taken[label], label)
    if source.name == TABLES[0] and path is None:
        root, names = folder / "images", [f"rgb_img_{row}.png" for row in used]
    else:
        path = column_of(taken, source, path, ("filename", "file", "path"), "--path")
        names = texts_of(taken[path], what, path)
        root = next((folder / name for name in ("train", "images") if (folder / name).is_dir()), folder)
    group = group or next((name for name in ("seq_id", "sequence") if name in taken.column_names), None)
    group = None if group is None else column_of(taken, source, group, (), "--group")
    groups, said = (None, "") if group is None else groups_of(taken[group], group)
    side = None if sides is None else np.array([SIDES[str(sides[row])] for row in used])
    samples = Split(images_of(root, names, size, source), y, np.array(names, np.str_), times, groups)
    facts = {"from": "wilds", "source": "https://wilds.stanford.edu", "licence": LICENCES[source.name], "cite": CITE}
    facts |= {"left_out": f"{len(table) - len(used)} rows of split seq"} if len(used) < len(table) else {}
    return cut(Rows(folder.resolve().name, samples, classes, side, said), period, test_share, seed, facts, what)


class Kind(NamedTuple):
    """One of Wild-Time's datasets: keys of samples and labels, class names, what gives the year with a key."""

    x: str
    y: str
    licence: str
    classes: tuple[str, ...] = ()
    first: int = 0


KINDS = {
    "yearbook": Kind("images", "labels", "MIT", ("male", "female")),
    "fmow": Kind("image_idxs", "labels", "FMoW Challenge Public License", first=2002),
    "huffpost": Kind(
        "headline", "category", "CC0",
        ("BLACK VOICES", "BUSINESS", "COMEDY", "CRIME", "ENTERTAINMENT", "IMPACT", "QUEER VOICES", "SCIENCE", "SPORTS",
         "TECH", "TRAVEL"),
    ),
    "arxiv": Kind("title", "category", "CC0"),
}  # fmt: skip
MODES = {"train": 0, "test": 1}


def from_wild_time(path: Path, root: Path | None = None, size: int = 224, seed: int = 0) -> Stream:
    """Read a pickled dataset of Wild-Time safely.

    Code in it is never run. The steps and splits are its authors'; the order in a year is random. Drug and MIMIC are
    not read: regression, and patients' data that needs a licence.

    path FILE.pkl: yearbook, fmow, huffpost or arxiv.
    root DIR: Folder of FMoW's images (default: fmow_v1.1/images beside the file).

    Raises MissingFile, UnknownName for another dataset, BadInput.
    """
    name = path.name.partition(".")[0].partition("_")[0]
    if not path.is_file():
        raise MissingFile(f"There is no file {path}.", f"Expected {', '.join(f'{kind}.pkl' for kind in KINDS)}.")
    if name not in KINDS:
        raise UnknownName(f"{path} is no dataset of Wild-Time that is read.", "", f"Available: {', '.join(KINDS)}.")
    kind = KINDS[name]
    content = read_pickle(path)
    if not isinstance(content, Mapping) or not content or not all(isinstance(key, int) for key in content):
        raise BadInput(f"{path} is no Wild-Time file.", "Expected a dictionary whose keys are years.")
    steps = []
    for index, key in enumerate(sorted(content)):
        year = key + (kind.first if key < 1000 else 0)
        splits = {}
        for side, mode in MODES.items():
            what = f"{path}, year {year}, {side}"
            try:
                samples, labels = content[key][mode][kind.x], np.asarray(content[key][mode][kind.y])
            except (KeyError, TypeError):
                raise BadInput(f"{what}: no {kind.x} and {kind.y}.", "Expected a file of Wild-Time 1.") from None
            x = _samples(samples, name, root or path.parent / "fmow_v1.1" / "images", size, path, what)
            if labels.dtype.kind not in "iu" or labels.ndim != 1 or len(labels) != len(x):
                raise BadInput(f"{what}: {len(x)} samples and labels {labels.dtype} {labels.shape}.", "Expected (N,).")
            if not len(labels):
                continue
            check(np.zeros((len(labels), 1), np.float32), labels, len(kind.classes) or CLASSES, what)
            ids = np.array([f"{year}-{side}-{i}" for i in range(len(labels))])
            time = np.full(len(labels), np.datetime64(str(year), "s").astype(np.int64))
            order = time_order(time, ids, seed)
            splits[side] = Split(pick(x, order), labels[order].astype(np.int64), ids[order], time)
        steps.append(Step(index, str(year), splits))
    top = max((int(split.y.max()) for step in steps for split in step.splits.values()), default=-1)
    classes = list(kind.classes) or [str(c) for c in range(top + 1)]
    facts = {
        "from": "wild-time",
        "source": "https://github.com/huaxiuyao/Wild-Time",
        "licence": kind.licence,
        "cite": "Yao et al.: Wild-Time: A Benchmark of in-the-Wild Distribution Shift over Time. NeurIPS 2022",
        **drawn(seed),
    }
    return Stream(f"wild-time-{name}", steps, classes, facts=facts)


def _samples(values: Any, name: str, root: Path, size: int, source: Path, what: str) -> Any:
    """Texts, uint8 images, or lazy images of FMoW. Raises BadInput."""
    array: Array = np.asarray(values)
    if name == "fmow":
        if array.dtype.kind not in "iu" or array.ndim != 1:
            raise BadInput(f"{what}: image_idxs is {array.dtype}.", "Expected integers.")
        return images_of(root, [f"rgb_img_{i}.png" for i in array.tolist()], size, source)
    if name != "yearbook":
        if array.dtype.kind == "O" and all(isinstance(value, str) for value in array.ravel()):
            array = array.astype(np.str_)
        if array.dtype.kind != "U" or array.ndim != 1:
            raise BadInput(f"{what}: samples are {array.dtype}.", "Expected texts.")
        return array
    if array.dtype.kind != "f" or array.ndim not in (3, 4) or not (array.min() >= 0 and array.max() <= 1):
        raise BadInput(f"{what}: images are {array.dtype} {array.shape}.", "Expected numbers from 0 to 1.")
    pixels = np.rint(array * 255).astype(np.uint8)
    pixels = pixels[..., None] if pixels.ndim == 3 else pixels
    return np.repeat(pixels, 3, -1) if pixels.shape[-1] == 1 else pixels


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
        y, classes = labelled(own)
    else:
        label = column_of(taken, table, label, LABELS, "--label")
        y, classes = labels_of(taken[label], label)
    if features is not None:
        vectors = open_array(features, "f", (len(rows), None), "Check --features.")
        x: Any = np.asarray(vectors[listed_rows], np.float32)
        if not np.isfinite(x).all():
            raise BadInput(f"{features} holds NaN or infinity.", "Expected finite numbers.")
    else:
        path = column_of(taken, table, path, PATHS, "--path")
        names = texts_of(taken[path], lambda row: what(listed_rows[row]), path)
        x = images_of(root or table.parent, names, size, table)
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


OTHERS = (".heic", ".heif", ".avif")
PLACES = ("exif", "sidecar", "path")
COARSER = {"month": ("year",), "week": ("year", "month"), "day": ("year", "month")}  # period → dates that are no part


def from_folder_by_time(
    path: Path, size: int = 224, period: str = "year", test_share: float = 0.3, seed: int = 0
) -> Stream:
    """Read class folders of dated photos.

    Dates are found as by the source folder: EXIF first, then PHOTO.json or PHOTO.xmp, then the path (2012-05-01,
    2012/05, the year of a folder).

    path DIR: Class folders CLASS/… of dated photos.

    Raises MissingFile, and BadInput naming the first photo without class or date.
    """
    if not path.is_dir():
        raise MissingFile(f"There is no folder {path}.", "Expected class folders of photos.")
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in (*IMAGE_SUFFIXES, *OTHERS))
    names = [file.relative_to(path).as_posix() for file in files]
    if not files:
        raise BadInput(f"{path} holds no photos.", "Expected CLASS/photo.jpg.")
    for name in names:
        if "/" not in name:
            raise BadInput(f"The photo {name} in {path} is in no class folder.", "Expected CLASS/photo.jpg.")
        if name.lower().endswith(OTHERS):
            raise BadInput(f"{path / name} is a {name.rpartition('.')[2]} file.", "", "Convert it to JPEG first.")
    times, undated = [], []
    for file, name in zip(files, names, strict=True):
        try:
            date = next((d for place in PLACES if (d := DATES[place](file, name)) is not None), None)
        except Exception:  # Pillow raises many kinds for damaged files
            raise BadInput(f"{file} cannot be read as an image.", "", "Remove it, or copy it again.") from None
        if date is not None and date.precision in COARSER.get(period, ()):
            raise BadInput(f"{name} in {path} has the date {shown_date(date)}.", f"Expected dates of a {period}.")
        times.append(0 if date is None else date.utc)
        undated += [name] if date is None else []
    if undated:
        raise BadInput(
            f"{len(undated):,} of {len(files):,} photos in {path} have no date, the first is {undated[0]}.",
            "Expected one in EXIF, in a file beside the photo, or in the path.",
            "Move them elsewhere, or into folders named by their year.",
        )
    y, classes = labelled([name.partition("/")[0] for name in names])
    samples = Split(images_of(path, names, size, path), y, np.array(names, np.str_), np.array(times, np.int64))
    facts = {"from": "folder-by-time", "licence": "your own"}
    return cut(Rows(path.resolve().name, samples, classes), period, test_share, seed, facts)
