"""What a run says after its answers, the plan before it has said: word for word, and without a change."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.helpers import album, photo_config
from support.living import context

from driftline.curate.core.atomic_io import csv_text, write_text
from driftline.curate.core.errors import DriftlineError
from driftline.curate.metadata.columns import safe_id
from driftline.pipelines.annotation.batches import open_batch
from driftline.pipelines.forecast.needs import forecast
from driftline.pipelines.forecast.text import text
from driftline.pipelines.run.plan import plan
from driftline.pipelines.run.runner import run
from driftline.pipelines.run.stage import Context
from driftline.pipelines.run.state import folder_of

OF_THREE = ("validation.workers=3", "validation.agree=2")


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on 12 photos of cars and buses, whose only batch is answered; not published."""
    root = tmp_path_factory.mktemp("answered") / "run"
    album(root / "photos", 4)
    config = photo_config("  per_class: 2").replace("method: catalogue", "method: crowd, workers: 1, agree: 1")
    write_text(root / "driftline.yaml", config)
    run(context(root), until="ask")
    people_say(root, lambda thing: thing)
    return root


@pytest.fixture
def folder(answered: Path, tmp_path: Path) -> Path:
    shutil.copytree(answered, tmp_path / "run")
    return tmp_path / "run"


def people_say(root: Path, label: Callable[[str], str]) -> None:
    """Answer the open batch. label: folder of a photo → what is ticked."""
    facts = open_batch(context(root)).facts
    things = {safe_id(path.relative_to(root / "photos").as_posix()): path.parent.name for path in root.rglob("*.jpg")
              if "photos" in path.parts}  # fmt: skip
    rows = [(facts["batch"], item, "ann", label(things[id_])) for item, id_ in facts["items"].items()]
    write_text(root / "answers" / "a.csv", csv_text(("Input.batch", "Input.item", "WorkerId", "Answer.labels"), rows))


def files(root: Path) -> dict[str, str]:
    """Name → SHA-256 of all files, without what SQLite writes beside its own and what was read of photos."""
    paths = (path for path in sorted(root.rglob("*")) if path.is_file() and ".sqlite-" not in path.name)
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
        if path.name not in ("digests.sqlite", ".lock", "log.jsonl")
    }


def ends(here: Context) -> str:
    """What a run says that does not come to its end."""
    try:
        entries = run(here, yes=True)
    except DriftlineError as refused:
        return str(refused)
    return "".join(entry.get("because", "") for entry in entries)


def people_say_none(root: Path) -> None:
    people_say(root, lambda _: "none")


def withdraws_all(root: Path) -> None:
    ids = [safe_id(path.relative_to(root / "photos").as_posix()) for path in (root / "photos").rglob("*.jpg")]
    write_text(root / "gone.csv", csv_text(("id",), [(id_,) for id_ in ids]))


def asks_what_was_never_asked(root: Path) -> None:
    path = root / "answers" / "a.csv"
    write_text(path, path.read_text() + path.read_text().splitlines()[1].replace(",", ",x", 1) + "\n")


def has_a_release_before(root: Path) -> None:
    run(context(root))
    shutil.copytree(folder_of(root, "publish") / "release", root / "before")


def nothing(root: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("prepare", "changes", "sentence"),
    [
        (people_say_none, (), "The stage tally kept none of 12 records (wrong_concept 12)"),
        (nothing, (*OF_THREE, "validation.accept_incomplete=true"), "kept none of 12 records (pending 12)"),
        (asks_what_was_never_asked, (), "answers/a.csv, line 14: the image"),
        (nothing, ("release.short=fail",), "Too few accepted images for the release"),
        (nothing, ("release.own=false",), "No accepted image may be published: licence"),
        (withdraws_all, ("release.withdrawn=gone.csv",), "No accepted image may be published: withdrawn."),
        (nothing, ("release.strict=true",), "The card lacks the sections"),
        (has_a_release_before, ("release.previous=before", "release.per_class=1"), "and the change is major."),
        (nothing, ("release.features=[{name: x, model: resnet9, weights: photos}]",), "There is no backbone 'resnet9'"),
        (nothing, OF_THREE, "12 images have fewer than 3 valid answers"),
        (nothing, ("release.short=reopen",), "Round 2: "),
        (nothing, ("retrieve.per_class=3",), "12 images have their answers from before; 6 wait for answers"),
    ],
    ids=["none", "pending", "damage", "short", "licence", "withdrawn", "card", "version", "network", "workers", "round",
         "wider"],
)  # fmt: skip
def test_a_plan_says_it_first(
    prepare: Callable[[Path], None], changes: tuple[str, ...], sentence: str, folder: Path
) -> None:
    prepare(folder)
    here = context(folder, *changes)
    before = files(folder)
    needs = forecast(here, plan(here))
    assert files(folder) == before
    said = ends(here)
    assert sentence in said
    assert [*needs["problems"], needs["waits"]] == ([said] if needs["waits"] else [said, ""])
    assert said in text(plan(here), needs)


def test_a_plan_says_how_much_is_released(folder: Path) -> None:
    here = context(folder, "release.per_class=1")
    needs = forecast(here, plan(here))
    assert needs["verdicts"] == {"read": 12, "kept": 12, "dropped": {}}
    counts = {"bus": 1, "car": 1}
    buckets = [{"name": str(year), "classes": counts} for year in (2010, 2011, 2012)]
    assert needs["release"] == {
        "accepted": 12, "images": 6, "dropped": {"surplus": 6}, "buckets": buckets, "absent": []
    }  # fmt: skip
    lines = text(plan(here), needs)
    assert "people     no further answers are needed\naccepted   12 of 12 images\n" in lines
    assert "release    6 of 12 accepted images (surplus 6)\n           2010: bus 1, car 1\n" in lines
    run(here)
    assert forecast(here, plan(here))["release"] is None, "it is done"
