"""URLs without image bytes, for collections whose images must not be redistributed."""

from pathlib import Path

from driftline.curate.core.atomic_io import write_json, write_parquet
from driftline.curate.release.format import Release


def export(release: Release, out: Path) -> dict[str, int]:
    """The metadata table without image bytes: ids, URLs, labels, splits, checksums."""
    write_parquet(out / "urls.parquet", release.table.drop_columns(["shard", "member"]))
    write_json(out / "release.json", {**release.facts, "features": [], "unlabelled": None})
    with_url = sum(url is not None for url in release.table["url"].to_pylist())
    return {"images": len(release.table), "with_url": with_url}
