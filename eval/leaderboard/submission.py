"""The file of a submission: rows, predictions and hashes of runs, packed and read.

A submission is a zip: `manifest.json` (written last, with the SHA-256 of every other member) and for each run
`runs/NNNN/run.json`, `rows.parquet` and `predictions.parquet`; `code/NAME.py` are modules of learners that driftline
does not have. The same runs give the same bytes.
"""

import hashlib
import io
import json
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import check_format, write_bytes
from driftline.curate.core.errors import BadInput, DriftlineError, IntegrityError, MissingFile, reason
from driftline.eval import predictions
from driftline.eval import rows as row_files
from driftline.eval.rows import Run
from driftline.eval.scoring.aggregate import summary

FORMAT = 1
LARGEST = 256 * 2**20  # bytes of all members, unpacked
MOST = 20_000  # members
LONGEST = 300  # characters of a name
EPOCH = (1980, 1, 1, 0, 0, 0)  # of every member: the same bytes every time
MODULE = r"[^\W\d]\w*"  # the name of one
MEMBER = re.compile(rf"runs/\d{{4,}}/(run\.json|rows\.parquet|predictions\.parquet)|code/{MODULE}\.py")
IDENTITY = ("protocol", "protocol_settings", "learner", "settings", "seed", "stream", "steps")
A_SUBMISSION = "Expected a submission of driftline submit."
AGAIN = "Pack the runs again."


def pack(paths: Sequence[Path], name: str, out: Path, contact: str = "", code: Sequence[Path] = ()) -> dict[str, Any]:
    """Write a submission of all runs below some folders; returns its manifest.

    code: the modules of learners named `module:Name`. Raises MissingFile for one that is not there and if there are no
    runs, BadInput for an empty, long or unprintable name and for a module with another.
    """
    if not name.strip() or len(name) > 200 or not name.isprintable():
        raise BadInput(f"The name is {name[:60]!r}.", "Expected up to 200 printable characters.")
    members: dict[str, bytes] = {}
    for i, folder in enumerate(row_files.folders(paths)):
        run, records = row_files.load(folder), folder / predictions.FILE
        members[f"runs/{i:04d}/run.json"] = _json({"format": row_files.FORMAT, **run.about})
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist([row_files.plain(r) for r in run.rows], schema=row_files.schema()), sink)
        members[f"runs/{i:04d}/rows.parquet"] = sink.getvalue()
        if records.is_file():
            members[f"runs/{i:04d}/{predictions.FILE}"] = records.read_bytes()
    for module in code:
        if not MEMBER.fullmatch(member := f"code/{module.name}"):
            raise BadInput(f"The code {module} has a name that is no module's.", "Expected NAME.py.")
        if not module.is_file():
            raise MissingFile(f"There is no file {module}.", "", "Check --code.")
        members[member] = module.read_bytes()
    manifest = {
        "format": FORMAT,
        "name": name,
        "contact": contact,
        "files": {member: hashlib.sha256(data).hexdigest() for member, data in members.items()},
    }
    documents_of(runs_of(members))  # what cannot be scored is not packed
    members["manifest.json"] = _json(manifest)
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as file:
        for member, data in members.items():
            file.writestr(zipfile.ZipInfo(member, EPOCH), data, zipfile.ZIP_DEFLATED)
    write_bytes(out, sink.getvalue())
    return manifest


def opened(path: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Members (without the manifest) and the manifest, hashes checked. Members are never written to disk.

    Raises MissingFile, BadInput for a file that is no submission or is too large, IntegrityError for a member whose
    hash is not the manifest's.
    """
    if not path.is_file():
        raise MissingFile(f"There is no submission {path}.", "", "Make one with driftline submit.")
    try:
        with zipfile.ZipFile(path) as file:
            members = _members(path, file)
    except (zipfile.BadZipFile, zlib.error, OSError, RuntimeError, EOFError, ValueError) as error:
        raise BadInput(f"{path} cannot be read ({reason(error)}).", A_SUBMISSION) from None
    manifest = _parsed(members.pop("manifest.json", b""), f"manifest.json in {path}")
    check_format(path, manifest.get("format"), FORMAT, "Pack it again: driftline submit.")
    for key, kind in (("files", dict), ("name", str)):
        if not isinstance(manifest.get(key), kind):
            raise BadInput(f"The manifest of {path} has no {key!r}.", A_SUBMISSION, "Pack it again.")
    if len(manifest["name"]) > LONGEST:
        raise BadInput(f"The name in {path} has {len(manifest['name'])} characters.", f"Expected at most {LONGEST}.")
    if odd := sorted(set(members) ^ set(manifest["files"])):
        raise IntegrityError(f"{odd[0]} is not in both manifest and file.", "", AGAIN)
    for member, data in members.items():
        if hashlib.sha256(data).hexdigest() != manifest["files"][member]:
            raise IntegrityError(f"{member} in {path} was changed after it was packed.", "", AGAIN)
    return members, manifest


def _members(path: Path, file: zipfile.ZipFile) -> dict[str, bytes]:
    """The content of every member. Raises BadInput for one with another name than a submission's, twice the same name,
    or too much content, whatever the file says about its size."""
    infos = file.infolist()
    if len(infos) > MOST or sum(info.file_size for info in infos) > LARGEST:
        raise BadInput(f"{path} is too large.", f"Expected at most {MOST:,} members and {LARGEST:,} bytes.")
    members: dict[str, bytes] = {}
    for info in infos:
        if info.filename != "manifest.json" and not MEMBER.fullmatch(info.filename):
            problem = f"{path} has a member {info.filename[:100]!r}."
            raise BadInput(problem, "Expected runs/NNNN/run.json, its tables, and code/NAME.py.")
        if info.filename in members:
            raise BadInput(f"{path} has {info.filename} twice.", "Expected every member once.")
        with file.open(info) as member:
            members[info.filename] = member.read(info.file_size + 1)
        if len(members[info.filename]) > info.file_size:
            raise BadInput(f"{info.filename} in {path} is larger than the file says.", A_SUBMISSION)
    return members


def runs_of(members: Mapping[str, bytes]) -> list[Run]:
    """Raises BadInput for a member that is no run, for rows that are too many, and for one run twice."""
    runs, names = [], set()
    for member in sorted(m for m in members if m.endswith("/run.json")):
        about = row_files.checked(_parsed(members[member], member), Path(member), AGAIN)
        if max(len(about["learner"]), len(about["protocol"]), len(about["stream"]["name"])) > LONGEST:
            raise BadInput(f"{member} has a name of more than {LONGEST} characters.", "Expected a run.")
        identity = json.dumps([about[key] for key in IDENTITY], sort_keys=True)
        if identity in names:
            problem = f"{member} is a run that is there twice: {about['learner'][:60]!r}, seed {about['seed']}."
            raise BadInput(problem, "Expected every learner once for a seed.")
        names.add(identity)
        rows = member.replace("run.json", "rows.parquet")
        if rows not in members:
            raise BadInput(f"{rows} is missing.", A_SUBMISSION, AGAIN)
        runs.append(Run(about, row_files.parsed(members[rows], Path(rows), AGAIN)))
    if not runs:
        raise BadInput("It has no runs.", "Expected runs/NNNN/run.json.")
    return runs


def modules_of(members: Mapping[str, bytes]) -> set[str]:
    """The names of the modules of its learners."""
    return {m.removeprefix("code/").removesuffix(".py") for m in members if m.startswith("code/")}


def with_records(run: Run, members: Mapping[str, bytes], number: int) -> Run:
    """A run with its predictions, if it has some. Raises BadInput and IntegrityError as `predictions.attached`."""
    names = sorted(member for member in members if member.endswith("/run.json"))
    member = names[number].replace("run.json", predictions.FILE)
    if member not in members:
        return run
    return Run(run.about, predictions.attached(Path(member), io.BytesIO(members[member]), run.rows))


def documents_of(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The documents of `eval --json`, scored from the rows. Raises BadInput for rows that cannot be scored."""
    try:
        groups = sorted(row_files.grouped(runs).items())
        return [summary(group, name, sha, protocol) for (sha, protocol, name), group in groups]
    except (DriftlineError, TypeError, ValueError, LookupError, ArithmeticError, StopIteration, MemoryError) as error:
        problem = f"Its results cannot be scored ({type(error).__name__}: {error})."
        raise BadInput(problem, "Expected runs of driftline eval.") from None


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _parsed(data: bytes, what: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise BadInput(f"{what} is missing or no JSON.", A_SUBMISSION) from None
    if not isinstance(value, dict):
        raise BadInput(f"{what} is no object.", A_SUBMISSION)
    return value
