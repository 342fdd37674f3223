"""A run folder from Python: its settings, its release and a search in it; and what a folder holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.core.executor import Executor, default_workers
from driftline.curate.core.run_log import RunLog
from driftline.curate.foreign.notebook import Thumbnail, table
from driftline.pipelines.config.loader import load
from driftline.pipelines.kinds import Settings, changes_of, kind_of
from driftline.pipelines.stages.base import Context
from driftline.pipelines.stages.state import kept_changes

if TYPE_CHECKING:  # imported where it is used: a run can be made and looked at without numpy and pyarrow
    from driftline.curate.release import Release
    from driftline.eval.results import Results
    from driftline.pipelines.browse.collection import Collection
    from driftline.stream_builder.stream import Stream


@dataclass(frozen=True, repr=False)
class Run:
    """A run folder: its settings (`driftline.yaml`) and what its stages wrote."""

    path: Path
    """the folder"""

    def __repr__(self) -> str:
        return f"<Run {self.path}>"

    @classmethod
    def open(cls, path: str | Path) -> "Run":
        """A folder that holds driftline.yaml. Raises MissingFile, and BadConfig for a bad setting."""
        load(Path(path) / "driftline.yaml")
        return cls(Path(path))

    def search(self, *prompts: str, count: int = 8) -> "Retrieved":
        """The `count` photos of every period that are nearest to the prompts, which form one query; a prompt that
        begins with "-" moves it away. A notebook shows the result as a table. Raises MissingFile before the stage embed
        is done, and BadConfig without a prompt."""
        from driftline.pipelines.browse.opening import run_collection
        from driftline.pipelines.browse.prompts import Prompts, Query
        from driftline.pipelines.web.rendering import THUMBNAIL, small

        context = self.context()
        collection = run_collection(context)
        found, _ = Prompts(context, collection).view(Query.parse("\n".join(prompts)), "", count)
        rows = {bucket.name: [
            Thumbnail(small(collection.source.picture(row) or b"", THUMBNAIL), row["id"], f"{score:.3f}")
            for row, score in zip(bucket.photos, bucket.scores, strict=True)
        ] for bucket in found}  # fmt: skip
        return Retrieved(" + ".join(prompts), rows)

    def release(self) -> "Release":
        """What the stage publish wrote. Raises MissingFile."""
        from driftline.curate.release import Release

        return Release.open(self.path)

    def context(self, settings: Settings = (), executor: Executor | None = None, quiet: bool = True) -> Context:
        """What its stages work with: the settings of the last run, and these."""
        changes = kept_changes(self.path, changes_of(settings))
        config = load(self.path / "driftline.yaml", changes)
        return Context(
            self.path, config, RunLog(self.path / "log.jsonl", quiet), executor or Executor(), tuple(changes)
        )


@dataclass(frozen=True, repr=False)
class Retrieved:
    """What `Run.search` found."""

    query: str
    """the prompts"""
    periods: Mapping[str, Sequence[Thumbnail]]
    """period → its photos, the nearest first; `name` is the photo's id, `text` its cosine to the query"""

    def __repr__(self) -> str:
        return f"<Retrieved for {self.query!r}: {sum(map(len, self.periods.values()))} photos>"

    def _repr_html_(self) -> str:
        """A row for each period."""
        return table(self.query, [], [[name, *photos] for name, photos in self.periods.items()])


def open_folder(path: str | Path) -> "Run | Release | Stream | list[Results]":
    """A run folder, a release, a stream or results, by its content. Raises MissingFile for anything else."""
    if kind_of(Path(path)) != "rows":
        return _opened(Path(path), "a run folder, a release, a stream or results")
    from driftline.eval.reporting.report import results_of
    from driftline.eval.results import Results

    return list(map(Results, results_of([Path(path)])))


def open_published(path: str | Path) -> "Release | Stream":
    """A release or a stream; of a run the release that it published. Raises MissingFile for anything else."""
    opened = _opened(Path(path), "a run folder, a release or a stream")
    return opened.release() if isinstance(opened, Run) else opened


def _opened(folder: Path, expected: str) -> "Run | Release | Stream":
    from driftline.curate.release import Release
    from driftline.stream_builder.stream import Stream

    if not folder.exists():
        raise MissingFile(f"There is no {folder}.", f"Expected {expected}.")
    match kind_of(folder):
        case "run":
            return Run.open(folder)
        case "release":
            return Release.open(folder)
        case "stream":
            return Stream.load(folder)
    raise MissingFile(f"{folder} has none of driftline.yaml, release.json and stream.json.", f"Expected {expected}.")


def open_collection(path: Path) -> "Collection":
    """The photos of a run or a release. Raises MissingFile and BadInput for a folder that is neither."""
    from driftline.curate.release import Release
    from driftline.pipelines.browse.opening import release_collection, run_collection

    opened = open_folder(path)
    if isinstance(opened, Run):
        return run_collection(opened.context(executor=Executor("local", default_workers())))  # its model reads prompts
    if isinstance(opened, Release):
        return release_collection(opened)
    what = "results" if isinstance(opened, list) else "a stream"
    raise BadInput(f"{path} holds {what}.", "Expected a run folder or a release.")
