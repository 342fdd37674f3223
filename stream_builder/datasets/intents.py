"""Banking77 and CLINC150 by name: their official files, from a folder or downloaded."""

from __future__ import annotations

from pathlib import Path

from curate.core.atomic_io import sha256_bytes, write_bytes
from curate.core.errors import BadInput, MissingFile
from stream_builder.datasets import Base, Options
from stream_builder.datasets.texts import open_texts

LARGEST = 64 * 2**20  # bytes of a file
BANKING77 = "https://raw.githubusercontent.com/PolyAI-LDN/task-specific-datasets/master/banking_data/"
CLINC150 = "https://raw.githubusercontent.com/clinc/oos-eval/master/data/"
# What the files were in 2026; CLINC150's was not at hand to be hashed, and its rows are checked one by one.
KNOWN = {
    "train.csv": "b06e26ac675513959a63135f11b94ea7786ed02da65db93a5650d8838cbc664b",
    "test.csv": "d12d6e3bc4c3103966ae786dc435913c0c563dfa328f5a3646d0e62cfeeb474d",
}


def banking77(place: Path, options: Options) -> Base:
    """Train and test questions to a bank with 77 intents [Casanueva et al. 2020]: `banking77/train.csv`, `test.csv`."""
    folder = place / "banking77"
    for name in ("train.csv", "test.csv"):
        _there(folder / name, BANKING77 + name, options.download)
    return open_texts(folder, options)


def clinc150(place: Path, options: Options) -> Base:
    """150 intents and what is out of scope, 250 training texts of that [Larson et al. 2019]: `data_oos_plus.json`."""
    file = place / "clinc150" / "data_oos_plus.json"
    _there(file, CLINC150 + file.name, options.download)
    return open_texts(file, options)


def _there(path: Path, address: str, download: bool) -> None:
    """Raises MissingFile where a file is not there and may not, or cannot, be fetched; BadInput for other content."""
    import urllib3

    if path.is_file():
        return
    hint = f"Get it from {address}, or use --download."
    if not download:
        raise MissingFile(f"There is no file {path}.", "", hint)
    try:
        answer = urllib3.PoolManager().request(
            "GET", address, timeout=60, retries=urllib3.Retry(3, redirect=3), preload_content=False
        )
        data = answer.read(LARGEST + 1)
    except urllib3.exceptions.HTTPError as error:
        raise MissingFile(f"{address} cannot be reached ({type(error).__name__}).", "", hint) from None
    if answer.status != 200:
        raise MissingFile(f"{address} answered {answer.status}.", "", hint)
    if len(data) > LARGEST:
        raise BadInput(f"{address} is larger than {LARGEST:,} bytes.", "", hint)
    if path.name in KNOWN and sha256_bytes(data) != KNOWN[path.name]:
        raise BadInput(f"{address} is not the file that it was.", f"Expected SHA-256 {KNOWN[path.name]}.", hint)
    write_bytes(path, data)
