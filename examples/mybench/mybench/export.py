from pathlib import Path

from driftline.ext import Release, write_text


def labels(release: Release, out: Path) -> dict[str, int]:
    """One line per image: id, bucket, label, SHA-256."""
    rows = release.table.select(["id", "bucket", "label", "sha256"]).to_pylist()
    write_text(out / "labels.tsv", "".join("\t".join(map(str, row.values())) + "\n" for row in rows))
    return {"images": len(rows)}
