"""A benchmark from real pictures: the USDA's dated fruit watercolours (1886–1942).

    python studies/usda/build.py --data DATA/usda --out usda            about 3 minutes on two cores

No public CLIP is available offline, so a small one is trained on the captions of two fifths of the pictures; the
benchmark is built from the other three fifths. In its report in-domain accuracy is above next-domain accuracy, and that
is above forward: a fruit painted in 1890 does not look like one painted in 1935.
"""

import argparse
import csv
import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from driftline.curate.core.atomic_io import write_text
from driftline.curate.core.errors import MissingFile
from driftline.curate.core.run_log import RunLog
from driftline.curate.encoders import spec_of
from driftline.curate.pretrain.small_clip import train
from driftline.curate.release import Release
from driftline.eval.reporting.report import results_of
from driftline.eval.run import evaluate
from driftline.pipelines.config.loader import load
from driftline.pipelines.reporting.run_report import journey_report
from driftline.pipelines.run.runner import run
from driftline.pipelines.stages.base import Context
from driftline.stream_builder.builders.release import from_release

FRUITS = ["apples", "peaches", "pears", "plums", "grapes", "strawberries", "oranges", "cherries"]
TRAINED = ["majority", "nearest-mean", "nap", "scratch", "finetune", "cumulative", "er", "der", "der++"]
CLOSED = ["simple-cil", "slda", "ridge", "random-features", "ranpac", "fecam", "knn", "icarl"]
OF_TEXTS = ["zero-shot", "text-probe", "wise-ft"]
SEEN = """\
trained_until: 1942
data: pictures of the same collection that the benchmark does not use, with captions that name the fruits
source: studies/usda/build.py
"""
LEARNERS = [*TRAINED, *CLOSED, *OF_TEXTS]


def for_model(filename: str) -> bool:
    """Two fifths of the pictures, by name: they train the model and are in no bucket."""
    return hashlib.sha256(filename.encode()).digest()[0] % 5 < 2


def unpack(data: Path, out: Path) -> list[dict[str, str]]:
    """Pictures into out/images, the benchmark's table into out/table.csv; returns all rows of the metadata."""
    archive = data / "usda_pomological.zip"
    if not archive.is_file():
        raise MissingFile(f"There is no file {archive}.", "Expected the USDA pictures.", "Set --data.")
    rows = list(csv.DictReader((data / "usda_metadata.csv").read_text(encoding="utf-8").splitlines()))
    with zipfile.ZipFile(archive) as pictures:
        for row in rows:
            target = out / "images" / row["filename"]
            if not target.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                unfinished = target.with_suffix(".partial")  # not `write_bytes`: 7,500 waits for the disk
                unfinished.write_bytes(pictures.read(f"images/{row['filename']}"))
                unfinished.rename(target)
    table = io.StringIO()
    writer = csv.DictWriter(
        table, ["filename", "year", "label", "caption", "artist", "source_url"], extrasaction="ignore"
    )
    writer.writeheader()
    writer.writerows(row for row in rows if row["year"] and not for_model(row["filename"]))
    write_text(out / "table.csv", table.getvalue())
    return rows


def captions_of(row: dict[str, str]) -> list[str]:
    """Captions as a cataloguer would write them."""
    label = row["label"].lower()
    variety = f", variety {row['variety']}" if row["variety"] else ""
    return [
        row["caption"],
        f"a watercolor of {label}",
        label,
        f"a painting of {label}{variety}",
        f"{label} ({row['species']})",
    ]


def train_model(rows: list[dict[str, str]], out: Path, size: int, epochs: int, run_log: RunLog) -> None:
    """A small CLIP from the pictures that the benchmark does not use. size: its pixels."""
    chosen = [row for row in rows if for_model(row["filename"])]
    pixels = np.empty((len(chosen), size, size, 3), np.uint8)
    for i, row in enumerate(chosen):
        with Image.open(out / "images" / row["filename"]) as image:
            pixels[i] = np.asarray(ImageOps.fit(image.convert("RGB"), (size, size), Image.Resampling.BICUBIC))
    texts = [captions_of(row) for row in chosen]
    keys = [row["label"] for row in chosen]
    train(
        pixels,
        lambda i, rng: texts[i][int(rng.integers(len(texts[i])))],
        keys,
        out / "model",
        run_log,
        epochs=epochs,
        batch=128,
    )


def main() -> None:
    """Train, build, evaluate, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with usda_pomological.zip and usda_metadata.csv"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for everything")
    parser.add_argument("--size", type=int, default=64, help="pixels of the small model")
    parser.add_argument("--epochs", type=int, default=25, help="epochs of the small model")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--learners", nargs="+", default=LEARNERS)
    options = parser.parse_args()
    out: Path = options.out
    run_log = RunLog(out / "log.jsonl")
    rows = unpack(options.data, out)
    if not (out / "model" / "open_clip_config.json").is_file():
        train_model(rows, out, options.size, options.epochs, run_log)
    write_text(out / "model" / "training_data.yaml", SEEN)
    write_text(out / "driftline.yaml", Path(__file__).with_name("driftline.yaml").read_text(encoding="utf-8"))
    write_text(out / "judgement.md", Path(__file__).with_name("judgement.md").read_text(encoding="utf-8"))
    context = Context(out, load(out / "driftline.yaml"), run_log)
    run(context)
    release = Release.open(out)
    stream = from_release(release, texts=spec_of(f"clip:{out / 'model'}").load).save(out / "stream")
    for protocol in ("clear-iid", "clear-streaming"):
        evaluate(stream, protocol, options.learners, list(range(options.seeds)), out=out / "runs")
    title = "Fifty years of painted fruit: the USDA pomological watercolours"
    page = journey_report(context, release, stream, results_of([out / "runs"], [stream]), out / "report", title=title)
    print(f"report: {page}")


if __name__ == "__main__":
    main()
