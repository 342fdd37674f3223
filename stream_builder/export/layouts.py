"""Layouts of streams: arrays, class folders, tars, Parquet for `datasets`, contact sheets, and HTML for
notebooks; images are PNG, lossless."""

import io
import json
import tarfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import write_bytes, write_text, writing
from driftline.curate.core.errors import IncompatibleStream
from driftline.curate.foreign.escaping import image_folders_readme
from driftline.curate.foreign.notebook import Thumbnail, table
from driftline.stream_builder.builders.encoded import is_image
from driftline.stream_builder.step import OPTIONAL
from driftline.stream_builder.stream import SPLITS, Split, Step, Stream, join


def arrays(stream: Stream, out: Path) -> dict[str, int]:
    """`stream.npz`: x, y, step, split, id, classes; time, group, test_in and label_time if all samples have one.
    Counts are of samples, and of those without a column that others have."""
    parts = [(step.index, name, split) for step in stream.steps for name, split in step.splits.items()]
    whole = join([split for _, _, split in parts])
    named = {
        "x": np.asarray(whole.x),
        "y": whole.y,
        "step": np.concatenate([np.full(len(split), index, np.int64) for index, _, split in parts]),
        "split": np.concatenate([np.full(len(split), name) for _, name, split in parts]),
        "id": whole.ids,
        "classes": np.array([str(c) for c in stream.classes]),
        **whole.columns(),
    }
    with writing(out / "stream.npz") as file:
        np.savez(file, **named)  # type: ignore[arg-type]
    lacking = {f"without {name}, which is left out": sum(len(s) for *_, s in parts if name not in s.columns())
               for name in OPTIONAL if name not in named}  # fmt: skip
    return {"samples": len(whole)} | {name: n for name, n in lacking.items() if n < len(whole)}


NOT_HERE = "Further train/test splits, test_in, are not in this layout: arrays and webdataset have them."
GROUP = 500  # images per row group of Parquet
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
VALUES = {"id": "string", **dict.fromkeys(("step", "time", "group", "label_time"), "int64")}


Sample = tuple[str, bytes, dict[str, Any]]  # key, PNG, facts: id, label, step, split, time or None, …


def imagefolder(stream: Stream, out: Path) -> dict[str, int]:
    """STEP/SPLIT/CLASS/KEY.png: torchvision's ImageFolder loads each STEP/SPLIT, `datasets` the whole folder."""
    n, splits = 0, {}
    for step, split, of_split in _splits(stream):
        splits[f"{step}_{split}"] = f"{step}/{split}"
        folders = [out / step / split / class_folder(stream, label) for label in range(len(stream.classes))]
        for folder in folders:  # of every class, so that ImageFolder gives the same labels everywhere
            folder.mkdir(parents=True, exist_ok=True)
        for key, data, facts in of_split:
            n += 1
            write_bytes(folders[facts["label"]] / f"{key}.png", data)
    write_text(out / "README.md", image_folders_readme(splits))
    return {"images": n}


def webdataset(stream: Stream, out: Path) -> dict[str, int]:
    """WebDataset tars, one per step and split: KEY.png, KEY.cls and KEY.json side by side, in the stream's order."""
    n = tars = 0
    for step, split, of_split in _splits(stream):
        tars += 1
        path = out / f"{step}_{split}.tar"
        with writing(path) as file, tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for key, data, facts in of_split:
                n += 1
                text, label = json.dumps(facts, sort_keys=True), str(facts["label"])
                for ending, content in (("png", data), ("cls", label.encode()), ("json", text.encode())):
                    info = tarfile.TarInfo(f"{key}.{ending}")  # without time or owner
                    info.size, info.mode = len(content), 0o644
                    tar.addfile(info, io.BytesIO(content))
    return {"images": n, "tars": tars}


def huggingface(stream: Stream, out: Path) -> dict[str, int]:
    """Parquet for `datasets.load_dataset`: one split per step and split, Image and ClassLabel in the footer."""
    features = {
        "image": {"_type": "Image"},
        "label": {"names": [str(c) for c in stream.classes], "_type": "ClassLabel"},
        **{name: {"dtype": kind, "_type": "Value"} for name, kind in VALUES.items()},
    }
    columns = [("image", IMAGE), ("label", "int64"), *VALUES.items()]
    schema = pa.schema(columns, {"huggingface": json.dumps({"info": {"features": features}})})
    n, names = 0, []
    for step, split, of_split in _splits(stream):
        names.append(f"{step}_{split}")
        path = out / "data" / f"{names[-1]}-00000-of-00001.parquet"
        with writing(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
            while some := list(islice(of_split, GROUP)):
                rows = [facts | {"image": {"bytes": data, "path": f"{key}.png"}} for key, data, facts in some]
                writer.write_table(pa.Table.from_pylist(rows, schema))
                n += len(rows)
    files = "".join(f"  - split: {name}\n    path: data/{name}-*.parquet\n" for name in names)
    head = f"---\nconfigs:\n- config_name: default\n  data_files:\n{files}---\n\n"
    write_text(out / "README.md", f"{head}# {stream.name}\n\n{n} images, stream {stream.sha256}.\n{NOT_HERE}\n")
    return {"images": n, "splits": len(names)}


def _splits(stream: Stream) -> Iterator[tuple[str, str, Iterator[Sample]]]:
    """(step as in file names, split, its samples in order). Raises IncompatibleStream for a stream without images."""
    from PIL.Image import fromarray

    def images() -> Iterator[Sample]:
        for i, pixels in enumerate(split.x):
            buffer = io.BytesIO()
            fromarray(np.asarray(pixels)).save(buffer, "PNG", compress_level=1)
            facts = {"id": str(split.ids[i]), "label": int(split.y[i]), "step": step.index, "split": name, "time": None}
            facts |= {kind: column[i].tolist() for kind, column in split.columns().items()}
            yield f"{step.index:03d}_{name}_{i:07d}", buffer.getvalue(), facts

    for step in stream.steps:
        for name, split in step.splits.items():
            if np.dtype(split.x.dtype) != np.uint8:
                raise IncompatibleStream(
                    f"The stream {stream.name!r} has no images.", "Expected uint8 images.", "Export it as arrays."
                )
            if len(split):
                yield f"step_{step.index:03d}", name, images()


def class_folder(stream: Stream, label: int) -> str:
    """A class's folder: its number, so that no two classes share one and names sort by label; and its name, with
    characters replaced that paths cannot have."""
    digits = max(4, len(str(len(stream.classes) - 1)))
    name = "".join(c if c.isalnum() or c in "-_" else "_" for c in str(stream.classes[label]))[:60]
    return f"{label:0{digits}d}_{name}"


MAX_CLASSES = 12
SIDE, GAP, LEFT, TOP = 96, 6, 150, 52  # pixels: of an image, between two, for the names of steps and of classes


def examples(split: Split, classes: int, each: int = 1) -> list[list[int]]:
    """Positions of the first `each` samples of each of the first `classes` classes."""
    y = np.asarray(split.y)
    return [np.flatnonzero(y == label)[:each].tolist() for label in range(classes)]


def write_contact_sheet(stream: Stream, path: Path, split: str = "train", each: int = 1) -> Path:
    """Write a PNG with the first `each` images of every class in every step, by their label in that step.

    Raises IncompatibleStream for a stream without images.
    """
    from PIL import Image, ImageDraw, ImageFont

    steps = [step for step in stream.steps if split in step.splits]
    if not steps or np.dtype(steps[0][split].x.dtype) != np.uint8:
        raise IncompatibleStream(f"The stream {stream.name!r} has no images in {split}.", "Expected uint8 images.")
    classes = min(MAX_CLASSES, len(stream.classes))
    columns, font = classes * each, ImageFont.load_default(13)
    sheet = Image.new("RGB", (LEFT + columns * (SIDE + GAP) + GAP, TOP + len(steps) * (SIDE + GAP) + GAP), "white")
    draw = ImageDraw.Draw(sheet)
    draw.text((GAP, GAP), stream.name, fill="black", font=ImageFont.load_default(15))
    for label in range(classes):
        left = LEFT + label * each * (SIDE + GAP)
        draw.text((left, TOP - 20), str(stream.classes[label])[: 12 * each], fill="black", font=font)
    for row, step in enumerate(steps):
        top = TOP + row * (SIDE + GAP)
        draw.text((LEFT - GAP, top + SIDE // 2), step.name[:18], fill="black", font=font, anchor="rm")
        for label, positions in enumerate(examples(step[split], classes, each)):
            for k, position in enumerate(positions):
                image = Image.fromarray(np.asarray(step[split].x[position]))
                image.thumbnail((SIDE, SIDE))  # small images grow below, whose pixels stay squares
                factor = max(1, SIDE // max(image.size))
                image = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
                sheet.paste(image, (LEFT + (label * each + k) * (SIDE + GAP), top))
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG")
    write_bytes(path, buffer.getvalue())
    return path


MAX_STEPS = 30
MAX_STEPS_WITH_IMAGES = 10
SCANNED = 20_000  # samples of a step in which an example of each class is searched


def html_of(stream: Stream) -> str:
    """A table with a row per step."""
    steps = stream.steps[:MAX_STEPS]
    splits = [name for name in SPLITS if any(name in step.splits for step in steps)]
    has_images = is_image(stream)
    classes = [str(name) for name in stream.classes[:MAX_CLASSES]]
    days = [step.days() for step in steps]
    dated = ["from", "to"] if any(days) else []
    heads = ["step", *dated, *splits, *(classes if has_images else [])]
    rows: list[list[object]] = []
    for i, step in enumerate(steps):
        sizes = (len(step.splits[name]) if name in step.splits else "–" for name in splits)
        rows.append([step.name, *((days[i] or ("–", "–")) if dated else ()), *sizes])
        rows[-1] += _images(step, classes) if has_images and i < MAX_STEPS_WITH_IMAGES else []
    if len(steps) < len(stream.steps):
        rows.append([f"… and {len(stream.steps) - len(steps)} more steps"])
    shape = " × ".join(map(str, stream.x_shape)) or "texts"
    names = ", ".join([*classes, *(["…"] if len(stream.classes) > len(classes) else [])])
    title = f"{stream.name}: {len(stream.steps)} steps, {len(stream.classes)} classes: {names}"
    note = f"A sample: {shape}." if len(stream.x_shape) != 1 else f"A sample: {shape} features."
    return table(title, heads, rows, note)


def _images(step: Step, classes: list[str]) -> list[Any]:
    """The first image of each class, or nothing."""
    from PIL import Image

    split = next(step.splits[name] for name in SPLITS if name in step.splits).part(0, SCANNED)
    cells: list[Any] = [""] * len(classes)
    for label, positions in enumerate(examples(split, len(classes))):
        for position in positions:
            buffer = io.BytesIO()
            Image.fromarray(np.asarray(split.x[position])).save(buffer, "PNG", compress_level=1)
            cells[label] = Thumbnail(buffer.getvalue(), f"{classes[label]}, step {step.name}")
    return cells
