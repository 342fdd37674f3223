"""Which kind of collection a folder holds."""

from __future__ import annotations

from pathlib import Path

from driftline.curate.core.errors import MissingFile
from driftline.curate.core.executor import Executor
from driftline.curate.core.executor.local import default_workers
from driftline.curate.core.run_log import RunLog
from driftline.curate.release import Release
from driftline.pipelines.browse.collection import Collection
from driftline.pipelines.browse.release_table import release_collection
from driftline.pipelines.browse.run_table import run_collection
from driftline.pipelines.config.loader import load
from driftline.pipelines.run.stage import Context
from driftline.pipelines.run.state import kept_changes


def open_collection(path: Path) -> Collection:
    """The photos of a run or a release. Raises MissingFile for a folder that is neither."""
    if (path / "driftline.yaml").is_file():
        changes = kept_changes(path)  # the last run's: its model reads prompts
        executor = Executor("local", default_workers())
        return run_collection(Context(path, load(path / "driftline.yaml", changes), RunLog(quiet=True), executor))
    if (path / "release.json").is_file():
        return release_collection(Release.open(path))
    raise MissingFile(
        f"{path} is neither a run nor a release.",
        "Expected a folder with driftline.yaml or release.json.",
    )
