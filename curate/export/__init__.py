"""Exports: a release → formats of other libraries, with the same ids, labels and bytes.

A new format is one function in `layouts.py` and its name in `FORMATS`, or an entry point of another package in the
group `driftline.exports`, or any importable function named as `package.module:name`: (release, out) → counts for the
user, among them "images". It writes all images and labels into the folder `out` (new; it gets its last name when it is
complete). The first line of its docstring describes the format.
"""

from driftline.curate.core.registry import Registry

FORMATS = ("webdataset", "huggingface", "clear", "imagefolder", "urls")
EXPORTS = Registry("export format", __name__, {name: f".layouts:{name}" for name in FORMATS}, group="exports")
