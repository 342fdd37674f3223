"""Metadata sources: anything that lists photos with a time → record batches of `curate.metadata.schema.SOURCE`.

A new source is one file here, with a class derived from `base.Source`, and one line in `SOURCES`; in a package of your
own it is an entry point in the group `driftline.sources`.
"""

from __future__ import annotations

from curate.core.registry import Registry

SOURCES = Registry(
    "source",
    {
        "yfcc": "curate.sources.yfcc:Yfcc",
        "folder": "curate.sources.folder:Folder",
        "delimited": "curate.sources.delimited:Delimited",
        "parquet": "curate.sources.parquet:Parquet",
        "huggingface": "curate.sources.huggingface:HuggingFace",
        "flickr": "curate.sources.flickr:Flickr",
        "inaturalist": "curate.sources.inaturalist:INaturalist",
        "wikimedia": "curate.sources.wikimedia:Wikimedia",
        "iiif": "curate.sources.iiif:Iiif",
    },
    group="sources",
    base="curate.sources.base:Source",
)
