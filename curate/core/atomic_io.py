"""Files that are either complete or absent: write to a temporary name, fsync, rename."""

import csv
import errno
import glob
import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from driftline.curate.core.errors import BadInput, DriftlineError, MissingFile, reason
from driftline.curate.core.late import np, pa, pq
from driftline.curate.core.system import claimed, lock, open_folder, remove_unclaimed, sync_folder

if TYPE_CHECKING:  # imported where it is used: a command's help does not need it
    import numpy.typing as npt

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
DOCUMENT = 256 << 20  # bytes of a JSON or YAML document, which is read as a whole
TEMPORARY = ".partial-"  # prefix of every unfinished file
UPGRADE = "Install that version or a later one: pip install --upgrade driftline."


def no_room(error: OSError, path: Path, size: int) -> DriftlineError:
    """The message about a full disk: the file, its bytes so far, what is free. error: one of NO_ROOM."""
    free = shutil.disk_usage(path.parent).free
    limit = error.errno == errno.EFBIG
    full = "The file is too large for its disk, or for ulimit -f" if limit else "The disk is full"
    needs = f"needs more than {size:,} bytes" if size else "cannot be written"
    return DriftlineError(
        f"{full}: {path.absolute()} {needs}; {free:,} are free.",
        "",
        "Free some space and run the same command again: finished work is kept.",
    )


@contextmanager
def writing(path: Path, mode: str = "wb", last: bool = True, secret: bool = False) -> Iterator[IO[Any]]:
    """Open a temporary file in the folder of `path`; on success fsync it and rename it to `path`.

    A reader sees the old file or the complete new one, never a part. An exception leaves no file behind. last: False
    if another file of the folder is written next, which then makes both renames durable. secret: only its owner reads
    it. Raises DriftlineError if the disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f"{TEMPORARY}{os.getpid()}-{path.name}"
    try:
        binary = "b" in mode
        with claimed(temporary):
            if secret:
                temporary.chmod(0o600)
            text: Any = {} if binary else {"encoding": "utf-8", "newline": ""}
            with open(temporary, mode, **text) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        if last:
            sync_folder(path.parent)
    except BaseException as error:
        size = temporary.stat().st_size if temporary.is_file() else 0
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            raise no_room(error, path, size) from None
        if isinstance(error, OSError) and error.filename is None:  # a failed write does not say of what
            error.filename = str(path)
        raise


def remove_tree(folder: Path) -> None:
    """Remove a folder of ours, if it is there; of a link in its place only the link."""
    if folder.is_symlink():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path`, completely or not at all."""
    with writing(path) as file:
        file.write(data)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text to `path`, completely or not at all."""
    write_bytes(path, text.encode())


def private(folder: Path) -> None:
    """Make a folder, or make it one, that only its owner enters: for what people answered, and who they are."""
    folder.mkdir(0o700, parents=True, exist_ok=True)
    with suppress(OSError):  # of somebody else
        folder.chmod(0o700)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON with sorted keys: the same value gives the same bytes."""
    write_text(path, _json_text(value))


def _json_text(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]], end: str = "\n", quote_all: bool = False) -> str:
    """A CSV document with a header line. Line ends inside cells are written as "\\n", which is quoted; the csv module
    does not quote "\\r".

    >>> csv_text(("id", "since"), [("7", "1.0.0")])
    'id,since\\n7,1.0.0\\n'
    """
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator=end, quoting=csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL)
    writer.writerow(header)
    for row in rows:
        writer.writerow([re.sub("\r\n?", "\n", c) if isinstance(c, str) and "\r" in c else c for c in row])
    return buffer.getvalue()


def json_value(data: str | bytes) -> Any:
    """The value of a JSON document in UTF-8. Raises ValueError, also for half of a surrogate pair, which is no text and
    cannot be written; RecursionError."""
    text = data.decode("utf-8") if isinstance(data, bytes) else data
    value = json.loads(text)
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()
    return value


def read_json(path: Path) -> Any:
    """Read JSON. Raises MissingFile or BadInput, naming the file."""
    try:
        if (size := path.stat().st_size) > DOCUMENT:
            raise BadInput(f"{path} has {size:,} bytes.", f"Expected a JSON file of at most {DOCUMENT:,}.")
        return json_value(path.read_bytes())
    except FileNotFoundError:
        raise MissingFile(f"There is no file {path}.", "Expected a JSON file.") from None
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, not text, a number of thousands of digits
        why = "nested too deeply" if isinstance(error, RecursionError) else reason(error)
        raise BadInput(f"{path} is not valid JSON ({why}).", "", "Restore the file or create it again.") from None


def read_object(path: Path, keys: Mapping[str, Any], way_out: str) -> dict[str, Any]:
    """A JSON object that has some keys with values of these types. Raises MissingFile, BadInput naming file and key.

    keys: as for isinstance.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise BadInput(f"{path} holds {type(value).__name__}.", "Expected a JSON object.", way_out)
    if lacking := [key for key, kind in keys.items() if not isinstance(value.get(key), kind)]:
        raise BadInput(f"{path} has no valid {lacking[0]!r}.", "", way_out)
    return value


def check_format(path: Path, number: Any, ours: int, way_out: str) -> None:
    """Raise BadInput unless the format number of a file is the one that this version reads. way_out: for a file that no
    newer driftline wrote."""
    if number != ours:
        newer = isinstance(number, int) and number > ours
        raise BadInput(
            f"{path} has the format {number!r}; this driftline reads {ours}.", "", UPGRADE if newer else way_out
        )


def check_version(path: Path, writer: str, reader: str, way_out: str) -> None:
    """Raise BadInput for a file of another release of driftline; patch releases read each other's files.

    >>> check_version(Path("done.json"), "0.2.7", "0.2.0", "")
    """
    theirs, ours = ([int(part) for part in version.split(".")[:2]] for version in (writer, reader))
    if theirs != ours:
        raise BadInput(
            f"{path} was written by driftline {writer}; this is {reader}.", "", UPGRADE if theirs > ours else way_out
        )


def write_parquet(
    path: Path, table: "pa.Table", repeated: Sequence[str] | None = None, compression: str = "zstd"
) -> None:
    """Write a table as Parquet; with one pyarrow version, the same table gives the same bytes.

    repeated: columns with few distinct values, stored with a dictionary (default: a dictionary is tried for every
    column, which costs time and memory).
    """
    with writing(path) as file:
        columns = True if repeated is None else [name for name in repeated if name in table.column_names]
        _write_table(table, file, columns, compression)


def _write_table(table: "pa.Table", file: IO[Any], columns: Any = True, compression: str = "zstd") -> None:
    pq.write_table(table, file, compression=compression, row_group_size=65_536, use_dictionary=columns)


def write_secret(path: Path, value: Any) -> None:
    """Write text, a table as Parquet, or another value as JSON, so that only its owner reads it."""
    with writing(path, secret=True) as file:
        if hasattr(value, "column_names"):
            _write_table(value, file)
        else:
            file.write((value if isinstance(value, str) else _json_text(value)).encode())


def write_array(path: Path, array: "npt.NDArray[Any]") -> None:
    """Write a `.npy` file (no pickle), completely or not at all."""
    with writing(path) as file:
        np.save(file, np.ascontiguousarray(array), allow_pickle=False)


def sha256_bytes(data: bytes) -> str:
    """Hexadecimal SHA-256."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Hexadecimal SHA-256 of a file, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(value: Any) -> str:
    """SHA-256 of plain data (as JSON with sorted keys). Raises TypeError for anything that JSON cannot hold."""
    return sha256_bytes(json.dumps(value, sort_keys=True, ensure_ascii=True).encode())


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait until no other process has the folder locked. The lock ends with the process, even after a crash. Raises
    NotHere."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = open_folder(folder)
    try:
        lock(handle)
        yield
    finally:
        os.close(handle)


def sweep_file(path: Path) -> None:
    """Remove what killed processes left of a file that they wrote."""
    for left in path.parent.glob(f"{glob.escape(TEMPORARY)}*-{glob.escape(path.name)}"):
        if left.is_file() and not left.is_symlink():
            remove_unclaimed(left)


def sweep(folder: Path) -> None:
    """Remove the temporary files that killed processes left in `folder` (recursively); those that live processes write
    stay."""
    if folder.is_dir():
        for path in folder.rglob(f"{TEMPORARY}*"):
            if path.is_symlink() or path.is_dir():
                remove_tree(path)
            else:
                remove_unclaimed(path)
