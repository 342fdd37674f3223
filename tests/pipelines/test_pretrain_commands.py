"""`driftline models train`, `stream encode`: from a run's photos to features of its release."""

import json
from pathlib import Path

import pytest
from support.helpers import photo_config
from support.living import context
from typer.testing import CliRunner

from driftline.curate.core.atomic_io import read_json, write_text
from driftline.curate.core.errors import DriftlineError
from driftline.curate.core.seeding import rng_for
from driftline.curate.release import Release
from driftline.pipelines.cli import app
from driftline.pipelines.demo.draw import photo
from driftline.pipelines.run.runner import run
from driftline.stream_builder.stream import Stream

SMALL = ("network=resnet10t", "size=16", "room=20", "epochs=1", "batch=8", "groups=2", "queue=8")
SETS = [part for setting in SMALL for part in ("--set", setting)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of three years; those of 2009 have no labels."""
    out = tmp_path_factory.mktemp("pretrain") / "run"
    for year, count in ((2009, 10), (2010, 6), (2011, 6)):
        for thing in ("car", "bus"):
            for i in range(count):
                (out / "photos" / thing).mkdir(parents=True, exist_ok=True)
                photo([thing], 0.2, rng_for(year, thing, i)).save(out / "photos" / thing / f"{year}-05-{i + 1:02d}.jpg")
    text = photo_config("  per_class: 4").replace("unlabelled: []", "unlabelled: [0]")
    write_text(out / "driftline.yaml", text.replace("release: {", "release: {unlabelled: images, "))
    run(context(out))
    return out


def told(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if isinstance(result.exception, DriftlineError):
        return f"error: {result.exception}"
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


@pytest.fixture(scope="module")
def moco(folder: Path) -> Path:
    """Weights of bucket 0."""
    words = ("models", "train", folder, "--recipe", "small", *SETS, "--out", folder.parent / "moco", "--json")
    assert json.loads(told(*words))["images"] == 20
    return folder.parent / "moco"


def test_bucket_0_of_a_run_teaches_features_of_its_release(folder: Path, moco: Path, tmp_path: Path) -> None:
    named = f"moco-b0=backbone:resnet10t:{moco}"
    told("stream", "encode", folder, "--encoder", named, "--out", tmp_path / "f")
    stream = Stream.load(tmp_path / "f" / "moco-b0")

    assert stream.x_shape == (512,)
    assert stream.facts["features"] == "moco-b0"
    assert len(stream.unlabelled) == 20
    assert sum(len(s.unlabelled) for s in stream.steps if s.unlabelled is not None) == 24 - 16
    assert "self-training" in told(
        "eval", tmp_path / "f" / "moco-b0", "--protocol", "clear-iid", "--learners", "self-training",
        "--set", "epochs=2", "--out", tmp_path / "r",
    )  # fmt: skip


def test_several_encoders_are_each_made_once(folder: Path, moco: Path, tmp_path: Path) -> None:
    encoders = (f"moco-b0=backbone:resnet10t:{moco}", "clip:driftline-photo-world")
    words = [word for one in encoders for word in ("--encoder", one)]
    command = ("stream", "encode", folder, *words, "--out", tmp_path / "f", "--json")
    document = json.loads(told(*command))
    assert {p.name for p in (tmp_path / "f").iterdir()} == {"moco-b0", "clip-driftline-photo-world"}
    assert [Path(one["out"]).parent for one in document["streams"]] == [Path(document["out"])] * 2
    before = [(Path(one["out"]) / "stream.json").stat().st_mtime_ns for one in document["streams"]]
    told(*command)
    assert [(Path(one["out"]) / "stream.json").stat().st_mtime_ns for one in document["streams"]] == before


def test_options_of_a_recipe_and_of_a_clip_are_refused_with_the_other(folder: Path, tmp_path: Path) -> None:
    command = ("models", "train", folder, "--out", tmp_path / "m")
    for words, problem in (
        (["--recipe", "small", "--epochs", 3], "--epochs was given with --recipe"),
        (["--recipe", "small", "--size", 32], "--size was given with --recipe"),
        (["--bucket", 1], "--bucket was given without --recipe"),
    ):
        assert problem in told(*command, *words)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--recipe", "byol"), "Unknown recipe 'byol'"),
        (("--recipe", "small", "--bucket", "7"), "There is no image of bucket 7"),
        (("--recipe", "small", "--set", "epoch=1"), "Unknown setting 'epoch'"),
        (("--recipe", "small", "--set", "epochs=many"), "epochs is 'many'"),
        (("--recipe", "small"), "There are 20 images, the batch is 128"),
    ],
)
def test_what_cannot_be_is_told(folder: Path, tmp_path: Path, arguments: tuple[str, ...], what: str) -> None:
    assert what in told("models", "train", folder, *arguments, "--out", tmp_path / "moco")


def test_weights_of_another_network_are_refused(folder: Path, moco: Path, tmp_path: Path) -> None:
    for weights, problem in (moco, "holds a resnet10t"), (moco / "weights.safetensors", "does not fit the network"):
        encoder = f"a=backbone:resnet18:{weights}"
        assert problem in told("stream", "encode", folder, "--encoder", encoder, "--out", tmp_path)


def test_features_may_be_published_with_the_release(folder: Path, moco: Path) -> None:
    entry = f"{{name: moco-b0, model: resnet10t, weights: {moco}}}"
    changes = [f"release.features=[{entry}]", "release.version=1.0.1"]
    run(context(folder, *changes))
    assert read_json(Release.open(folder).path / "release.json")["features"] == ["clip", "moco-b0"]
