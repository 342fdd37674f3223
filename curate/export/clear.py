"""CLEAR's old folder layout with feature tensors, for Avalanche's `CLEAR` loader.

Load any release with `CLEAR(data_name="clear10_neurips2021", dataset_root=OUT, …)`: classes and buckets are read from
the files. The newer layout is not written, because Avalanche 0.6.0 reads all its buckets into each experience. The
loader accepts only four names of features, so the release's first features are also written as `moco_b0`. For the iid
protocol on features, Avalanche 0.6.0 needs the four lines in `docs/studies/avalanche.md`, because its loader returns
lists of tensors instead of tensors.
"""

import io
from pathlib import Path

import numpy as np

from driftline.curate.core.atomic_io import write_bytes, write_json, write_text
from driftline.curate.core.parsing import rows_of
from driftline.curate.release.format import Release

LOADABLE = "moco_b0"  # the only name of features that both old data names of Avalanche accept


def export(release: Release, out: Path) -> dict[str, int]:
    """CLEAR's folders, file lists, splits and feature tensors, for Avalanche's loader."""
    import torch

    training = out / "training_folder"
    rows = list(rows_of(release.table, "id", "bucket", "class", "label", "member"))
    paths = {id_: f"labeled_images/{b}/{label:03d}/{member}" for id_, b, _, label, member in rows}
    for id_, data in release.images():
        write_bytes(out / paths[id_], data)
    write_text(
        out / "class_names.txt", "\n".join(release.classes)
    )  # the loader would read a final newline as another class
    write_json(training / "bucket_indices.json", [str(b["index"]) for b in release.buckets])
    for bucket in release.buckets:
        name = str(bucket["index"])
        positions = [i for i, row in enumerate(rows) if row[1] == bucket["index"]]

        def listing(chosen: list[int], positions: list[int] = positions) -> str:
            return "".join(f"{paths[rows[positions[i]][0]]} {rows[positions[i]][3]}\n" for i in chosen)

        write_text(training / "filelists" / name / "all.txt", listing(list(range(len(positions)))))
        for k, split in enumerate(release.facts["splits"]):
            sides = np.array(release.table[split].to_pylist())[positions]
            for side in ("train", "test"):
                chosen = np.flatnonzero(sides == side).tolist()
                folder = training / "testset_ratio_0.3" / f"split_{k}" / name
                write_text(folder / f"{side}.txt", listing(chosen))
                write_json(folder / f"{side}_indices.json", chosen)
        labels = [rows[i][3] for i in positions]
        for number, kind in enumerate(release.facts["features"]):
            vectors = torch.from_numpy(np.asarray(release.features(kind)[positions], np.float32))
            buffer = io.BytesIO()
            torch.save((vectors, labels), buffer)
            for alias in {kind, LOADABLE} if number == 0 else {kind}:
                write_bytes(training / "features" / alias / name / "all.pth", buffer.getvalue())
    return {"images": len(rows), "buckets": len(release.buckets)}
