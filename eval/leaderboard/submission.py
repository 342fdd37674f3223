"""Results to be believed: rows, hashes and environment in one file; checked, scored again, and partly run again.

A submission is a zip: `manifest.json` (written last, with the SHA-256 of every other member) and for each run
`runs/NNNN/run.json` and `rows.parquet`. The same runs give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from curate.core.atomic_io import write_bytes
from curate.core.errors import BadInput, DriftlineError, IncompatibleStream, IntegrityError, MissingFile
from curate.core.formats import check_format
from curate.core.seeding import rng_for
from eval import rows as row_files
from eval.protocol import PROTOCOLS
from eval.rows import ROWS, Row, Run, counted
from eval.run import evaluate
from eval.scoring.aggregate import summary
from stream_builder.stream import Stream

FORMAT = 1
LARGEST = 256 * 2**20  # bytes of all members, unpacked
MOST = 20_000  # members
EPOCH = (1980, 1, 1, 0, 0, 0)  # of every member: the same bytes every time
OUTSIDE = ("endpoint", "model", "weights", "ledger", "key_env")
PACKAGES = ("driftline", "torch", "numpy", "faiss-cpu", "timm", "transformers", "peft", "river", "scikit-learn")


@dataclass(frozen=True)
class Verdict:
    """documents: of `eval --json`, scored from the rows. again: what was run again and whether it came out the same.
    problems: what is wrong; empty where the submission holds."""

    name: str
    documents: list[dict[str, Any]]
    again: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"holds": self.holds, "reproduces": bool(self.again) and self.holds}


def pack(paths: Sequence[Path], name: str, out: Path, contact: str = "") -> dict[str, Any]:
    """Write a submission of all runs below some folders; returns its manifest. Raises MissingFile where there are none,
    BadInput for a name that is none."""
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
    """Versions and machine, as far as they may move a number."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return {"python": platform.python_version(), "machine": platform.machine(), "packages": found}


def verify(path: Path, streams: Sequence[Path] = (), again: int = 1, seed: int = 0) -> Verdict:
    """Check members and hashes, score the rows again, and run some again.

    streams: folders of the streams that it names; of runs on them, `again` are drawn from `seed` and run. Raises
    MissingFile, BadInput for a file that is no submission, IntegrityError for a member whose hash is not the
    manifest's.
    """
    members, manifest = opened(path)
    runs = _runs(members)
    problems = [problem for number, run in enumerate(runs) for problem in _odd(run, f"run {number:04d}")]
    if not problems and (scores := _scores(runs)) != manifest["scores"]:
        which = next(key for key in {**scores, **manifest["scores"]} if scores.get(key) != manifest["scores"].get(key))
        problems.append(f"{which}: the manifest says {manifest['scores'].get(which)}, its rows {scores.get(which)}.")
    documents = [] if problems else _documents(runs)
    there = {stream.sha256: (stream, where) for where in streams for stream in [Stream.load(where)]}
    known = [run for run in runs if run.about["stream"]["sha256"] in there and not outside(run)]
    drawn: list[dict[str, Any]] = []
    if not problems and again and known:
        for i in rng_for(seed, "verify").permutation(len(known))[:again].tolist():
            stream = there[known[i].about["stream"]["sha256"]][0]
            drawn.append(_repeated(known[i], stream))
        problems += [f"{one['learner']}, seed {one['seed']}: {one['differs']}" for one in drawn if one["differs"]]
    if streams and not known:
        problems.append("No run that may be done again is of a stream that was given.")
    return Verdict(str(manifest["name"]), documents, drawn, problems)


def outside(run: Run) -> str:
    """Which setting of a run names a file, model or address; "" where none does. A stranger's submission is never let
    write to a folder of this machine, load a file from it, or send requests and keys to where it says."""
    given = {**run.about["settings"], **run.about["protocol_settings"]}
    named_there = [key for key in OUTSIDE if f"{key}=" in str(run.about["learner"])]
    return next(iter([key for key in OUTSIDE if given.get(key)] + named_there), "")


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
    found = []
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
        found.append(Run(about, rows))
    if not found:
        raise BadInput("It holds no runs.", "Expected runs/NNNN/run.json.")
    return found


def _odd(run: Run, name: str) -> list[str]:
    """Rows that no evaluation writes."""
    if run.about["protocol"] not in PROTOCOLS:
        return [f"{name}: there is no protocol {run.about['protocol']!r}."]
    for k, row in enumerate(run.rows):
        of_classes = not row.class_n or (sum(row.class_n) == row.n and sum(row.class_correct) == row.n_correct)
        if not 0 <= row.n_correct <= row.n or not of_classes:
            return [f"{name}, row {k}: {row.n_correct} right of {row.n}, or counts of classes that do not add up."]
    return []


def _documents(runs: Sequence[Run]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        stream = run.about["stream"]
        groups.setdefault((stream["sha256"], run.about["protocol"], stream["name"]), []).append(run)
    try:
        return [summary(of, name, sha, protocol) for (sha, protocol, name), of in sorted(groups.items())]
    except (DriftlineError, TypeError, ValueError, LookupError, ArithmeticError, StopIteration) as error:
        raise BadInput(
            f"Its rows cannot be scored ({type(error).__name__}: {error}).", "Expected runs of driftline eval."
        ) from None


def _scores(runs: Sequence[Run]) -> dict[str, float | None]:
    """`protocol | stream | learner | settings | score` → mean over seeds, as far as rows decide it."""
    found = {}
    for document in _documents(runs):
        for result in document["results"]:
            settings = hashlib.sha256(_json(result["settings"])).hexdigest()[:12]
            for score, value in result["scores"].items():
                key = [document["protocol"], document["stream"]["sha256"][:12], result["learner"], settings, score]
                found[" | ".join(key)] = value["mean"]
    return found


def _repeated(run: Run, stream: Stream) -> dict[str, Any]:
    """One run, done again with the same settings. differs: how, or ""."""
    about = run.about
    base = about["learner"].partition("(")[0].strip()
    settings = {f"{base}.{key}": value for key, value in about["settings"].items() if key != "tune"}
    told: dict[str, Any] = {"learner": about["learner"], "protocol": about["protocol"], "seed": about["seed"]}
    kept: list[Run] = []
    try:
        found = evaluate(
            stream, about["protocol"], [about["learner"]], [about["seed"]], settings | about["protocol_settings"],
            tune=about["settings"].get("tune"), keep=kept.append,
        )  # fmt: skip
    except DriftlineError as error:
        return told | {"differs": f"it cannot be run: {error}"}
    except Exception as error:  # whatever hostile settings bring about
        return told | {"differs": f"it cannot be run: {type(error).__name__}: {error}"}
    if found["skipped"]:
        return told | {"differs": f"it was skipped, because {found['skipped'][0]['because']}"}
    (again,) = kept
    mine, theirs = ([counted(row) for row in one.rows] for one in (again, run))
    for k, (a, b) in enumerate(zip(mine, theirs, strict=False)):
        if json.dumps(a, sort_keys=True, default=list) != json.dumps(b, sort_keys=True, default=list):
            return told | {"differs": f"row {k} has {a['n_correct']} right of {a['n']}, submitted {b['n_correct']}"}
    return told | {"differs": "" if len(mine) == len(theirs) else f"{len(mine)} rows, submitted {len(theirs)}"}


def board(verdicts: Sequence[Verdict]) -> str:
    """Markdown of verified submissions: a table for each protocol and stream, best first. Raises IncompatibleStream
    for one that does not hold."""
    lines = [
        "# Leaderboard",
        "",
        "Generated by `driftline leaderboard` from submissions that `driftline verify` confirmed.",
        "",
    ]
    tables: dict[tuple[str, str, str], list[tuple[str, str, Mapping[str, Any]]]] = {}
    for verdict in verdicts:
        if not verdict.holds:
            raise IncompatibleStream(
                f"The submission {verdict.name!r} does not hold: {verdict.problems[0]}", "", "Leave it out."
            )
        for document in verdict.documents:
            for result in document["results"]:
                about = document["stream"]
                key = (document["protocol"], about["name"], about["sha256"])
                tables.setdefault(key, []).append((verdict.name, result["learner"], result))
    for (protocol, stream, sha), entries in sorted(tables.items()):
        names = list(entries[0][2]["scores"])
        lines += [
            f"## {protocol} on {_cell(stream)}",
            "",
            f"Stream `{_cell(sha[:12])}`.",
            "",
            f"| learner | {' | '.join(names)} | seeds | submission |",
        ]
        lines.append("|---" * (len(names) + 3) + "|")
        first = names[0]
        for who, learner, result in sorted(entries, key=lambda e: -(e[2]["scores"][first]["mean"] or 0.0)):
            told = [_number(result["scores"][name]) for name in names]
            lines.append(f"| {_cell(learner)} | {' | '.join(told)} | {len(result['seeds'])} | {_cell(who)} |")
        lines.append("")
    return "\n".join(lines)


def _number(score: Mapping[str, Any]) -> str:
    return "–" if score["mean"] is None else f"{score['mean']:.3f} ± {score['sd']:.3f}"


def _cell(text: str) -> str:
    """What a submission says of itself cannot leave its cell."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ").replace("`", "'")


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _parsed(data: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        raise BadInput(f"{what} is missing or no JSON.", "Expected a submission of driftline submit.") from None
    if not isinstance(found, dict):
        raise BadInput(f"{what} is no object.", "Expected a submission of driftline submit.")
    return found
