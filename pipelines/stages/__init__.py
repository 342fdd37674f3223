"""The stages of `driftline run`, in order: one file each."""

from driftline.curate.core.registry import Registry

STAGES = Registry(
    "stage",
    {
        "ingest": "driftline.pipelines.stages.ingest:Ingest",
        "filter": "driftline.pipelines.stages.filter:FilterTable",
        "fetch": "driftline.pipelines.stages.fetch:Fetch",
        "bucket": "driftline.pipelines.stages.bucket:Bucket",
        "embed": "driftline.pipelines.stages.embed:Embed",
        "retrieve": "driftline.pipelines.stages.retrieve:Retrieve",
        "ask": "driftline.pipelines.stages.ask:Ask",
        "tally": "driftline.pipelines.stages.tally:Tally",
        "publish": "driftline.pipelines.stages.publish:Publish",
    },
)
