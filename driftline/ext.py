"""What extensions are written with: base classes, what they receive, errors, files, seeds. Names and signatures stay.

    from driftline.ext import Learner, Protocol, Split, Step, rng_for

Every error that driftline raises on purpose is a `DriftlineError(given, expected, way_out)`:

    BadInput            a file, row or field does not follow its format
    BadConfig           a setting is unknown, of the wrong type or out of range
    BadArray            an array has the wrong shape, dtype or range
    MissingFile         a file or folder does not exist
    UnknownName         a name is not registered (also a LookupError)
    BadPlugin           a plug-in cannot be imported, or is not of the registered kind
    IncompatibleStream  a stream lacks what a protocol or learner needs
    Shortage            there are fewer images than requested
    IntegrityError      a file was changed after it was written
    Diverged            a training has left the finite numbers
    Waiting             a run waits for answers of people

`driftline` itself is for notebooks; the modules behind both may move.
"""

from typing import TYPE_CHECKING

from driftline.curate.core.late import lazy_face

if TYPE_CHECKING:
    from driftline.curate.core.atomic_io import write_bytes as write_bytes
    from driftline.curate.core.atomic_io import write_json as write_json
    from driftline.curate.core.atomic_io import write_parquet as write_parquet
    from driftline.curate.core.atomic_io import write_text as write_text
    from driftline.curate.core.errors import BadArray as BadArray
    from driftline.curate.core.errors import BadConfig as BadConfig
    from driftline.curate.core.errors import BadInput as BadInput
    from driftline.curate.core.errors import BadPlugin as BadPlugin
    from driftline.curate.core.errors import Diverged as Diverged
    from driftline.curate.core.errors import DriftlineError as DriftlineError
    from driftline.curate.core.errors import IncompatibleStream as IncompatibleStream
    from driftline.curate.core.errors import IntegrityError as IntegrityError
    from driftline.curate.core.errors import MissingFile as MissingFile
    from driftline.curate.core.errors import Shortage as Shortage
    from driftline.curate.core.errors import UnknownName as UnknownName
    from driftline.curate.core.errors import Waiting as Waiting
    from driftline.curate.core.seeding import rng_for as rng_for
    from driftline.curate.core.vectors import unit as unit
    from driftline.curate.encoders import Encoder as Encoder
    from driftline.curate.encoders import Vectors as Vectors
    from driftline.curate.metadata.column_mapping import records_of as records_of
    from driftline.curate.metadata.schema import batch_of as batch_of
    from driftline.curate.release.format import Release as Release
    from driftline.curate.retrieval.settings import Concept as Concept
    from driftline.curate.sources.base import HERE as HERE
    from driftline.curate.sources.base import FileSource as FileSource
    from driftline.curate.sources.base import Workplace as Workplace
    from driftline.eval.history import Past as Past
    from driftline.eval.learner import Learner as Learner
    from driftline.eval.learner import Needs as Needs
    from driftline.eval.learner import Task as Task
    from driftline.eval.memory.samplers import Positions as Positions
    from driftline.eval.memory.samplers import Sampler as Sampler
    from driftline.eval.nets.chain import HEAD as HEAD
    from driftline.eval.nets.chain import STEM as STEM
    from driftline.eval.nets.chain import Blocks as Blocks
    from driftline.eval.predictions import evaluate_split as evaluate_split
    from driftline.eval.protocol import Protocol as Protocol
    from driftline.eval.protocol import Ran as Ran
    from driftline.eval.protocol import Result as Result
    from driftline.eval.protocol import Roles as Roles
    from driftline.eval.protocol import Score as Score
    from driftline.eval.protocol import Start as Start
    from driftline.eval.protocol import require as require
    from driftline.eval.reporting.protocols import Page as Page
    from driftline.eval.rows import Row as Row
    from driftline.eval.settings import NO_EFFECT as NO_EFFECT
    from driftline.eval.training.sgd_learner import Budget as Budget
    from driftline.pipelines.stages.base import Counts as Counts
    from driftline.pipelines.stages.base import Stage as Stage
    from driftline.stream_builder.datasets import Dataset as Dataset
    from driftline.stream_builder.datasets import Options as Options
    from driftline.stream_builder.datasets import Samples as Samples
    from driftline.stream_builder.shifts.base import Images as Images
    from driftline.stream_builder.shifts.base import Shift as Shift
    from driftline.stream_builder.shifts.base import check_images as check_images
    from driftline.stream_builder.step import Array as Array
    from driftline.stream_builder.step import Labels as Labels
    from driftline.stream_builder.step import Split as Split
    from driftline.stream_builder.step import Step as Step
    from driftline.stream_builder.stream import Stream as Stream
else:
    __getattr__, __dir__, __all__ = lazy_face(__name__)
