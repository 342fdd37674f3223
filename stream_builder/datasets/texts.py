"""Labelled texts: Banking77 and CLINC150 by name or file, or any table with a column of texts and one of labels."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from driftline.curate.core.atomic_io import read_object, sha256_bytes, write_bytes
from driftline.curate.core.errors import BadArray, BadInput, MissingFile, Unreachable
from driftline.curate.core.parsing import rows_of
from driftline.curate.foreign.cells import flat
from driftline.curate.foreign.delimited import ending
from driftline.curate.foreign.http import Client, Policy, Temporary
from driftline.stream_builder.datasets.base import Dataset, Options, Samples
from driftline.stream_builder.importers.dated import column_of, table_of
from driftline.stream_builder.rows import labelled

TEXT = ("text", "utterance", "sentence", "question", "query", "content")  # names of a column of texts
LABEL = ("category", "label", "intent", "class", "target")  # names of a column of labels
MAX_LENGTH = 10_000  # characters of a text
ENDINGS = (".csv", ".tsv", ".jsonl")
LARGEST = 64 * 2**20  # bytes of a file
BANKING77 = "https://raw.githubusercontent.com/PolyAI-LDN/task-specific-datasets/master/banking_data/"
CLINC150 = "https://raw.githubusercontent.com/clinc/oos-eval/master/data/"
# Hashes of Banking77's files in 2026. CLINC150's file has none: its rows are checked one by one.
SHA256 = {
    "train.csv": "b06e26ac675513959a63135f11b94ea7786ed02da65db93a5650d8838cbc664b",
    "test.csv": "d12d6e3bc4c3103966ae786dc435913c0c563dfa328f5a3646d0e62cfeeb474d",
}
Rows = list[tuple[str, str, str]]  # text, label, train or test


def banking77(path: Path, options: Options) -> Dataset:
    """Banking77: questions to a bank, with 77 intents [Casanueva et al. 2020]: `banking77/train.csv`, `test.csv`."""
    folder = path / "banking77"
    for name in ("train.csv", "test.csv"):
        _ensure(folder / name, BANKING77 + name, options.download)
    return open_texts(folder, options)


def clinc150(path: Path, options: Options) -> Dataset:
    """CLINC150: 150 intents and out-of-scope texts (250 for training) [Larson et al. 2019]: `data_oos_plus.json`."""
    file = path / "clinc150" / "data_oos_plus.json"
    _ensure(file, CLINC150 + file.name, options.download)
    return open_texts(file, options)


def _ensure(file: Path, url: str, download: bool) -> None:
    """Download a file unless it exists. Raises MissingFile if that is not allowed or fails, BadInput for other
    content."""
    if file.is_file():
        return
    hint = f"Get it from {url}, or use --download."
    if not download:
        raise MissingFile(f"There is no file {file}.", "", hint)
    try:
        reply = Client(largest=LARGEST).ask("GET", url, lambda reply: reply, Policy(4))
    except Temporary as failure:
        raise Unreachable(f"{url} cannot be reached ({failure}).", "", hint) from None
    if reply.status != 200:
        raise Unreachable(f"{url} answered {reply.status}.", "", hint)
    if len(data := reply.body) > LARGEST:
        raise BadInput(f"{url} is larger than {LARGEST:,} bytes.", "", hint)
    if file.name in SHA256 and sha256_bytes(data) != SHA256[file.name]:
        raise BadInput(f"The file at {url} has changed.", f"Expected SHA-256 {SHA256[file.name]}.", hint)
    write_bytes(file, data)


def open_texts(path: Path, options: Options) -> Dataset:
    """A folder with one `*train*` and one `*test*` table (Banking77: train.csv, test.csv), CLINC150's `data_*.json`
    (`oos_` rows are a class), or one table with a column `split`.

    Texts are not changed. Raises MissingFile, and BadInput naming file and row for a text that is empty, longer than
    10,000 characters or contains a NUL, and for missing columns.
    """
    if path.is_file():
        rows = _clinc(path) if path.suffix.lower() == ".json" else _table(path)
    else:
        rows = []
        for part in ("train", "test"):
            files = sorted(f for ending in ENDINGS for f in path.glob(f"*{part}*{ending}"))
            if len(files) != 1:
                raise MissingFile(f"{path} has {len(files)} tables *{part}*.", f"Expected one ({', '.join(ENDINGS)}).")
            rows += _table(files[0], part)
    rows = [row for row in rows if row[2] in ("train", "test")]
    y, classes = labelled([label for _, label, _ in rows])
    part_of, samples = np.array([part for _, _, part in rows]), {}
    for part in ("train", "test"):
        chosen = np.flatnonzero(part_of == part)
        if not len(chosen):
            raise BadArray(f"{path} has no {part} texts.", "Expected at least one.")
        x = np.array([rows[i][0] for i in chosen.tolist()], np.str_)
        samples[part] = Samples(x, y[chosen], np.arange(len(chosen)))
    return Dataset(path.stem, samples["train"], samples["test"], classes)


def _table(path: Path, part: str = "") -> Rows:
    """(text, label, part) of each row; without a part, the column `split` names it."""
    table = table_of(path, None)
    table = pa.table([flat(table[i], f"{path}: {name}") for i, name in enumerate(table.column_names)],
                     [name.strip().lower() for name in table.column_names])  # fmt: skip
    of = [column_of(table, path, None, names, "") for names in (TEXT, LABEL, *[["split"]] * (not part))]
    rows = []
    for i, (text, label, *side) in enumerate(rows_of(table, *of)):
        row = f"{path}, row {i + 1}"
        rows.append((checked(text or "", row), checked(label or "", row), part or str(side[0])))
    return rows


def _clinc(path: Path) -> Rows:
    """`train`, `test`, `oos_train` and `oos_test` are lists of [text, intent] [Larson et al. 2019]."""
    lists = read_object(path, {}, "")
    rows: Rows = []
    for key in ("train", "oos_train", "test", "oos_test"):
        pairs = lists.get(key, [])
        if not isinstance(pairs, list):
            raise BadInput(f"{path}: {key} is {type(pairs).__name__}.", "Expected a list of [text, intent].")
        for i, pair in enumerate(pairs):
            row = f"{path}, {key}, row {i + 1}"
            if not isinstance(pair, list) or len(pair) != 2:
                raise BadInput(f"{row}: {str(pair)[:60]!r}.", "Expected [text, intent].")
            rows.append((checked(str(pair[0]), row), checked(str(pair[1]), row), key.removeprefix("oos_")))
    return rows


def checked(text: str, row: str) -> str:
    """The text. Raises BadInput if it is empty, too long, or contains a NUL."""
    if not text.strip():
        raise BadInput(f"{row}: an empty text or label.", "Expected some characters.", "Leave the row out.")
    if "\0" in text:
        raise BadInput(f"{row}: the text contains a NUL byte.", "Expected text.", "Remove it.")
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise BadInput(f"{row}: the text contains half of a surrogate pair.", "Expected text.", "Remove it.")
    if len(text) > MAX_LENGTH:
        raise BadInput(f"{row}: {len(text):,} characters.", f"Expected at most {MAX_LENGTH:,}.", "Shorten it.")
    return text


def has_texts(path: Path) -> bool:
    """Whether a file or folder has tables of texts."""
    if path.is_file():
        return ending(path) in (*ENDINGS, ".json")
    return any(any(path.glob(f"*train*{ending}")) for ending in ENDINGS)
