"""A new user's first hour with photos of their own: what goes wrong, what messages say, and that nothing is lost."""

from __future__ import annotations

import hashlib
import io
import json
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image

from driftline.curate.core.outside.image_kinds import reads_heic
from driftline.curate.core.parsing import rows_of
from driftline.curate.core.seeding import rng_for
from driftline.curate.fetch.run import fetch_shard
from driftline.pipelines.annotation.server import answer_store_of
from driftline.pipelines.cli.app import main
from driftline.pipelines.cli.common import context_of_last
from driftline.pipelines.demo.draw import photo
from driftline.pipelines.run.stage import parts_of
from driftline.pipelines.run.state import folder_of

pytestmark = pytest.mark.proof("journey")

YEARS, EACH = (2010, 2011, 2012), 8
THINGS = ("car", "bus")
UNDATED, NEAR_COPY, PHONE = "scans/attic.jpg", "2011/car-0-small.jpg", "2012/IMG_20120505_101500.heic"


def take_photos(folder: Path) -> None:
    """What a folder holds after some years: years as folders, dated names, a scan without a date, a smaller copy of a
    photo, and one that a phone wrote."""
    for year in YEARS:
        (folder / str(year)).mkdir(parents=True)
        for thing in THINGS:
            for i in range(EACH):
                image = photo([thing], 0.2, rng_for(year, thing, i))
                image.save(folder / str(year) / f"{thing}-{i}.jpg", quality=90)
    (folder / "scans").mkdir()
    photo(["car"], 0.1, rng_for(1, "attic")).save(folder / UNDATED)
    with Image.open(folder / "2011" / "car-0.jpg") as original:
        original.resize((original.width // 2, original.height // 2)).save(folder / NEAR_COPY, quality=70)
    reads_heic()
    photo(["bus"], 0.2, rng_for(2, "phone")).save(folder / PHONE, "HEIF", quality=90)


def driftline(*words: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command in this process; never a traceback."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["driftline", *map(str, words)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    assert "Traceback" not in err.getvalue()
    return code, out.getvalue(), err.getvalue()


def message(done: tuple[int, str, str], code: int) -> str:
    """The one message of a command that did not succeed."""
    assert done[0] == code, done
    return done[2].strip().splitlines()[-1]


def tree(folder: Path) -> dict[str, str]:
    """Name → SHA-256 of every file."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def states(root: Path) -> list[str]:
    return [stage["state"] for stage in json.loads(driftline("status", root, "--json")[1])["stages"]]


@pytest.fixture
def no_internet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def small_disk() -> Iterator[Any]:
    """A function that limits the size of files of this process (None: no limit), as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, before if size is None else (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_the_first_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_internet: None, small_disk: Any) -> None:
    monkeypatch.chdir(tmp_path)
    own, photos = Path("own"), tmp_path / "photos"
    take_photos(photos)

    # A typo in the first command leaves nothing behind.
    said = message(driftline("init", own, "--preset", "folder", "--set", "collection.pth=../photos"), 2)
    assert "unknown key 'pth'" in said
    assert "Did you mean 'path'" in said
    assert not own.exists()
    concepts = [{"name": thing, "prompts": [f"a photo of a {thing}"]} for thing in THINGS]
    changes = ["collection.path=../photos", f"retrieve.concepts={json.dumps(concepts)}", "retrieve.per_class=6",
               "retrieve.background_share=0", "release.per_class=4", "release.splits=1", "fetch.shard_size=10",
               "retrieve.short=fewer"]  # fmt: skip
    code, out, _ = driftline("init", own, "--preset", "folder", *(f"--set={change}" for change in changes))
    assert code == 0
    assert "driftline plan own" in out

    # The plan knows of the outage, counts the photos, and finds no date of one.
    plan = json.loads(driftline("plan", own, "--json")[1])
    assert plan["photos"]["expected"] == 2 * EACH * len(YEARS) + 2
    assert plan["photos"]["sample_dropped"] == {"no_upload_date": 1}
    assert plan["model"]["state"] == "missing"
    assert (plan["questions"]["workers"], plan["questions"]["answers"]) == (1, 36)

    # The model's server is away: one message with ways out. A model that is here goes on.
    said = message(driftline("run", own), 1)
    assert "is not on this machine" in said
    assert "driftline models train" in said
    model = ["--set", "embed.model=driftline-photo-world", "--set", "embed.weights=null"]

    # Ctrl-C while photos are copied.
    def interrupted(shard: Any) -> Any:
        if shard.number == 2:
            signal.raise_signal(signal.SIGINT)
        return fetch_shard(shard)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    with monkeypatch.context() as patch:
        patch.setattr("driftline.curate.fetch.run.fetch_shard", interrupted)
        said = message(driftline("run", own, *model, "--workers", 1), 130)
    signal.signal(signal.SIGINT, before)
    assert "Stopped in fetch. Kept: ingest, filter" in said
    assert "Go on: driftline run own" in said
    fetched = folder_of(own, "fetch")
    first = {n: (fetched / f"0000{n}.tar").stat().st_ino for n in range(2)}

    # The disk is full.
    small_disk(20_000)
    said = message(driftline("run", own, *model, "--workers", 1), 1)
    small_disk(None)
    assert str((tmp_path / own).resolve()) in said
    assert "run the same command again: finished work is kept" in said
    assert states(own)[:2] == ["done", "done"]

    # The same command goes on, with what was finished, and waits for answers.
    said = message(driftline("run", own, *model, "--workers", 1), 3)
    assert "driftline annotate own" in said
    assert {n: (fetched / f"0000{n}.tar").stat().st_ino for n in range(2)} == first
    dropped = driftline("status", own, "--dropped")[1]
    assert UNDATED in dropped
    assert "Dates were looked for in: exif, sidecar, path." in dropped
    members = json.loads(driftline("trace", own, PHONE, "--json")[1])
    assert [event["stage"] for event in members["events"]][:3] == ["ingest", "filter", "fetch"]

    # A typo in a setting, and an unplugged disk, touch nothing.
    before = tree(own / "stages")
    assert "photo-wrld" in message(driftline("run", own, "--set", "embed.model=driftline-photo-wrld"), 2)
    photos.rename(tmp_path / "unplugged")
    assert f"There is no folder {photos}" in message(driftline("run", own, *model), 2)
    assert states(own)[0] == "done"
    (tmp_path / "unplugged").rename(photos)
    assert tree(own / "stages") == before

    # Answers, given on the page that `driftline annotate` serves.
    context = context_of_last(own, None, True)
    parts = parts_of(folder_of(own, "ingest"))
    titles = {id_: title for part in parts for id_, title in rows_of(pq.read_table(part), "id", "title")}
    store = answer_store_of(context)
    for item, id_ in store.batch["items"].items():
        store.answer("me", item, ["car" if titles[id_].startswith("car") else "bus"], False, 3)
    store.close()
    code, out, _ = driftline("annotate", own, "--export")
    assert code == 0
    assert "driftline run own" in out
    code, out, err = driftline("run", own, *model)
    assert code == 0, err
    assert "stages/09_publish/release" in out
    assert states(own) == ["done"] * 9
    release = tree(own / "stages" / "09_publish" / "release")

    # A changed filter that keeps too little: the release of before is still there, and comes back.
    where = "filter.where=title LIKE '%none%'"
    assert "kept none" in message(driftline("run", own, *model, "--set", where), 1)
    assert tree(own / "stages" / "09_publish" / "release") == release
    assert driftline("run", own, "--set", "filter.where=null")[0] == 0
    assert tree(own / "stages" / "09_publish" / "release") == release
    stages = json.loads(driftline("status", own, "--verify", "--json")[1])["stages"]
    assert {stage["state"] for stage in stages} == {"done"}

    # To the report.
    assert driftline("stream", "from-release", own, "--out", "stream")[0] == 0
    settings = ["--learners", "majority,nearest-mean", "--seeds", "0-1", "--out", "runs"]
    assert driftline("eval", "stream", "--protocol", "clear-streaming", *settings)[0] == 0
    code, out, err = driftline("report", "runs", "--out", "report")
    assert code == 0, err
    assert Path("report/index.html").is_file()
    assert "report/index.html" in out
