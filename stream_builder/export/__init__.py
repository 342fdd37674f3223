"""Exports: a stream → layouts that other libraries load.

A new format is one function in `layouts.py` and one line in `EXPORTS`, or an entry point `driftline.stream_exports`:
(stream, out) → kind → number. It writes all samples of all steps and splits into the folder `out` (new; renamed when
complete).
"""

from driftline.curate.core.registry import Registry

EXPORTS = Registry(
    "stream export",
    {
        "arrays": "driftline.stream_builder.export.layouts:arrays",
        "imagefolder": "driftline.stream_builder.export.layouts:imagefolder",
        "webdataset": "driftline.stream_builder.export.layouts:webdataset",
        "huggingface": "driftline.stream_builder.export.layouts:huggingface",
    },
    group="stream_exports",
)
