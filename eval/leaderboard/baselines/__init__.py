"""The shipped submissions: every learner on streams that anybody can build, made by `studies/baselines.py`.

`NAME.zip` is a submission; `streams/NAME.zip` is its stream, because a network's vectors differ in their last bits from
machine to machine, and then so does a stream's hash. A stream whose data must not be passed on is not there.
"""

import json
import zipfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from driftline.curate.core.errors import BadConfig, IncompatibleStream, UnknownName, did_you_mean
from driftline.eval.leaderboard.submission import opened
from driftline.eval.protocol import stored_protocol
from driftline.stream_builder.stream import Stream

HERE = Path(__file__).parent


def shipped(folder: Path = HERE) -> dict[str, Path]:
    """Name of a stream → the file of its submission; of the streams themselves in the folder `streams`."""
    return {path.stem: path for path in sorted(folder.glob("*.zip"))}


def unpacked(name: str, out: Path) -> Stream:
    """A shipped stream, written into a folder. Raises UnknownName, and BadConfig for a folder that is not empty."""
    archives = shipped(HERE / "streams")
    if name not in archives:
        problem = f"Unknown stream {name!r}."
        raise UnknownName(problem, did_you_mean(name, archives), f"Available: {', '.join(archives)}.")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadConfig(f"{out} exists.", "Expected a new folder.", "Choose another --out.")
    with zipfile.ZipFile(archives[name]) as archive:
        archive.extractall(out)
    return Stream.load(out)


def on(streams: Sequence[Path]) -> list[Path]:
    """The submissions with runs on some stream folders; all of them if no stream is given.

    Raises IncompatibleStream for a stream that has none.
    """
    if not streams:
        return list(shipped().values())
    path_of = {sha: path for path in shipped().values() for sha in shas(path)}
    paths: dict[Path, None] = {}
    for folder in streams:
        stream = Stream.load(folder)
        if stream.sha256 not in path_of:
            expected = f"Expected one of {', '.join(f'{path.stem} ({sha[:12]})' for sha, path in path_of.items())}."
            way_out = "Write a stream that has baselines with driftline stream from-baseline, or leave out --baselines."
            raise IncompatibleStream(f"No baseline ran on {stream.name!r} ({stream.sha256[:12]}).", expected, way_out)
        paths[path_of[stream.sha256]] = None
    return list(paths)


def shas(path: Path) -> set[str]:
    """SHA-256 of the streams of a submission's runs."""
    return {about["stream"]["sha256"] for about in _records(path)}


def options_of(name: str) -> list[str]:
    """What `driftline eval` needs for runs that may be compared with a shipped submission: the protocol, and words of
    its settings."""
    about = _records(shipped()[name])[0]
    usual = asdict(stored_protocol(about["protocol"])())
    changed = [f"{key}={value}" for key, value in about["protocol_settings"].items() if value != usual[key]]
    return [about["protocol"], *(word for text in changed for word in ("--set", text))]


def _records(path: Path) -> list[dict[str, Any]]:
    """The run.json of every run; the file is ours."""
    members, _ = opened(path)
    return [json.loads(data) for member, data in members.items() if member.endswith("/run.json")]
