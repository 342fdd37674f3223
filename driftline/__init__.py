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

from driftline.curate.core.lazy_face import lazy_face

if TYPE_CHECKING:
    from driftline.curate.core.errors import DriftlineError as DriftlineError
    from driftline.curate.release.format import Release as Release
    from driftline.eval.learner import Learner as Learner
    from driftline.eval.learner import Task as Task
    from driftline.eval.protocol import Protocol as Protocol
    from driftline.eval.protocol import Result as Result
    from driftline.eval.protocol import Score as Score
    from driftline.eval.reporting.report import report as report
    from driftline.eval.results import Results as Results
    from driftline.eval.rows import Row as Row
    from driftline.eval.run import evaluate as evaluate
    from driftline.pipelines.cli.listing import list_registered as list_registered
    from driftline.pipelines.run.run_folder import Run as Run
    from driftline.pipelines.run.run_folder import demo as demo
    from driftline.pipelines.run.run_folder import init_run as init_run
    from driftline.pipelines.run.run_folder import open_run as open_run
    from driftline.stream_builder.builders.arrays import from_arrays as from_arrays
    from driftline.stream_builder.builders.release import from_release as from_release
    from driftline.stream_builder.builders.shift_sequence import compose as compose
    from driftline.stream_builder.datasets import Dataset as Dataset
    from driftline.stream_builder.datasets import open_dataset as open_dataset
    from driftline.stream_builder.measures.shift_distance import measure as measure
    from driftline.stream_builder.shifts.base import Shift as Shift
    from driftline.stream_builder.step import Split as Split
    from driftline.stream_builder.step import Step as Step
    from driftline.stream_builder.stream import Stream as Stream

    __version__: str
else:
    __getattr__, __dir__, __all__ = lazy_face(
        __name__,
        {
            "Dataset": "driftline.stream_builder.datasets:Dataset",
            "DriftlineError": "driftline.curate.core.errors:DriftlineError",
            "Learner": "driftline.eval.learner:Learner",
            "Protocol": "driftline.eval.protocol:Protocol",
            "Release": "driftline.curate.release.format:Release",
            "Result": "driftline.eval.protocol:Result",
            "Results": "driftline.eval.results:Results",
            "Row": "driftline.eval.rows:Row",
            "Run": "driftline.pipelines.run.run_folder:Run",
            "Score": "driftline.eval.protocol:Score",
            "Shift": "driftline.stream_builder.shifts.base:Shift",
            "Split": "driftline.stream_builder.step:Split",
            "Step": "driftline.stream_builder.step:Step",
            "Stream": "driftline.stream_builder.stream:Stream",
            "Task": "driftline.eval.learner:Task",
            "__version__": "driftline.pipelines:VERSION",
            "compose": "driftline.stream_builder.builders.shift_sequence:compose",
            "demo": "driftline.pipelines.run.run_folder:demo",
            "evaluate": "driftline.eval.run:evaluate",
            "from_arrays": "driftline.stream_builder.builders.arrays:from_arrays",
            "from_release": "driftline.stream_builder.builders.release:from_release",
            "init_run": "driftline.pipelines.run.run_folder:init_run",
            "list_registered": "driftline.pipelines.cli.listing:list_registered",
            "measure": "driftline.stream_builder.measures.shift_distance:measure",
            "open_dataset": "driftline.stream_builder.datasets:open_dataset",
            "open_run": "driftline.pipelines.run.run_folder:open_run",
            "report": "driftline.eval.reporting.report:report",
        },
    )
