"""Exports: a release → formats of other libraries, with the same ids, labels and bytes.

A new format is one function in `layouts.py` and one line in `EXPORTS`, or an entry point of another package in the
group `driftline.exports`, or any importable function named as `package.module:name`: (release, out) → counts for the
user, among them "images". It writes all images and labels into the folder `out` (new; it gets its last name when it is
complete). The first line of its docstring describes the format.
"""

from driftline.curate.core.registry import Registry

EXPORTS = Registry(
    "export format",
    {
        "webdataset": "driftline.curate.export.layouts:webdataset",
        "huggingface": "driftline.curate.export.layouts:huggingface",
        "clear": "driftline.curate.export.layouts:clear",
        "imagefolder": "driftline.curate.export.layouts:imagefolder",
        "urls": "driftline.curate.export.layouts:urls",
    },
    group="exports",
)
