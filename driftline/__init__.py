"""driftline from Python: build a temporal benchmark, make a stream, evaluate learners, report.

    import driftline as dl

    run = dl.init_run("photos2024", "folder", collection={"path": "album"})
    run.run()
    stream = dl.from_release(run.release()).save("stream")
    results = dl.evaluate(stream, "clear-iid", ["nearest-mean", "er"], seeds=[0, 1, 2], out="runs")

Every name is imported when it is first used. What is not offered here may change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from curate.core.lazy_face import lazy_face

if TYPE_CHECKING:
    from curate.core.errors import DriftlineError as DriftlineError
    from curate.release.format import Release as Release
    from eval.learner import Learner as Learner
    from eval.learner import Task as Task
    from eval.protocol import Protocol as Protocol
    from eval.protocol import Result as Result
    from eval.protocol import Score as Score
    from eval.reporting.report import report as report
    from eval.results import Results as Results
    from eval.rows import Row as Row
    from eval.run import evaluate as evaluate
    from pipelines.cli.listing import list_registered as list_registered
    from pipelines.run_folder import Run as Run
    from pipelines.run_folder import demo as demo
    from pipelines.run_folder import init_run as init_run
    from pipelines.run_folder import open_run as open_run
    from stream_builder.builders.arrays import from_arrays as from_arrays
    from stream_builder.builders.release import from_release as from_release
    from stream_builder.builders.shift_sequence import compose as compose
    from stream_builder.datasets import Dataset as Dataset
    from stream_builder.datasets import open_dataset as open_dataset
    from stream_builder.measures.shift_distance import measure as measure
    from stream_builder.shifts.base import Shift as Shift
    from stream_builder.step import Split as Split
    from stream_builder.step import Step as Step
    from stream_builder.stream import Stream as Stream

    __version__: str
else:
    __getattr__, __dir__, __all__ = lazy_face(
        __name__,
        {
            "Dataset": "stream_builder.datasets:Dataset",
            "DriftlineError": "curate.core.errors:DriftlineError",
            "Learner": "eval.learner:Learner",
            "Protocol": "eval.protocol:Protocol",
            "Release": "curate.release.format:Release",
            "Result": "eval.protocol:Result",
            "Results": "eval.results:Results",
            "Row": "eval.rows:Row",
            "Run": "pipelines.run_folder:Run",
            "Score": "eval.protocol:Score",
            "Shift": "stream_builder.shifts.base:Shift",
            "Split": "stream_builder.step:Split",
            "Step": "stream_builder.step:Step",
            "Stream": "stream_builder.stream:Stream",
            "Task": "eval.learner:Task",
            "__version__": "pipelines:VERSION",
            "compose": "stream_builder.builders.shift_sequence:compose",
            "demo": "pipelines.run_folder:demo",
            "evaluate": "eval.run:evaluate",
            "from_arrays": "stream_builder.builders.arrays:from_arrays",
            "from_release": "stream_builder.builders.release:from_release",
            "init_run": "pipelines.run_folder:init_run",
            "list_registered": "pipelines.cli.listing:list_registered",
            "measure": "stream_builder.measures.shift_distance:measure",
            "open_dataset": "stream_builder.datasets:open_dataset",
            "open_run": "pipelines.run_folder:open_run",
            "report": "eval.reporting.report:report",
        },
    )
