"""Metadata sources: anything that lists photos with a time → record batches of `schema.SOURCE`.

A new source is one file here, with a class derived from `base.Source`, and one line in `SOURCES`; in a package of your
own it is an entry point in the group `driftline.sources`.
"""

from driftline.curate.core.registry import Registry

SOURCES = Registry(
    "source", __name__, {"yfcc": ".yfcc:Yfcc", "folder": ".folder:Folder", "delimited": ".table:Delimited",
                         "parquet": ".table:Parquet", "huggingface": ".table:HuggingFace", "flickr": ".flickr:Flickr"},
    group="sources", base="driftline.curate.sources.base:Source",
)  # fmt: skip
