"""Make the pictures and the network of `driftline demo --real` from the USDA's dated fruit watercolours.

    python studies/usda/sample.py --data DATA/usda            about two minutes on two cores

Up to 40 pictures per fruit and period from 1904 on become the benchmark, at most 128 px high, chosen by a hash of the
file name. The labelled pictures before 1904 train a small network, whose features the demo evaluates; they are not
shipped.
"""

import argparse
import csv
import hashlib
import io
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from driftline.curate.core.atomic_io import write_bytes
from driftline.curate.core.run_log import RunLog
from driftline.pipelines.demo.real import CUTS, FRUITS

sys.path.insert(0, str(Path(__file__).parents[1] / "networks"))
from early import EDGE, train

PER_CLASS, SIDE, QUALITY = 40, 128, 80
SEED, EPOCHS = 1904, 12
COLUMNS = ("filename", "year", "label", "caption", "artist", "source_url")


def period(row: dict[str, str]) -> int:
    """0: before the first cut."""
    return sum(int(row["year"]) >= cut for cut in CUTS)


def chosen(rows: list[dict[str, str]]) -> Iterator[dict[str, str]]:
    """The benchmark's rows: dated from the first cut on, balanced as far as the collection allows."""
    count: Counter[tuple[str, int]] = Counter()
    for row in sorted(rows, key=lambda row: hashlib.sha256(row["filename"].encode()).digest()):
        cell = (row["label"], period(row))
        if cell[1] > 0 and count[cell] < PER_CLASS:
            count[cell] += 1
            yield row


def pack(rows: list[dict[str, str]], archive: zipfile.ZipFile) -> bytes:
    """A zip of table.csv and pictures, the same bytes every time."""
    table, buffer = io.StringIO(), io.BytesIO()
    writer = csv.DictWriter(table, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with zipfile.ZipFile(buffer, "w") as out:
        out.writestr(zipfile.ZipInfo("table.csv"), table.getvalue(), zipfile.ZIP_DEFLATED)
        for row in rows:
            with Image.open(io.BytesIO(archive.read(f"images/{row['filename']}"))) as image:
                small = ImageOps.contain(image.convert("RGB"), (SIDE, SIDE), Image.Resampling.LANCZOS)
            picture = io.BytesIO()
            small.save(picture, "JPEG", quality=QUALITY, optimize=True)
            out.writestr(zipfile.ZipInfo(f"images/{row['filename']}"), picture.getvalue())
    return buffer.getvalue()


def main() -> None:
    """Write pictures.zip, weights.safetensors and pretrain.json into the package."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with usda_pomological.zip and usda_metadata.csv"
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "pipelines" / "demo" / "watercolours")
    options = parser.parse_args()
    rows = list(csv.DictReader((options.data / "usda_metadata.csv").read_text(encoding="utf-8").splitlines()))
    rows = [row for row in rows if row["year"] and row["label"] in FRUITS]
    early = [row for row in rows if period(row) == 0]
    pixels = np.empty((len(early), EDGE, EDGE, 3), np.uint8)
    with zipfile.ZipFile(options.data / "usda_pomological.zip") as archive:
        benchmark = sorted(chosen(rows), key=lambda row: (int(row["year"]), row["filename"]))
        write_bytes(options.out / "pictures.zip", pack(benchmark, archive))
        for i, row in enumerate(early):
            with Image.open(io.BytesIO(archive.read(f"images/{row['filename']}"))) as image:
                pixels[i] = np.asarray(ImageOps.fit(image.convert("RGB"), (EDGE, EDGE), Image.Resampling.BILINEAR))
    labels = np.array([FRUITS.index(row["label"]) for row in early], np.int64)
    train(pixels, labels, options.out, RunLog(), SEED, EPOCHS)
    print(f"{len(benchmark)} pictures from {CUTS[0]} on; the network saw {len(early)} older ones")


if __name__ == "__main__":
    main()
