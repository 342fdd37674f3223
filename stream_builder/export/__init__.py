"""Exports: a stream → layouts that other libraries load.

A new format is one file here and one line in `EXPORTS`, or an entry point `driftline.stream_exports`: a function
(stream, out) that writes all samples of all steps and splits into the folder `out` (new; renamed when complete) and
returns kind → number.
"""

from driftline.curate.core.registry import Registry

EXPORTS = Registry(
    "stream export",
    {
        "arrays": "driftline.stream_builder.export.arrays:export",
        "imagefolder": "driftline.stream_builder.export.images:imagefolder",
        "webdataset": "driftline.stream_builder.export.images:webdataset",
        "huggingface": "driftline.stream_builder.export.images:huggingface",
    },
    group="stream_exports",
)
