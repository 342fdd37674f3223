"""Banking77 and CLINC150 by name: their official files, from a folder or downloaded."""

from __future__ import annotations

from pathlib import Path

from driftline.curate.core.atomic_io import sha256_bytes, write_bytes
from driftline.curate.core.errors import BadInput, MissingFile, Unreachable
from driftline.curate.core.outside.http import Client, Policy, Temporary
from driftline.stream_builder.datasets import Dataset, Options
from driftline.stream_builder.datasets.texts import open_texts

LARGEST = 64 * 2**20  # bytes of a file
BANKING77 = "https://raw.githubusercontent.com/PolyAI-LDN/task-specific-datasets/master/banking_data/"
CLINC150 = "https://raw.githubusercontent.com/clinc/oos-eval/master/data/"
# Hashes of Banking77's files in 2026. CLINC150's file has none: its rows are checked one by one.
SHA256 = {
    "train.csv": "b06e26ac675513959a63135f11b94ea7786ed02da65db93a5650d8838cbc664b",
    "test.csv": "d12d6e3bc4c3103966ae786dc435913c0c563dfa328f5a3646d0e62cfeeb474d",
}


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
