"""A catalogue's labels, backbone features and near-duplicates, from a folder of pictures to a release."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from support.helpers import photo_config
from support.living import context

from driftline.curate.core.atomic_io import read_json, write_json, write_text
from driftline.curate.core.errors import BadInput
from driftline.curate.core.seeding import rng_for
from driftline.curate.embedding import features
from driftline.curate.release import Release
from driftline.pipelines.demo.draw import photo
from driftline.pipelines.reporting.audit import audit
from driftline.pipelines.run.runner import run
from driftline.pipelines.stages.state import folder_of

CONFIG = photo_config("  per_class: 8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cars and buses of two years; one car of 2011 is a compressed copy of one of 2010."""
    out = tmp_path_factory.mktemp("features") / "run"
    for year in (2010, 2011):
        for thing in ("car", "bus"):
            for i in range(5):
                picture = photo([thing], 0.2, rng_for(year, thing, i))
                if (year, thing, i) == (2011, "car", 0):
                    picture = photo(["car"], 0.2, rng_for(2010, "car", 0))
                (out / "photos" / thing).mkdir(parents=True, exist_ok=True)
                picture.save(out / "photos" / thing / f"{year}-05-0{i + 1}.jpg", quality=70 if year == 2011 else 95)
    write_text(out / "driftline.yaml", CONFIG)
    run(context(out))
    return out


def again(folder: Path, tmp_path: Path, *changes: str) -> Release:
    """The same run with other settings of its last stage."""
    shutil.copytree(folder, tmp_path / "run")
    run(context(tmp_path / "run", *changes))
    return Release.open(tmp_path / "run")


def test_near_copies_are_told_in_the_card(folder: Path) -> None:
    release = Release.open(folder)
    found = release.facts["near_copies"]
    assert (found["groups"], found["images_in_groups"]) == (1, 2)
    assert found["groups_across"]["bucket"] == 1
    assert "2 of 16 images\nare in 1 group; in several buckets: 1" in (release.path / "README.md").read_text()


def test_only_the_earliest_of_near_copies_is_published_when_asked(folder: Path, tmp_path: Path) -> None:
    release = again(folder, tmp_path, "release.near_copies=drop")
    assert release.facts["near_copies"]["groups"] == 0
    assert read_json(folder_of(tmp_path / "run", "publish") / "done.json")["counts"]["dropped"]["near_copy"] == 1


def test_backbone_features_are_shipped_with_the_release_and_computed_once(folder, tmp_path, monkeypatch):
    import timm
    import torch

    from driftline.stream_builder.builders.release import from_release

    torch.manual_seed(0)
    torch.save(timm.create_model("resnet18", num_classes=7).state_dict(), tmp_path / "weights.pt")
    entry = f"{{name: imagenet, model: resnet18, weights: {tmp_path / 'weights.pt'}}}"
    release = again(folder, tmp_path, f"release.features=[{entry}]")
    release.verify()
    assert release.facts["features"] == ["clip", "imagenet"]
    vectors = release.features("imagenet")
    assert vectors.shape == (16, 512)
    assert np.allclose(np.linalg.norm(vectors.astype(np.float32), axis=1), 1, atol=2e-3)
    assert from_release(release, "imagenet").x_shape == (512,)
    # drift is measured on features that did not choose the images
    assert "on the features `imagenet`" in (release.path / "README.md").read_text(encoding="utf-8")
    assert audit(release.path)["drift"]["features"] == "imagenet"

    computed: list[int] = []
    monkeypatch.setattr(features, "features", lambda images, *rest: computed.append(len(images)))
    changes = [f"release.features=[{entry}]", "release.per_class=2"]
    run(context(tmp_path / "run", *changes))
    fewer = Release.open(tmp_path / "run")
    assert computed == []
    row_of = {id_: row for row, id_ in enumerate(release.table["id"].to_pylist())}
    rows = [row_of[id_] for id_ in fewer.table["id"].to_pylist()]
    assert len(rows) == 8
    assert np.array_equal(fewer.features("imagenet"), vectors[rows])


def test_a_checkpoint_that_does_not_fit_stops_the_release(folder: Path, tmp_path: Path) -> None:
    import timm
    import torch

    torch.save(timm.create_model("resnet18").state_dict(), tmp_path / "weights.pt")
    entry = f"{{name: imagenet, model: resnet50, weights: {tmp_path / 'weights.pt'}}}"
    with pytest.raises(BadInput, match="does not fit the network"):
        again(folder, tmp_path, f"release.features=[{entry}]")


def test_vectors_from_elsewhere_take_the_place_of_the_model(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder_of(folder, "embed"), tmp_path / "theirs")
    (tmp_path / "theirs" / "encoder.json").unlink()  # clip-retrieval writes none
    release = again(folder, tmp_path, f"embed.from={tmp_path / 'theirs'}")
    assert release.table["id"].to_pylist() == Release.open(folder).table["id"].to_pylist()
    assert release.facts["provenance"]["encoder"]["fingerprint"] is None


def test_vectors_of_another_model_are_refused_by_their_fingerprint(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder_of(folder, "embed"), tmp_path / "theirs")
    told = read_json(tmp_path / "theirs" / "encoder.json")
    write_json(tmp_path / "theirs" / "encoder.json", told | {"fingerprint": "0" * 64})
    with pytest.raises(BadInput, match="made by .* with other weights"):
        again(folder, tmp_path, f"embed.from={tmp_path / 'theirs'}")
