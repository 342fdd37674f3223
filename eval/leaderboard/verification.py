"""Check a submission: rows again from its answers and the stream's labels, scores again from rows, and runs that are
drawn after it was handed in are run again."""

import hashlib
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import sha256_file
from driftline.curate.core.errors import BadConfig, BadInput, BadPlugin, DriftlineError, IntegrityError, UnknownName
from driftline.curate.core.registry import Registry
from driftline.curate.core.seeding import rng_for
from driftline.eval.experiment.runs import ours
from driftline.eval.leaderboard.repeating import miscounted, own_code, reach, repeat, rescored
from driftline.eval.leaderboard.submission import documents_of, modules_of, opened, runs_of, with_records
from driftline.eval.learners import LEARNERS
from driftline.eval.protocol import PROTOCOLS
from driftline.eval.rows import Run, digest, tested
from driftline.stream_builder.stream import Stream

SHARE = 0.1  # of the runs that may be repeated, at least one
ROUNDED = 0.01  # of a run's answers: other processors round otherwise, and a few answers near a border change
OWN_CODE = "its learner is code of the submission, which driftline does not run"


@dataclass(frozen=True)
class Verdict:
    """What the check of a submission found."""

    name: str
    documents: list[dict[str, Any]]
    """of `eval --json`, scored from the rows"""
    again: list[dict[str, Any]] = field(default_factory=list)
    """what was run again, and how it differs"""
    not_again: list[dict[str, Any]] = field(default_factory=list)
    """runs that were not run again, and why"""
    unverified: list[dict[str, Any]] = field(default_factory=list)
    """runs whose rows could not be computed again from answers, and why"""
    problems: list[str] = field(default_factory=list)
    """what is wrong; empty if the submission holds"""
    code: list[str] = field(default_factory=list)
    """digests of the runs whose learner is code of the submission"""
    sha256: str = ""
    """of the file"""
    public_value: str = ""
    """with the file's hash it decides which runs are run again"""

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"holds": self.holds, "reproduces": bool(self.again) and self.holds}

    def repeated(self) -> dict[str, Any]:
        """Of the runs that were run again: how many are the `same`, which are `stale` (older code gave others) or
        `false`; which could not be run again; and the other problems of the submission."""
        others = [run for run in self.again if run["share"] > ROUNDED]
        differing = {_named(run) for run in self.again if run["differs"]}
        return {
            "same": len(self.again) - len(others),
            "stale": [run for run in others if run["older"]],
            "false": [run for run in others if not run["older"]],
            "not_again": self.not_again,
            "problems": [problem for problem in self.problems if problem not in differing],
        }


def _named(run: Mapping[str, Any]) -> str:
    return f"{run['learner']}, seed {run['seed']}: {run['differs']}"


def verify(
    path: Path,
    streams: Sequence[Path] = (),
    again: int | None = None,
    public_value: str = "",
    elsewhere: bool = False,
) -> Verdict:
    """Check members and hashes, compute rows and scores again, and run some again. Modules that the submission names
    or holds are not imported.

    streams: folders of the streams that it names; `again` runs on them (None: a tenth) are drawn by the hash of the
    file and `public_value`, a text that nobody knew when it was handed in ("": a random one, which the verdict states).
    elsewhere: it may have no run on the given streams. Raises MissingFile, BadInput for a file that is no submission,
    IntegrityError for a member whose hash is not the manifest's.
    """
    given = {stream.sha256: stream for stream in map(Stream.load, streams)}
    before, Registry.by_path = Registry.by_path, False  # no setting can name a Python module that is not registered
    try:
        return _verified(path, given, again, public_value, elsewhere)
    finally:
        Registry.by_path = before


def _verified(
    path: Path, given: Mapping[str, Stream], again: int | None, public_value: str, elsewhere: bool
) -> Verdict:  # fmt: skip
    examination = examined(path, given)
    problems, left = examination["problems"], examination["runs"]
    sha256, public_value = sha256_file(path), public_value or secrets.token_hex(8)
    here = [run for run in left if run["stream"] in given]
    repeatable = [run for run in here if not run["because"]]
    again = math.ceil(SHARE * len(repeatable)) if again is None else again
    done: list[dict[str, Any]] = []
    for i in [] if problems else drawn(sha256, public_value, len(repeatable))[:again]:
        run = repeatable[i]
        one = examination["submitted"][run["run"]]
        differs, run["because"], share = repeat(one, given[run["stream"]])
        older = one.about.get("code_of", {}).get("driftline") != ours()
        done += [] if run["because"] else [run | {"differs": differs, "share": share, "older": older}]
    problems += [_named(run) for run in done if run["differs"]]
    if given and not problems and not here and not elsewhere:
        problems.append("No run is on one of the given streams.")
    tried = {run["run"] for run in done}
    not_again = [run | {"because": run["because"] or "it was not chosen"} for run in left if run["run"] not in tried]
    unchecked = [run | {"because": run["unverified"]} for run in left if run["unverified"] and run["run"] not in tried]
    code = [run["digest"] for run in left if run["code"]]
    of_file = (problems, code, sha256, public_value)
    return Verdict(examination["name"], examination["documents"], done, not_again, unchecked, *of_file)


def drawn(sha256: str, public_value: str, runs: int) -> list[int]:
    """The order in which runs are drawn: nobody can choose it who does not know both."""
    seed = int(hashlib.sha256(f"{sha256} {public_value}".encode()).hexdigest()[:15], 16)
    return [int(i) for i in rng_for(seed, "verify").permutation(runs)]


def examined(path: Path, streams: Mapping[str, Stream]) -> dict[str, Any]:
    """What a submission says about itself, checked without running anything: name, problems, documents, the submitted
    runs, and what is known of each (`runs`).

    streams: SHA-256 → those that are here. Raises as `opened` and `runs_of`.
    """
    members, manifest = opened(path)
    submitted = runs_of(members)
    modules = modules_of(members)
    problems, listed = [], []
    for number, run in enumerate(submitted):
        code = own_code(run.about, modules)
        problem, because, unverified = _odd(run, code), "", ""
        stream = streams.get(run.about["stream"]["sha256"])
        if not problem:
            try:
                because = reach(run.about, bool(code))
                submitted[number] = with_records(run, members, number)
                problem, unverified = _rescored(submitted[number], stream)
            except (BadConfig, BadPlugin, UnknownName, BadInput, IntegrityError) as error:
                problem = str(error)
        if problem:
            problems.append(f"run {number:04d}: {problem}")
        because = because or (OWN_CODE if code else "") or ("" if stream is not None else "its stream is not here")
        facts = {key: run.about[key] for key in ("learner", "protocol", "seed")} | {"digest": digest(run)}
        facts |= {"run": number, "stream": run.about["stream"]["sha256"], "code": code}
        listed.append(facts | {"because": because, "unverified": unverified})
    documents = [] if problems else documents_of(submitted)
    found = {"name": manifest["name"], "problems": problems, "documents": documents}
    return found | {"runs": listed, "submitted": submitted}


def _rescored(run: Run, stream: Stream | None) -> tuple[str, str]:
    """What is wrong with a run's rows, and why they cannot be computed again; "" if nothing is."""
    if any(row.answers is None and row.n_correct for row in run.rows):
        some = any(row.answers is not None for row in run.rows)
        return (
            ("a test result with right answers has no predictions", "")
            if some
            else ("", "it has no per-sample predictions")
        )
    if wrong := miscounted(run):
        return wrong, ""
    if stream is None:
        return "", "its stream is not here"
    if run.about.get("tests", tested(run.rows)) != tested(run.rows):
        return "its record names other test samples than its predictions", ""
    return rescored(run, stream), ""


def _odd(run: Run, code: str) -> str:
    """Why a run is none that `evaluate` writes: names of modules, unknown names, impossible counts; "" if it is. code:
    the submission's own module that its learner is in."""
    protocol, learner = run.about["protocol"], run.about["learner"].partition("(")[0].strip()
    for kind, name, registry in (("protocol", protocol, PROTOCOLS), ("learner", learner, LEARNERS)):
        if name in registry or (code and kind == "learner"):
            continue
        if ":" in name:
            return (
                f"the {kind} {name!r} names a Python module, which is not imported from a submission. "
                f"{'Submit its code (--code), or register' if kind == 'learner' else 'Register'} the {kind} in an "
                f"installed package (entry point driftline.{kind}s)."
            )
        try:
            registry[name]
        except DriftlineError as error:
            return str(error)
    for k, row in enumerate(run.rows):
        numbers = (row.n, row.n_correct, row.seen, row.corrections, row.stored, *row.class_n, *row.class_correct)
        if any(type(number) is not int or number < 0 for number in numbers):
            return f"row {k} has a count that is negative or no whole number."
        if not all(isinstance(v, float) and math.isfinite(v) for v in (row.seconds, row.recall)):
            return f"row {k} has a number that is not finite."
        classes_add_up = not row.class_n or (sum(row.class_n) == row.n and sum(row.class_correct) == row.n_correct)
        if row.n_correct > row.n or not classes_add_up:
            return f"row {k}: {row.n_correct} right of {row.n}, or counts of classes that do not add up."
    return ""
