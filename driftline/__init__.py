"""driftline from Python: build a temporal benchmark, make a stream, evaluate learners, report.

    import driftline as dl

    run = dl.init("photos2024", settings={"collection.path": "../album"})
    dl.run(run)
    stream = dl.from_release(run.release()).save("stream")
    results = dl.evaluate(stream, "clear-iid", ["nearest-mean", "er"], seeds=3, out="runs")
    dl.report(results, "report")

A command `X` is `dl.X`, its option `--a-b` is `a_b=`, with the same default. Every name is imported when it is first
used. What is not offered here may change.
"""

import sys

_asked = any(word.removeprefix("-m").partition(".")[0] == "driftline" for word in sys.orig_argv)  # python -m driftline
if sys.argv[:1] == ["-m"] and _asked and not sys.flags.safe_path:
    del sys.path[0]  # the working folder, before anything is imported: what is there is not ours

from typing import TYPE_CHECKING  # noqa: E402

from driftline.curate.core.late import lazy_face  # noqa: E402

if TYPE_CHECKING:
    from driftline.curate.core.errors import DriftlineError as DriftlineError
    from driftline.curate.release.format import Release as Release
    from driftline.eval.integrations import Avalanche as Avalanche
    from driftline.eval.integrations import Sklearn as Sklearn
    from driftline.eval.integrations import Torch as Torch
    from driftline.eval.results import Results as Results
    from driftline.pipelines import VERSION as __version__  # noqa: F401
    from driftline.pipelines.commands.build import demo as demo
    from driftline.pipelines.commands.build import init as init
    from driftline.pipelines.commands.build import plan as plan
    from driftline.pipelines.commands.build import run as run
    from driftline.pipelines.commands.build import status as status
    from driftline.pipelines.commands.build import trace as trace
    from driftline.pipelines.commands.evaluate import evaluate as evaluate
    from driftline.pipelines.commands.keep import forget as forget
    from driftline.pipelines.commands.keep import grow as grow
    from driftline.pipelines.commands.keep import heal as heal
    from driftline.pipelines.commands.keep import withdraw as withdraw
    from driftline.pipelines.commands.models import train as train
    from driftline.pipelines.commands.people import batch as batch
    from driftline.pipelines.commands.release import audit as audit
    from driftline.pipelines.commands.release import compare as compare
    from driftline.pipelines.commands.release import export as export
    from driftline.pipelines.commands.report import age as age
    from driftline.pipelines.commands.report import report as report
    from driftline.pipelines.commands.report import reproduce as reproduce
    from driftline.pipelines.commands.share import leaderboard as leaderboard
    from driftline.pipelines.commands.sources import compose as compose
    from driftline.pipelines.commands.sources import from_dataset as from_dataset
    from driftline.pipelines.commands.sources import from_release as from_release
    from driftline.pipelines.commands.start import list_registered as list_registered
    from driftline.pipelines.commands.streams import encode as encode
    from driftline.pipelines.commands.streams import measure as measure
    from driftline.pipelines.run.run_folder import Run as Run
    from driftline.pipelines.run.run_folder import open_folder as open  # noqa: F401
    from driftline.stream_builder.builders.arrays import from_arrays as from_arrays
    from driftline.stream_builder.builders.table import from_table as from_table
    from driftline.stream_builder.datasets import Dataset as Dataset
    from driftline.stream_builder.datasets import open_dataset as open_dataset
    from driftline.stream_builder.importers.clear import from_clear as from_clear
    from driftline.stream_builder.importers.hub import from_hub as from_hub
    from driftline.stream_builder.importers.published import from_folder_by_time as from_folder_by_time
    from driftline.stream_builder.importers.published import from_tic as from_tic
    from driftline.stream_builder.importers.published import from_wild_time as from_wild_time
    from driftline.stream_builder.importers.published import from_wilds as from_wilds
    from driftline.stream_builder.step import Split as Split
    from driftline.stream_builder.step import Step as Step
    from driftline.stream_builder.stream import Stream as Stream
else:
    __getattr__, __dir__, __all__ = lazy_face(__name__)
