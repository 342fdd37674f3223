"""Results that others can check: rows, hashes and environment in one file; scored again, and partly run again.

A submission is a zip: `manifest.json` (written last, with the SHA-256 of every other member) and for each run
`runs/NNNN/run.json` and `rows.parquet`. The same runs give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from curate.core.atomic_io import check_format, write_bytes
from curate.core.errors import BadInput, DriftlineError, IntegrityError, MissingFile
from curate.core.seeding import rng_for
from eval import rows as row_files
from eval.learners import LEARNERS
from eval.protocol import PROTOCOLS
from eval.rows import ROWS, Row, Run, counted
from eval.run import evaluate
from eval.scoring.aggregate import summary
from stream_builder.stream import Stream

FORMAT = 1
LARGEST = 256 * 2**20  # bytes of all members, unpacked
MOST = 20_000  # members
EPOCH = (1980, 1, 1, 0, 0, 0)  # of every member: the same bytes every time
OUTSIDE = ("endpoint", "model", "weights", "ledger", "key_env")  # settings that name a file, model or address
CODE = re.compile(r"[^\W\d][\w.]*:[^\W\d]\w*")  # package.module:Name; dynamic:0.5 and delayed:20 are none
PACKAGES = ("driftline", "torch", "numpy", "faiss-cpu", "timm", "transformers", "peft", "river", "scikit-learn")


@dataclass(frozen=True)
class Verdict:
    """What the check of a submission found."""

    name: str
    documents: list[dict[str, Any]]
    """of `eval --json`, scored from the rows"""
    again: list[dict[str, Any]] = field(default_factory=list)
    """what was run again, and how it differs"""
    problems: list[str] = field(default_factory=list)
    """what is wrong; empty if the submission holds"""

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"holds": self.holds, "reproduces": bool(self.again) and self.holds}


def pack(paths: Sequence[Path], name: str, out: Path, contact: str = "") -> dict[str, Any]:
    """Write a submission of all runs below some folders; returns its manifest. Raises MissingFile if there are none,
    BadInput for an empty, long or unprintable name."""
    if not name.strip() or len(name) > 200 or not name.isprintable():
        raise BadInput(f"The name is {name[:60]!r}.", "Expected up to 200 printable characters.")
    members: dict[str, bytes] = {}
    for i, run in enumerate(row_files.find(paths)):
        members[f"runs/{i:04d}/run.json"] = _json({"format": row_files.FORMAT, **run.about})
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist([asdict(r) for r in run.rows], schema=ROWS), sink)
        members[f"runs/{i:04d}/rows.parquet"] = sink.getvalue()
    manifest = {
        "format": FORMAT,
        "name": name,
        "contact": contact,
        "environment": environment(),
        "files": {member: hashlib.sha256(data).hexdigest() for member, data in members.items()},
        "scores": _scores(_runs(members)),
    }
    members["manifest.json"] = _json(manifest)
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as file:
        for member, data in members.items():
            file.writestr(zipfile.ZipInfo(member, EPOCH), data, zipfile.ZIP_DEFLATED)
    write_bytes(out, sink.getvalue())
    return manifest


def environment() -> dict[str, Any]:
    """Versions and machine, as far as they may change a number."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {"python": platform.python_version(), "machine": platform.machine(), "packages": versions}


def verify(path: Path, streams: Sequence[Path] = (), again: int = 1, seed: int = 0) -> Verdict:
    """Check members and hashes, score the rows again, and run some again. Modules that it names are not imported.

    streams: folders of the streams that it names; `again` runs on them are drawn with `seed` and run. Raises
    MissingFile, BadInput for a file that is no submission, IntegrityError for a member whose hash is not the
    manifest's.
    """
    members, manifest = opened(path)
    runs = _runs(members)
    problems = [problem for number, run in enumerate(runs) for problem in _odd(run, f"run {number:04d}")]
    if not problems:
        scores = _scores(runs)  # may have scores that an older manifest lacks
        wrong = [(key, claimed) for key, claimed in manifest["scores"].items() if scores.get(key) != claimed]
        problems += [f"{key}: the manifest says {claimed}, its rows {scores.get(key)}." for key, claimed in wrong[:1]]
    documents = [] if problems else _documents(runs)
    loaded = {stream.sha256: stream for stream in map(Stream.load, streams)}
    repeatable = [run for run in runs if run.about["stream"]["sha256"] in loaded and not outside(run)]
    drawn: list[dict[str, Any]] = []
    if not problems and again and repeatable:
        order = rng_for(seed, "verify").permutation(len(repeatable))[:again].tolist()
        drawn += [_repeated(run, loaded[run.about["stream"]["sha256"]]) for run in (repeatable[i] for i in order)]
        problems += [f"{run['learner']}, seed {run['seed']}: {run['differs']}" for run in drawn if run["differs"]]
    if streams and not problems and not repeatable:
        problems.append("No run that may be repeated is on one of the given streams.")
    return Verdict(str(manifest["name"]), documents, drawn, problems)


def outside(run: Run) -> str:
    """Which setting of a run names a file, model or address, or a Python module; "" if none does. Such a run is not
    repeated: a submission must not write to a folder of this machine, load a file from it, import code, or send
    requests and keys to an address."""
    learner, settings = str(run.about["learner"]), run.about["settings"]
    tuned = settings["tune"] if isinstance(settings.get("tune"), dict) else {}
    given = {**settings, **tuned, **run.about["protocol_settings"]}
    in_name = re.findall(rf"\b({'|'.join(OUTSIDE)})\s*=", learner)
    modules = CODE.findall(json.dumps([learner, *given.values()], ensure_ascii=False))
    return next(iter([key for key in OUTSIDE if given.get(key)] + in_name + modules), "")


def opened(path: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Members (without the manifest) and the manifest, hashes checked."""
    if not path.is_file():
        raise MissingFile(f"There is no submission {path}.", "", "Make one with driftline submit.")
    try:
        with zipfile.ZipFile(path) as file:
            infos = file.infolist()
            if len(infos) > MOST or sum(info.file_size for info in infos) > LARGEST:
                raise BadInput(f"{path} is too large.", f"Expected at most {MOST:,} members and {LARGEST:,} bytes.")
            members = {info.filename: file.read(info) for info in infos}
    except (zipfile.BadZipFile, OSError, RuntimeError, EOFError) as error:
        raise BadInput(f"{path} cannot be read ({error}).", "Expected a submission of driftline submit.") from None
    manifest = _parsed(members.pop("manifest.json", b""), f"manifest.json in {path}")
    check_format(path, manifest.get("format"), FORMAT, "Pack it again: driftline submit.")
    if not isinstance(manifest.get("files"), dict):
        raise BadInput(f"The manifest of {path} lists no files.", "Expected the SHA-256 of each.", "Pack it again.")
    if odd := sorted(set(members) ^ set(manifest["files"])):
        raise IntegrityError(f"{odd[0]} is not in both manifest and file.", "", "Pack the runs again.")
    for member, data in members.items():
        if hashlib.sha256(data).hexdigest() != manifest["files"][member]:
            raise IntegrityError(f"{member} in {path} was changed after it was packed.", "", "Pack the runs again.")
    return members, manifest


def _runs(members: Mapping[str, bytes]) -> list[Run]:
    """Raises BadInput for a member that is no run."""
    runs = []
    for member in sorted(m for m in members if m.endswith("/run.json")):
        about = _parsed(members[member], member)
        if missing := {"protocol", "protocol_settings", "learner", "settings", "seed", "stream", "steps"} - set(about):
            raise BadInput(f"{member} lacks {', '.join(sorted(missing))}.", "Expected a run of driftline eval.")
        try:
            table = pq.read_table(io.BytesIO(members[member.replace("run.json", "rows.parquet")]))
            rows = [Row(**row) for row in table.to_pylist()]
        except (KeyError, pa.ArrowInvalid, TypeError, OSError) as error:
            raise BadInput(
                f"{member} has no rows that can be read ({error}).", "Expected rows of driftline eval."
            ) from None
        runs.append(Run(about, rows))
    if not runs:
        raise BadInput("It has no runs.", "Expected runs/NNNN/run.json.")
    return runs


def _odd(run: Run, name: str) -> list[str]:
    """Names of modules, unknown protocols, and rows that no evaluation writes."""
    protocol, learner = str(run.about["protocol"]), str(run.about["learner"]).partition("(")[0].strip()
    for kind, given, registry in (("protocol", protocol, PROTOCOLS), ("learner", learner, LEARNERS)):
        if ":" in given and given not in registry:
            return [
                f"{name}: the {kind} {given!r} names a Python module, which is not imported from a submission. "
                f"Register the {kind} in an installed package (entry point driftline.{kind}s)."
            ]
    if protocol not in PROTOCOLS:
        return [f"{name}: there is no protocol {protocol!r}."]
    for k, row in enumerate(run.rows):
        classes_add_up = not row.class_n or (sum(row.class_n) == row.n and sum(row.class_correct) == row.n_correct)
        if not 0 <= row.n_correct <= row.n or not classes_add_up:
            return [f"{name}, row {k}: {row.n_correct} right of {row.n}, or counts of classes that do not add up."]
    return []


def _documents(runs: Sequence[Run]) -> list[dict[str, Any]]:
    groups = sorted(row_files.grouped(runs).items())
    try:
        return [summary(group, name, sha, protocol) for (sha, protocol, name), group in groups]
    except (DriftlineError, TypeError, ValueError, LookupError, ArithmeticError, StopIteration) as error:
        raise BadInput(
            f"Its rows cannot be scored ({type(error).__name__}: {error}).", "Expected runs of driftline eval."
        ) from None


def _scores(runs: Sequence[Run]) -> dict[str, float | None]:
    """`protocol | stream | learner | settings | score` → mean over seeds."""
    means = {}
    for document in _documents(runs):
        for result in document["results"]:
            settings = hashlib.sha256(_json(result["settings"])).hexdigest()[:12]
            for score, value in result["scores"].items():
                key = [document["protocol"], document["stream"]["sha256"][:12], result["learner"], settings, score]
                means[" | ".join(key)] = value["mean"]
    return means


def _repeated(run: Run, stream: Stream) -> dict[str, Any]:
    """One run, repeated with the same settings. differs: how, or ""."""
    about = run.about
    base = about["learner"].partition("(")[0].strip()
    settings = {f"{base}.{key}": value for key, value in about["settings"].items() if key != "tune"}
    identity: dict[str, Any] = {"learner": about["learner"], "protocol": about["protocol"], "seed": about["seed"]}
    kept: list[Run] = []
    try:
        document = evaluate(
            stream, about["protocol"], [about["learner"]], [about["seed"]], settings | about["protocol_settings"],
            tune=about["settings"].get("tune"), keep_run=kept.append,
        )  # fmt: skip
    except DriftlineError as error:
        return identity | {"differs": f"it cannot be run: {error}"}
    except Exception as error:  # any error that hostile settings cause
        return identity | {"differs": f"it cannot be run: {type(error).__name__}: {error}"}
    if document["skipped"]:
        return identity | {"differs": f"it was skipped, because {document['skipped'][0]['because']}"}
    repeated, submitted = ([counted(row) for row in one.rows] for one in (kept[0], run))
    for k, (a, b) in enumerate(zip(repeated, submitted, strict=False)):
        if json.dumps(a, sort_keys=True, default=list) != json.dumps(b, sort_keys=True, default=list):
            return identity | {"differs": f"row {k} has {a['n_correct']} right of {a['n']}, submitted {b['n_correct']}"}
    same = len(repeated) == len(submitted)
    return identity | {"differs": "" if same else f"{len(repeated)} rows, submitted {len(submitted)}"}


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _parsed(data: bytes, what: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        raise BadInput(f"{what} is missing or no JSON.", "Expected a submission of driftline submit.") from None
    if not isinstance(value, dict):
        raise BadInput(f"{what} is no object.", "Expected a submission of driftline submit.")
    return value
