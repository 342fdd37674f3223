"""The stages of `driftline run`, in order: one file each."""

from driftline.curate.core.registry import Registry

STAGES = Registry(
    "stage", __name__, {"ingest": ".ingest:Ingest", "filter": ".filter:FilterTable", "fetch": ".fetch:Fetch",
                        "bucket": ".bucket:Bucket", "embed": ".embed:Embed", "retrieve": ".retrieve:Retrieve",
                        "ask": ".ask:Ask", "tally": ".tally:Tally", "publish": ".publish:Publish"},
)  # fmt: skip
