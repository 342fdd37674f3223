"""A folder of class folders with dated photos → a stream."""

from pathlib import Path

import numpy as np

from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.core.times.dates import shown_date
from driftline.curate.core.times.path_dates import DATES
from driftline.curate.foreign.images import IMAGE_SUFFIXES
from driftline.stream_builder.importers.dated import images_of
from driftline.stream_builder.rows import Rows, cut, labelled
from driftline.stream_builder.stream import Split, Stream

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
