"""Exports: a stream → layouts that other libraries load.

A new format is one function in `layouts.py` and its name in `FORMATS`, or an entry point `driftline.stream_exports`:
(stream, out) → kind → number. It writes all samples of all steps and splits into the folder `out` (new; renamed when
complete).
"""

from driftline.curate.core.registry import Registry

FORMATS = ("arrays", "imagefolder", "webdataset", "huggingface")
EXPORTS = Registry("stream export", __name__, {name: f".layouts:{name}" for name in FORMATS}, group="stream_exports")
