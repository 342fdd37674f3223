"""A Codabench bundle: participants submit a learner; our loop runs it, our scores rank it.

Codabench runs two programs in containers [docs.codabench.org, Competition Bundle Structure]. Ingestion has the
submission in /app/ingested_program and a stream whose test labels are all 0 in /app/input_data, of which it hands the
submission one step after the other (`handing`); it writes answers to /app/output. Scoring has the stream with its
labels in /app/input/ref and the answers in /app/input/res; it writes scores.json. Nothing that a submission writes is
believed but its answers.
"""

from __future__ import annotations

import hashlib
import io
import json
import secrets
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from driftline.curate.core.atomic_io import read_object, write_bytes, write_json
from driftline.curate.core.errors import BadConfig, BadInput, IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.curate.core.system.enclosure import Bounds
from driftline.eval import outcomes
from driftline.eval.experiment.settings import seeds_of
from driftline.eval.leaderboard.handing import handed
from driftline.eval.leaderboard.rescoring import Replay
from driftline.eval.learner import Learner
from driftline.eval.protocol import Start, stored_protocol
from driftline.eval.protocol_abilities import run_many
from driftline.eval.rows import Run
from driftline.eval.run import evaluate
from driftline.eval.scoring.aggregate import summary
from driftline.stream_builder.stream import Split, Step, Stream

TASK = "task.json"
BLIND = ("clear-iid",)  # protocols in which a learner never gets a test label, so that they can be left out
START = "2025-01-01"  # of the only phase; Codabench needs one
SECONDS = 3600  # time limit of a submission
MEMORY, DISK = 32 * 2**30, 2**30  # bytes of a submission
ORDER = "order.json"  # of the reference data: what draws the order of test samples
INGESTION = '''"""Runs the submission: our loop, without test labels."""

import sys
from pathlib import Path

from driftline.eval.leaderboard.codabench import ingest

ingest(*map(Path, sys.argv[1:5]))
'''
SCORING = '''"""Scores the answers against the labels."""

import sys
from pathlib import Path

from driftline.eval.leaderboard.codabench import score

score(Path(sys.argv[1]), Path(sys.argv[2]), Path(__file__).parent)
'''
BASELINE = '''"""A baseline: copy it, and write a learner of your own. See driftline's guide "Extend"."""

from driftline.eval.learners.nearest_mean import NearestMean


def make_learner():
    return NearestMean()
'''


def export(
    stream: Stream, out: Path, image: str, protocol: str = "clear-iid", seeds: str | int = "0-4", title: str = "",
    secret: str = "",
) -> dict[str, int]:  # fmt: skip
    """Write the bundle of a stream to out/bundle.zip. image: a Docker image with driftline. The rest is as in
    `bundle`."""
    return {"files": len(bundle(stream, protocol, seeds_of(str(seeds)), image, out / "bundle.zip", title, secret))}


def bundle(
    stream: Stream, protocol: str, seeds: Sequence[int], image: str, out: Path, title: str = "", secret: str = ""
) -> list[str]:
    """Write the bundle of a stream into a .zip file; returns the names in it. title: "": the stream's name. secret: a
    text that draws the order of test samples and stays with the reference data; "": a random one.

    Raises BadConfig for a protocol that gives test labels to learners, and for images that are decoded on access, whose
    files could not be kept apart; IncompatibleStream.
    """
    if protocol not in BLIND:
        raise BadConfig(
            f"The protocol is {protocol!r}.",
            f"Expected {' or '.join(BLIND)}: there, a learner needs no label of a test sample.",
        )
    stored_protocol(protocol)().check(stream)
    if not all(isinstance(split.x, np.ndarray) for step in stream.steps for split in step.splits.values()):
        raise BadConfig(
            f"{stream.name} has images that are decoded on access.", "", "Make a stream of pixels or features."
        )
    secret = secret or secrets.token_hex(16)
    whole = shuffled(stream, secret)
    kind = stored_protocol(protocol)
    task = {"protocol": protocol, "seeds": list(seeds), "stream": stream.name}
    described = json.dumps(task, indent=2).encode()
    name = title or stream.name
    columns = [
        {"title": score.label, "key": score.name, "index": i, "precision": 4,
         "sorting": "desc" if score.higher_is_better else "asc"}
        for i, score in enumerate(sorted(kind.scores, key=lambda score: score.name != kind.primary))
    ]  # fmt: skip
    competition = {
        "version": 2,
        "title": name,
        "description": f"{protocol} on {stream.name}: learners that age well.",
        "image": "logo.png",
        "terms": "terms.md",
        "docker_image": image,
        "registration_auto_approve": True,
        "pages": [{"title": "Overview", "file": "overview.md"}],
        "tasks": [
            {
                "index": 0,
                "name": name,
                "description": f"{len(stream.steps)} steps, {len(stream.classes)} classes.",
                "input_data": "input_data.zip",
                "reference_data": "reference_data.zip",
                "ingestion_program": "ingestion_program.zip",
                "scoring_program": "scoring_program.zip",
            }
        ],
        "solutions": [{"index": 0, "tasks": [0], "path": "solution.zip"}],
        "phases": [
            {"index": 0, "name": "Open", "description": "Submit a learner.", "start": START, "tasks": [0],
             "solutions": [0], "execution_time_limit": SECONDS, "max_submissions_per_day": 5}
        ],
        "leaderboards": [
            {"index": 0, "title": "Results", "key": "results", "submission_rule": "Force_Best", "columns": columns}
        ],
    }  # fmt: skip
    program = "/app/program"
    ingestion = f"python3 {program}/ingestion.py /app/input_data/ /app/output/ {program} /app/ingested_program"
    scoring = f"python3 {program}/scoring.py /app/input/ /app/output/"
    members = {
        "competition.yaml": _yaml(competition),
        "logo.png": _logo(stream),
        "terms.md": b"Use the data as its licence says. Submit only code that you may share.\n",
        "overview.md": _overview(stream, protocol).encode(),
        "input_data.zip": _zip(_files(blinded(whole))),
        "reference_data.zip": _zip(_files(whole) | {ORDER: json.dumps({"secret": secret}).encode()}),
        "ingestion_program.zip": _zip(
            {"metadata.yaml": _yaml({"command": ingestion}), "ingestion.py": INGESTION.encode(), TASK: described}
        ),
        "scoring_program.zip": _zip(
            {"metadata.yaml": _yaml({"command": scoring}), "scoring.py": SCORING.encode(), TASK: described}
        ),
        "solution.zip": _zip({"submission.py": BASELINE.encode()}),
    }
    write_bytes(out, _zip(members))
    return list(members)


def shuffled(stream: Stream, secret: str) -> Stream:
    """The stream with the test samples of each step without their ids, and in an order that nobody knows who does not
    know the secret: neither tells a label."""
    seed = int(hashlib.sha256(secret.encode()).hexdigest()[:30], 16)

    def test(step: Step) -> Split:
        split = step["test"].take(rng_for(seed, "codabench", step.index).permutation(len(step["test"])))
        ids = np.array([f"test-{step.index}-{i}" for i in range(len(split))])
        return Split(split.x, split.y, ids)

    steps = [replace(step, splits={**step.splits, "test": test(step)}) for step in stream.steps]
    return replace(stream, steps=steps, oracle=None, sha256="", facts={})


def blinded(stream: Stream) -> Stream:
    """The stream with the label 0 for all test samples."""
    steps = [
        replace(step, splits={**step.splits, "test": replace(step["test"], y=np.zeros_like(step["test"].y))})
        for step in stream.steps
    ]
    return replace(stream, steps=steps)


def ingest(input_data: Path, output: Path, program: Path, submission: Path) -> None:
    """The ingestion program: run `make_learner()` of submission.py with each seed, and write its answers.

    Raises BadInput for a submission that cannot be loaded or fails, NotEnclosed where its code could see more than it
    is handed.
    """
    task = _task(program)
    if not (submission / "submission.py").is_file():
        raise BadInput("The submission has no submission.py.", "Expected one with a function make_learner().")
    learner = handed(submission, len(task["seeds"]), Bounds(SECONDS, MEMORY, DISK))
    try:  # only now is there something to hand over
        stream = Stream.load(input_data / "stream")
        results = evaluate(stream, task["protocol"], [learner], task["seeds"], out=output / "runs")
    finally:
        learner.end()
    if results["skipped"]:
        raise BadInput(f"The learner failed: {results['skipped'][0]['because']}")


def score(folder: Path, output: Path, program: Path) -> dict[str, float | None]:
    """The scoring program: the recorded answers against the labels; writes scores.json and returns it.

    Raises BadInput for answers that are not those of this task.
    """
    task = _task(program)
    stream = outcomes.numbered(Stream.load(folder / "ref" / "stream"))
    runs, wrong = outcomes.find([folder / "res"])
    if wrong:
        raise BadInput(wrong[0])
    if sorted(run.about["seed"] for run in runs) != sorted(task["seeds"]):
        raise BadInput(
            f"There are {len(runs)} runs.", f"Expected one for each of the seeds {', '.join(map(str, task['seeds']))}."
        )
    again = [_rescored(run, stream, task["protocol"]) for run in runs]
    document = summary(again, stream.name, stream.sha256, task["protocol"])
    if len(document["results"]) != 1:
        raise BadInput(f"There are {len(document['results'])} learners.", "Expected one.")
    of_seeds = document["results"][0]["scores"]
    scores = {name: None if None in value["values"] else value["mean"] for name, value in of_seeds.items()}
    write_json(output / "scores.json", scores)
    return scores


def _rescored(run: Run, stream: Stream, name: str) -> Run:
    """The run with rows that the protocol makes of its answers and of the stream's labels."""
    if run.about["protocol"] != name or run.about["steps"] != len(stream.steps):
        raise BadInput("The answers are of another task.", f"Expected {name} with {len(stream.steps)} steps.")
    protocol = stored_protocol(name)()
    kind: Any = Learner  # its abilities: a protocol of BLIND asks for none
    replay = Replay(kind, [row.answers for row in run.rows if row.answers is not None])
    seed = run.about["seed"]
    ((_, ran),) = run_many(protocol, stream, [Start(replay, rng_for(seed, name, "walk"), seed)])
    if isinstance(ran, Exception):
        raise BadInput(f"The answers cannot be scored ({ran}).") from None
    rows = ran.rows
    if [row.n for row in rows] != [row.n for row in run.rows] or replay.next != len(replay.answers):
        raise IncompatibleStream("The answers are not one for each test sample.", "Expected those of the ingestion.")
    settings = {key: getattr(protocol, key) for key in run.about["protocol_settings"]}
    of = {"name": stream.name, "sha256": stream.sha256}
    return Run({**run.about, "protocol_settings": settings, "stream": of}, list(rows))


def _task(program: Path) -> dict[str, Any]:
    return read_object(program / TASK, {"protocol": str, "seeds": list}, "Make the bundle again.")


def _files(stream: Stream) -> dict[str, bytes]:
    """The files of a stream folder, below stream/."""
    with TemporaryDirectory() as folder:
        stream.save(Path(folder) / "stream")
        paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _zip(members: Mapping[str, bytes]) -> bytes:
    """A zip file with its members at the root; the same members give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _yaml(value: Any) -> bytes:
    import yaml

    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True).encode()


def _logo(stream: Stream) -> bytes:
    """A picture of the steps: one bar each, from light to dark."""
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (256, 256), "white")
    draw, n = ImageDraw.Draw(picture), len(stream.steps)
    for i in range(n):
        shade = 220 - 180 * i // max(1, n - 1)
        draw.rectangle((16 + 224 * i // n, 16 + 120 * i // n, 12 + 224 * (i + 1) // n, 240), (shade // 2, shade, 255))
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def _overview(stream: Stream, protocol: str) -> str:
    return (
        f"# {stream.name}\n\nProtocol `{protocol}`: {len(stream.steps)} steps, {len(stream.classes)} classes, "
        f"samples of shape {stream.x_shape}. Submit a zip file with `submission.py`, whose function "
        "`make_learner()` returns a `driftline.ext.Learner`. It is handed one step after the other, in a new process "
        "for each seed, and test samples only when their turn comes, without labels. Its answers are final. It has "
        "no network, starts no process, and reads no file but its own and Python's.\n\n"
        "What this cannot enforce: that nobody has the test samples from elsewhere, or submits answers as code. Where "
        "the worker's container forbids user namespaces, a submission may see the names and sizes of files.\n"
    )
