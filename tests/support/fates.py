"""What becomes of pictures and of photos in a folder: another process imports this, too."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa

from driftline.curate.core.errors import BadInput
from driftline.curate.foreign.images import read_rgb
from driftline.curate.images.changes import plain_bytes
from driftline.curate.images.checks import ImageLimits, check_image
from driftline.curate.sources.folder import Folder


def fate(data: bytes) -> tuple[Any, ...]:
    """What becomes of a file: of its check, and of its pixels."""
    check = check_image(data, ImageLimits())
    try:
        plain, words = plain_bytes(data)
        pixels: Any = (words, sha256(plain).hexdigest(), read_rgb(data, "it").tobytes()[:300])
    except BadInput as error:
        pixels = type(error).__name__
    return check.reason, check.width, check.height, check.shown, check.changes, pixels


def fates_in(folder: Path, files: list[tuple[bytes, str, str, bytes]], order: list[int]) -> dict[int, tuple[Any, ...]]:
    """Number of a file → what becomes of it in the company of `order`, where it has that place.

    files: picture, its suffix, ending and content of its sidecar.
    """
    names = {f"{chr(97 + place)}{files[i][1]}": i for place, i in enumerate(order)}
    for name, i in names.items():
        data, _, ending, content = files[i]
        (folder / name).write_bytes(data)
        (folder / f"{name}{ending}").write_bytes(content)
    source = Folder(path=str(folder), dates=("sidecar", "exif"))
    rows = pa.Table.from_batches(source.batches()).to_pylist()
    places = {Path(row["path"]).name if row["path"] else row["raw"].partition(":")[0]: row for row in rows}
    assert names.keys() <= places.keys()  # a sidecar that begins as a picture is one
    return {
        i: tuple(places[name][key] for key in ("fault", "taken", "uploaded", "camera", "extra")) + fate(files[i][0])
        for name, i in names.items()
    }
