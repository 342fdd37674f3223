"""Labelled texts: Banking77's and CLINC150's own files, or any table with a column of texts and one of labels."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from curate.core.errors import BadArray, BadInput, MissingFile
from stream_builder.datasets import Base, Options, Side

TEXT = ("text", "utterance", "sentence", "question", "query", "content")  # names a column of texts may have
LABEL = ("category", "label", "intent", "class", "target")
MOST = 10_000  # characters of a text
ENDINGS = (".csv", ".tsv", ".jsonl")
Rows = list[tuple[str, str]]  # text, label


def holds_texts(place: Path) -> bool:
    """Whether a path is a table of texts, CLINC150's JSON, or a folder with `*train*` and `*test*` tables."""
    if place.is_file():
        return place.suffix in (*ENDINGS, ".json")
    return any(any(place.glob(f"*train*{ending}")) for ending in ENDINGS)


def open_texts(place: Path, options: Options) -> Base:
    """A folder with one `*train*` and one `*test*` table (Banking77: train.csv, test.csv), CLINC150's `data_*.json`
    (`oos_` rows are a class), or one table with a column `split`.

    Texts keep their bytes. Raises BadInput naming file and row for what is empty, longer than 10,000 letters or holds
    a NUL, and for columns that cannot be found.
    """
    if place.is_file() and place.suffix == ".json":
        sides = _clinc(place)
    elif place.is_file():
        table = _table(place, with_split=True)
        sides = {side: [(text, label) for text, label, of in table if of == side] for side in ("train", "test")}
    else:
        sides = {}
        for side in ("train", "test"):
            files = sorted(f for ending in ENDINGS for f in place.glob(f"*{side}*{ending}"))
            if len(files) != 1:
                raise MissingFile(
                    f"{place} holds {len(files)} tables *{side}*.", f"Expected one ({', '.join(ENDINGS)})."
                )
            sides[side] = [(text, label) for text, label, _ in _table(files[0], with_split=False)]
    classes = sorted({label for rows in sides.values() for _, label in rows})
    number = {name: i for i, name in enumerate(classes)}
    made = {}
    for side, rows in sides.items():
        if not rows:
            raise BadArray(f"{place} has no {side} texts.", "Expected at least one.")
        y = np.array([number[label] for _, label in rows], np.int64)
        made[side] = Side(np.array([text for text, _ in rows], np.str_), y, np.arange(len(rows)))
    return Base(place.stem, made["train"], made["test"], classes)


def _table(path: Path, with_split: bool) -> list[tuple[str, str, str]]:
    """(text, label, split) of each row."""
    try:
        data = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 ({error.reason} at byte {error.start}).", "Expected UTF-8 text.") from None
    records: Iterable[Mapping[str, Any]]
    if path.suffix == ".jsonl":
        records = [_parsed(line, f"{path}, line {i + 1}") for i, line in enumerate(data.splitlines()) if line.strip()]
    else:
        try:
            csv.field_size_limit(1 << 24)
            records = list(
                csv.DictReader(io.StringIO(data, newline=""), delimiter="\t" if path.suffix == ".tsv" else ",")
            )
        except csv.Error as error:
            raise BadInput(f"{path} cannot be read ({error}).", "Expected a table with a header.") from None
    found = []
    for i, record in enumerate(records):
        where = f"{path}, row {i + 1}"
        text, label = (_named(record, names, where) for names in (TEXT, LABEL))
        split = _named(record, ("split",), where) if with_split else ""
        found.append((checked(text, where), checked(label, where), {"valid": "val"}.get(split, split)))
    return found


def _named(record: Mapping[str, Any], names: Iterable[str], where: str) -> str:
    there = {str(key).strip().lower(): value for key, value in record.items() if key is not None}
    for name in names:
        if name in there:
            return "" if there[name] is None else str(there[name])
    raise BadInput(f"{where}: there is no column {' or '.join(names)}.", f"It has {', '.join(there) or 'none'}.")


def _clinc(path: Path) -> dict[str, Rows]:
    """`train`, `test`, and their `oos_` twins, are lists of [text, intent] [Larson et al. 2019]."""
    found = _parsed(path.read_text(encoding="utf-8"), str(path))
    sides: dict[str, Rows] = {}
    for side in ("train", "test"):
        rows: Rows = []
        for key in (side, f"oos_{side}"):
            for i, pair in enumerate(found.get(key, [])):
                where = f"{path}, {key}, row {i + 1}"
                if not isinstance(pair, list) or len(pair) != 2:
                    raise BadInput(f"{where}: {str(pair)[:60]!r}.", "Expected [text, intent].")
                rows.append((checked(str(pair[0]), where), checked(str(pair[1]), where)))
        sides[side] = rows
    return sides


def _parsed(text: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput(f"{where}: no JSON ({error.msg} at character {error.pos}).", "") from None
    if not isinstance(found, dict):
        raise BadInput(f"{where}: {type(found).__name__}.", "Expected a JSON object.")
    return found


def checked(text: str, where: str) -> str:
    """Raises BadInput for a text that is empty, too long, or holds a NUL."""
    if not text.strip():
        raise BadInput(f"{where}: an empty text or label.", "Expected some characters.", "Leave the row out.")
    if "\0" in text:
        raise BadInput(f"{where}: the text holds a NUL byte.", "Expected text.", "Remove it.")
    if len(text) > MOST:
        raise BadInput(f"{where}: {len(text):,} characters.", f"Expected at most {MOST:,}.", "Cut it.")
    return text
