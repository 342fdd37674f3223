"""The stages of `driftline run`, in order: one file each."""

from __future__ import annotations

from curate.core.registry import Registry

STAGES = Registry(
    "stage",
    {
        "ingest": "pipelines.stages.ingest:Ingest",
        "filter": "pipelines.stages.filter:FilterTable",
        "fetch": "pipelines.stages.fetch:Fetch",
        "bucket": "pipelines.stages.bucket:Bucket",
        "embed": "pipelines.stages.embed:Embed",
        "retrieve": "pipelines.stages.retrieve:Retrieve",
        "ask": "pipelines.stages.ask:Ask",
        "tally": "pipelines.stages.tally:Tally",
        "publish": "pipelines.stages.publish:Publish",
    },
)
