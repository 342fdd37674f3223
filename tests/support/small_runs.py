"""Small folders that driftline itself writes, made once in a process: a run, one that waits, its stream, its rows."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from support.helpers import album, photo_config

from driftline.curate.core.run_log import RunLog
from driftline.curate.release import Release
from driftline.eval.run import evaluate
from driftline.pipelines.config.loader import load
from driftline.pipelines.run.runner import run
from driftline.pipelines.stages.base import Context
from driftline.stream_builder.builders.release import from_release

SETTINGS = {"clear-iid": {"epochs": 3}, "near-future": {"batch": 2, "shift": 2}}
LEARNERS = {"clear-iid": ["blind", "nearest-mean", "er"], "near-future": ["blind", "nearest-mean"]}
CROWD = "validation: {method: crowd, workers: 2, agree: 2}"


def unpacked(name: str, out: Path) -> Path:
    """A copy in `out` of finished, waiting, finished-stream or finished-rows; photos stay where the first one is."""
    return Path(shutil.copytree(made(name), out / name))


@cache
def made(name: str) -> Path:
    """The folder itself, which is not to be changed."""
    folder = place() / name
    if name == "finished-stream":
        from_release(Release.open(made("finished"))).save(folder)
    elif name == "finished-rows":
        from driftline.stream_builder.stream import Stream

        for protocol, settings in SETTINGS.items():
            evaluate(Stream.load(made("finished-stream")), protocol, LEARNERS[protocol], [0, 1], settings, out=folder)
    else:
        album(folder / "photos", 6)
        text = photo_config(f"  per_class: {6 if name == 'finished' else 4}") + "store: {use: false}\n"
        if name == "waiting":
            text = text.replace("validation: {method: catalogue}", CROWD)
        (folder / "driftline.yaml").write_text(text)
        run(Context(folder, load(folder / "driftline.yaml"), RunLog(folder / "log.jsonl", quiet=True)))
    return folder


@cache
def place() -> Path:
    """A folder that is removed with the process."""
    folder = Path(tempfile.mkdtemp(prefix="driftline-small-runs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
