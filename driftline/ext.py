"""What extensions are written with: base classes, what they receive, errors, files, seeds. Names and signatures stay.

    from driftline.ext import Learner, Protocol, Split, Step, rng_for

`driftline` itself is for notebooks; the modules behind both may move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from curate.core.lazy_face import lazy_face

if TYPE_CHECKING:
    from curate.core.atomic_io import write_parquet as write_parquet
    from curate.core.atomic_io import write_text as write_text
    from curate.core.errors import BadArray as BadArray
    from curate.core.errors import BadConfig as BadConfig
    from curate.core.errors import BadInput as BadInput
    from curate.core.errors import DriftlineError as DriftlineError
    from curate.core.errors import IncompatibleStream as IncompatibleStream
    from curate.core.errors import MissingFile as MissingFile
    from curate.core.seeding import rng_for as rng_for
    from curate.encoders import Encoder as Encoder
    from curate.encoders import unit as unit
    from curate.metadata.column_mapping import record_of as record_of
    from curate.metadata.schema import batch_of as batch_of
    from curate.sources.base import FileSource as FileSource
    from curate.sources.base import Workplace as Workplace
    from eval.abilities import adapt as adapt
    from eval.abilities import correct as correct
    from eval.abilities import learn_from as learn_from
    from eval.abilities import learn_sequence as learn_sequence
    from eval.abilities import learn_step as learn_step
    from eval.answers import evaluate_split as evaluate_split
    from eval.experiment.settings import NO_EFFECT as NO_EFFECT
    from eval.learner import Learner as Learner
    from eval.learner import Needs as Needs
    from eval.learner import Task as Task
    from eval.memory.samplers import Sampler as Sampler
    from eval.protocol import Protocol as Protocol
    from eval.protocol import Ran as Ran
    from eval.protocol import Result as Result
    from eval.protocol import Score as Score
    from eval.protocol import Start as Start
    from eval.reporting.protocols import Page as Page
    from eval.rows import Row as Row
    from pipelines.stage import Counts as Counts
    from pipelines.stage import Stage as Stage
    from stream_builder.datasets import Dataset as Dataset
    from stream_builder.datasets import Samples as Samples
    from stream_builder.shifts.base import Shift as Shift
    from stream_builder.step import Split as Split
    from stream_builder.step import Step as Step
    from stream_builder.stream import Stream as Stream
else:
    __getattr__, __dir__, __all__ = lazy_face(
        __name__,
        {
            "BadArray": "curate.core.errors:BadArray",
            "BadConfig": "curate.core.errors:BadConfig",
            "BadInput": "curate.core.errors:BadInput",
            "Counts": "pipelines.stage:Counts",
            "Dataset": "stream_builder.datasets:Dataset",
            "DriftlineError": "curate.core.errors:DriftlineError",
            "Encoder": "curate.encoders:Encoder",
            "FileSource": "curate.sources.base:FileSource",
            "IncompatibleStream": "curate.core.errors:IncompatibleStream",
            "Learner": "eval.learner:Learner",
            "MissingFile": "curate.core.errors:MissingFile",
            "NO_EFFECT": "eval.experiment.settings:NO_EFFECT",
            "Needs": "eval.learner:Needs",
            "Page": "eval.reporting.protocols:Page",
            "Protocol": "eval.protocol:Protocol",
            "Ran": "eval.protocol:Ran",
            "Result": "eval.protocol:Result",
            "Row": "eval.rows:Row",
            "Sampler": "eval.memory.samplers:Sampler",
            "Samples": "stream_builder.datasets:Samples",
            "Score": "eval.protocol:Score",
            "Shift": "stream_builder.shifts.base:Shift",
            "Split": "stream_builder.step:Split",
            "Stage": "pipelines.stage:Stage",
            "Start": "eval.protocol:Start",
            "Step": "stream_builder.step:Step",
            "Stream": "stream_builder.stream:Stream",
            "Task": "eval.learner:Task",
            "Workplace": "curate.sources.base:Workplace",
            "adapt": "eval.abilities:adapt",
            "batch_of": "curate.metadata.schema:batch_of",
            "correct": "eval.abilities:correct",
            "evaluate_split": "eval.answers:evaluate_split",
            "learn_from": "eval.abilities:learn_from",
            "learn_sequence": "eval.abilities:learn_sequence",
            "learn_step": "eval.abilities:learn_step",
            "record_of": "curate.metadata.column_mapping:record_of",
            "rng_for": "curate.core.seeding:rng_for",
            "unit": "curate.encoders:unit",
            "write_parquet": "curate.core.atomic_io:write_parquet",
            "write_text": "curate.core.atomic_io:write_text",
        },
    )
