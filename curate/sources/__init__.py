"""Metadata sources: anything that lists photos with a time → record batches of `schema.SOURCE`.

A new source is one file here, with a class derived from `base.Source`, and one line in `SOURCES`; in a package of your
own it is an entry point in the group `driftline.sources`.
"""

from driftline.curate.core.registry import Registry

SOURCES = Registry(
    "source",
    {
        "yfcc": "driftline.curate.sources.yfcc:Yfcc",
        "folder": "driftline.curate.sources.folder:Folder",
        "delimited": "driftline.curate.sources.table:Delimited",
        "parquet": "driftline.curate.sources.table:Parquet",
        "huggingface": "driftline.curate.sources.table:HuggingFace",
        "flickr": "driftline.curate.sources.flickr:Flickr",
    },
    group="sources",
    base="driftline.curate.sources.base:Source",
)
