"""Importers: datasets with dates that people already have → streams, as their authors meant the steps and splits.

A new importer is one file here, one line in `IMPORTERS` and its example in `OURS` of `pipelines/actions/makers.py`;
that of another package is an entry point `driftline.importers`. Its command `driftline stream from-NAME` is made of it.

An importer is a function (path, …) → stream, which leaves images encoded; the stream's facts say where the data is
from, its licence and what to cite. Its further parameters, each text, a number, a path or a flag, are the options of
its command; `work` is none: it gets a folder for files that last until the stream is saved. It raises MissingFile,
BadInput and IntegrityError naming the file; BadConfig for an option.
"""

from driftline.curate.core.registry import Registry

IMPORTERS = Registry(
    "importer", __name__, {"clear": ".clear:from_clear", "folder-by-time": ".published:from_folder_by_time",
                           "hub": ".hub:from_hub", "tic": ".published:from_tic",
                           "wild-time": ".published:from_wild_time", "wilds": ".published:from_wilds"},
    group="importers",
)  # fmt: skip
