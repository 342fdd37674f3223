"""Predictions of a log to label: a list to fill in, and a folder that `driftline annotate` opens; labels come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from driftline.curate.core.atomic_io import csv_text, write_parquet, write_text
from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.core.outside.image_kinds import HEAD, kind_of
from driftline.curate.core.outside.tables import csv_rows
from driftline.curate.metadata.columns import safe_id
from driftline.curate.retrieval.settings import Concept
from driftline.curate.validation.asking.batches import NONE, write_batch
from driftline.curate.validation.settings import ValidationSettings
from driftline.pipelines.annotation.batches import answers_so_far, open_batch
from driftline.pipelines.run.stage import Context
from driftline.pipelines.run.state import folder_of

LIST, FOLDER, SETTINGS = ".csv", "ask", "driftline.yaml"
COLUMNS = ("id", "version", "time", "prediction", "path", "label", "audit")
CHOICES = 60  # classes on one question page
SUFFIXES = {"JPEG": "jpg", "PNG": "png", "GIF": "gif", "WEBP": "webp", "BMP": "bmp"}  # what the page shows
VALIDATION: dict[str, Any] = {"method": "crowd", "workers": 1, "agree": 1}


def write_question(
    rows: Sequence[Mapping[str, Any]], classes: Sequence[str], root: Path, out: Path, seed: int = 0
) -> dict[str, Any]:
    """Write `ask.csv`, whose column label is to be filled in, and with images the folder `ask`, for annotate; returns
    how many predictions are asked, the file, and the folder or why there is none. Where other predictions were asked
    before, `ask-2.csv` and so on: what people typed is never overwritten. The same ones are not asked again.

    rows: as `asking.rows_of` has them. classes: names to choose from. root: paths are below it. Raises MissingFile.
    """
    folder = _free(out / FOLDER, [row["id"] for row in rows])
    path = folder.with_suffix(LIST)
    if not path.exists():
        lines = [[row.get(name, "true" if name == "audit" else "") for name in COLUMNS] for row in rows]
        write_text(path, csv_text(COLUMNS, lines))
    summary = {"rows": len(rows), "file": str(path), "folder": None}
    if not all(row.get("path") for row in rows):
        return summary | {"because": "The log has no column path: fill in the column label of the list."}
    if len(classes) > CHOICES or any(name == NONE or "|" in name for name in classes):
        because = (
            f"{len(classes)} classes do not fit on one page" if len(classes) > CHOICES else "a class is named none"
        )
        return summary | {"because": f"{because.capitalize()}: fill in the column label of the list."}
    if not (folder / SETTINGS).exists():
        _write_folder(rows, classes, root, folder, seed)
    return summary | {"folder": str(folder)}


def _free(first: Path, ids: Sequence[str]) -> Path:
    """`ask`, `ask-2` …: the first whose list does not exist, or asks these ids."""
    names = (first if k == 1 else first.with_name(f"{first.name}-{k}") for k in count(1))
    return next(one for one in names if not one.with_suffix(LIST).exists() or _ids(one) == list(ids))


def _ids(folder: Path) -> list[str]:
    """Of its list, in order."""
    return [row["id"] for _, row in csv_rows(folder.with_suffix(LIST), ["id"], "Expected the list of --ask.")]


def _write_folder(
    rows: Sequence[Mapping[str, Any]], classes: Sequence[str], root: Path, out: Path, seed: int
) -> None:  # fmt: skip
    """What the pages of annotate read of a run: its settings, the candidates of each class, and a batch."""
    concepts = [Concept(name=name, prompts=(name,), option=name) for name in classes]
    settings = {
        "seed": seed,
        "collection": {"source": "delimited", "path": f"../{out.name}{LIST}",
                       "columns": {"id": "id", "path": "path", "uploaded": "time", "label": "prediction"}},
        "embed": {"model": "ViT-B-32", "weights": "openai"},
        "retrieve": {"concepts": [{"name": name, "prompts": [name]} for name in classes]},
        "validation": VALIDATION,
    }  # fmt: skip
    asked = [(safe_id(row["id"]), *_image(root / row["path"])) for row in rows]
    candidates = {"id": [id_ for id_, *_ in asked], "concept": [row["prediction"] for row in rows]}
    folder_of(out, "retrieve").mkdir(parents=True, exist_ok=True)
    write_parquet(
        folder_of(out, "retrieve") / "candidates.parquet",
        pa.table({**candidates, "fate": ["kept"] * len(asked)}),
    )
    ask = folder_of(out, "ask")
    (ask / "images").mkdir(parents=True, exist_ok=True)
    write_batch(asked, concepts, ask, seed, ValidationSettings.model_validate(VALIDATION))
    commented = "# Predictions of a log, to label.\n" + yaml.safe_dump(settings, allow_unicode=True)
    write_text(out / SETTINGS, commented)  # last: what has it is whole


def _image(path: Path) -> tuple[bytes, str]:
    """Its bytes and their suffix. Raises MissingFile, and BadInput for what a browser does not show."""
    if not path.is_file():
        raise MissingFile(f"There is no image {path}.", "Expected the column path to lead to images, from the log.")
    data = path.read_bytes()
    suffix = SUFFIXES.get(kind_of(data[:HEAD]) or "")
    if suffix is None:
        raise BadInput(f"{path} is no image that a page shows.", f"Expected {', '.join(SUFFIXES)}.")
    return data, suffix


def labels_of(context: Context) -> pa.Table:
    """The answers to such a folder as late labels: id, label, audit. Who ticked no class, or several, says that the
    prediction is wrong, or nothing: "none", or no row."""
    facts = open_batch(context).facts
    answers, _ = answers_so_far(context, facts)
    names = {safe_id(id_): id_ for id_ in _ids(context.root)}
    rows = []
    for answer in answers:
        labels = sorted(answer["labels"])
        id_ = names.get(facts["items"].get(answer["item"], ""))
        if id_ is not None and answer.get("fault") is None and len(labels) <= 1:
            rows.append({"id": id_, "label": labels[0] if labels else NONE, "audit": True})
    return pa.Table.from_pylist(rows, pa.schema({"id": pa.string(), "label": pa.string(), "audit": pa.bool_()}))
