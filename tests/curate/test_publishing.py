"""Publishing to a Hub on loopback and back: resumable, private, one commit, nothing of others deleted, no token."""

import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.clear_layouts import PROVENANCE
from support.console import inside
from support.helpers import release_of
from support.hub_server import TOKEN, Hub, hub
from typer.testing import CliRunner

from driftline.curate.core.atomic_io import sha256_bytes
from driftline.curate.core.errors import BadConfig, BadInput, IntegrityError, MissingFile, Unfinished
from driftline.curate.core.seeding import rng_for
from driftline.curate.export.layouts import huggingface as export
from driftline.curate.publishing import PUBLISHERS, Settings, plan_of, table
from driftline.curate.release import Release
from driftline.curate.release.settings import ReleaseSettings
from driftline.pipelines.cli import app
from driftline.pipelines.demo.draw import jpeg, photo
from driftline.stream_builder.importers.hub import from_hub

PLACE = "me/cars"


def made(folder: Path, version: str = "1.0.0", buckets: int = 2) -> Release:
    """A few pictures in some buckets; the picture p0 is withdrawn in later versions."""
    rows, images = [], {}
    for i in range(4 * buckets):
        if version != "1.0.0" and i == 0:
            continue
        data = jpeg(photo([("bus", "car")[i % 2]], 0.2, rng_for(0, i)).resize((24, 24)))
        images[f"p{i}"] = (data, "jpg")
        rows.append(
            {"id": f"p{i}", "bucket": i // 4, "concept": ("bus", "car")[i % 2], "user": f"u{i}", "uploaded": i,
             "sha256": sha256_bytes(data), "title": ""}
        )  # fmt: skip
    spans: list[dict[str, Any]] = [{"index": b, "name": str(b), "start": None, "end": None} for b in range(buckets)]
    rules = ReleaseSettings(name="cars", version=version, splits=1)
    return release_of(
        rows, images, np.eye(len(rows), 4, dtype=np.float16), spans, ["bus", "car"], PROVENANCE, folder, rules
    )


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("published")
    made_of = {"1": ("1.0.0", 2), "2": ("2.0.0", 1)}
    for name, (version, buckets) in made_of.items():
        export(made(folder / f"release-{name}", version, buckets), folder / name)
    return {name: folder / name for name in made_of}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with hub() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.address)
        yield running


def publish(folder: Path, **settings: Any) -> Any:
    return PUBLISHERS["hf"](plan_of(folder), PLACE, Settings(**settings))


def files_of(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_copy_loads_as_the_release(server: Hub, exports: dict[str, Path], tmp_path: Path) -> None:
    import datasets
    from huggingface_hub import snapshot_download

    done = publish(exports["1"])
    assert (done.public, server.private[PLACE], list(server.tags[PLACE])) == (False, True, ["v1.0.0"])
    assert len(server.commits[PLACE]) == 2, "creation, and one commit"
    copy = snapshot_download(PLACE, repo_type="dataset", endpoint=server.address, local_dir=tmp_path / "copy")
    loaded = datasets.load_dataset(copy, cache_dir=str(tmp_path / "cache"))
    release = Release.open(exports["1"].parent / "release-1")
    pictures = dict(release.images())
    rows = [row for split in loaded.values() for row in split.cast_column("image", datasets.Image(decode=False))]
    assert {row["id"]: row["image"]["bytes"] for row in rows} == pictures
    labels = dict(zip(release.table["id"].to_pylist(), release.table["label"].to_pylist(), strict=True))
    assert {row["id"]: row["label"] for row in rows} == labels


def test_a_stream_is_made_from_the_hub_as_from_the_local_copy(server: Hub, exports: dict[str, Path]) -> None:
    publish(exports["1"])
    columns = {"time": "uploaded", "label": "label", "size": 8, "period": "2"}
    here, there = from_hub(exports["1"], **columns), from_hub(Path(PLACE), **columns)
    for mine, theirs in zip(here.steps, there.steps, strict=True):
        for side, split in mine.splits.items():
            assert split.ids.tolist() == theirs[side].ids.tolist()
            assert split.x.sha256() == theirs[side].x.sha256()
    assert list(here.classes) == list(there.classes)
    server.page = 1
    assert len(from_hub(Path(PLACE), **columns).steps[0]["train"].ids) == len(there.steps[0]["train"].ids)
    changed = [["GET", r"/resolve/", lambda: server.commit(PLACE, {}), 1]]
    server.faults = changed  # type: ignore[assignment]
    assert list(from_hub(Path(PLACE), **columns).classes) == list(there.classes), "all shards are of one commit"
    server.faults = [["GET", "/resolve/", 401, 99], ["HEAD", "/resolve/", 401, 99]]
    with pytest.raises(MissingFile, match="cannot be read from the Hub") as caught:
        from_hub(Path(PLACE), **columns)
    assert TOKEN not in str(caught.value)


def test_an_update_drops_withdrawn_images_and_keeps_what_others_wrote(server: Hub, exports: dict[str, Path]) -> None:
    publish(exports["1"])
    sha, files = server.head(PLACE)
    server.commit(PLACE, files | {"notes/mine.txt": b"hand-written"})
    done = publish(exports["2"])
    head = server.head(PLACE)[1]
    assert done.removed >= 1
    assert {n: d for n, d in head.items() if n not in (".gitattributes", "notes/mine.txt")} == files_of(exports["2"])
    assert head["notes/mine.txt"] == b"hand-written"
    assert (sha, files) in server.commits[PLACE], "the history has the old version"


def test_the_same_version_is_published_once_and_never_changes(server, exports, tmp_path):
    publish(exports["1"])
    assert publish(exports["1"]).sent == 0
    assert len(server.commits[PLACE]) == 2
    other = shutil.copytree(exports["2"], tmp_path / "other")
    facts = json.loads((other / "release.json").read_text()) | {"version": "1.0.0"}
    (other / "release.json").write_text(json.dumps(facts))
    with pytest.raises(BadInput, match="has version 1.0.0 with other content"):
        publish(other)


@pytest.mark.parametrize(
    ("method", "path", "fault"),
    [
        ("PUT", "/store/", 503),
        ("PUT", "/store/", "drop"),
        ("POST", "/preupload/", "drop"),
        ("POST", "/commit/", 502),
        ("POST", "/commit/", "drop"),
        ("POST", "/commit/", "lose"),
        ("POST", "/repos/create", 500),
        ("POST", "/repos/create", b"<html>"),
        ("POST", "/preupload/", b"<html>"),
        ("POST", "/commit/", b"<html>"),
        ("POST", "/commit/", {"error": "try later"}),
        ("POST", "/tag/", "lose"),
        ("GET", "/api/datasets/me/cars$", b"[]"),
    ],
)
def test_after_a_failure_the_same_command_goes_on(server, exports, method, path, fault):
    server.faults = [[method, path, fault, 1]]
    with suppress(Unfinished):
        publish(exports["1"])
    publish(exports["1"])
    assert server.faults[0][3] == 0
    assert len(server.commits[PLACE]) == 2
    assert set(files_of(exports["1"])) <= set(server.head(PLACE)[1])


def test_a_kill_between_commit_and_tag_leaves_the_tag_to_the_next_run(server: Hub, exports: dict[str, Path]) -> None:
    server.faults = [["POST", "/tag/", 503, 99]]
    with pytest.raises(Unfinished, match=r"cannot be reached \(status 503\)"):
        publish(exports["1"])
    server.faults = []
    assert publish(exports["1"]).sent == 0
    assert list(server.tags[PLACE]) == ["v1.0.0"]
    assert len(server.commits[PLACE]) == 2


@pytest.mark.parametrize("headers", [{"Retry-After": "9" * 400}, {"RateLimit": '"api";r=0;t=99999999'}])
@pytest.mark.parametrize("path", ["/preupload/", "/commit/", "objects/batch"])
def test_a_hub_that_asks_to_wait_for_a_year_is_not_waited_for(server, exports, path, headers):
    server.faults = [["POST", path, (429, {"error": "slow down"}, headers), 99]]
    with pytest.raises(Unfinished, match=r"asks to wait for [\d,]+ seconds \(status 429\)\. Run the same command"):
        publish(exports["1"])
    server.faults = []
    publish(exports["1"])
    assert len(server.commits[PLACE]) == 2


def test_a_token_that_expires_halfway_ends_in_one_sentence_and_the_upload_goes_on(server, exports):
    def expire() -> None:
        server.token = "another"

    server.faults = [["POST", "/commit/", expire, 1]]
    with pytest.raises(BadConfig, match=r"does not let you write me/cars \(status 401\)"):
        publish(exports["1"])
    sent, server.token = server.puts, TOKEN
    publish(exports["1"])
    assert (server.puts, len(server.commits[PLACE])) == (sent, 2)


def test_an_upload_that_stops_publishes_nothing_and_continues(server: Hub, exports: dict[str, Path]) -> None:
    server.faults = [["POST", "/commit/", 503, 99]]
    with pytest.raises(Unfinished, match=r"cannot be reached \(status 503\)"):
        publish(exports["1"])
    assert set(server.head(PLACE)[1]) == {".gitattributes"}
    sent, server.faults = server.puts, []
    publish(exports["1"])
    assert server.puts == sent, "large files are not sent again"


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, BadConfig, "does not let you write"),
        (403, BadConfig, "does not let you write"),
        (409, Unfinished, "changed while the upload ran"),
        (412, Unfinished, "changed while the upload ran"),
        (400, BadInput, "rejected"),
    ],
)
def test_a_refusal_is_one_sentence_without_the_token(server, exports, status, kind, words):
    refusal = {"error": f"no: {TOKEN}"}
    server.faults = [["POST", "/commit/", (status, refusal, {"X-Error-Message": refusal["error"]}), 1]]
    with pytest.raises(kind, match=words) as caught:
        publish(exports["1"])
    assert TOKEN not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert set(server.head(PLACE)[1]) == {".gitattributes"}


def test_a_token_in_a_file_is_used_and_never_stored(server, exports, tmp_path, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    (tmp_path / "token").write_text(TOKEN + "\n")
    done = publish(exports["1"], token_file=tmp_path / "token")
    assert TOKEN not in repr(done)
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and p.name != "token" and TOKEN in p.read_text()]


def test_damage_is_found_before_anything_is_sent(server: Hub, exports: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(exports["1"], tmp_path / "damaged")
    next(folder.glob("data/*.parquet")).unlink()
    with pytest.raises(IntegrityError, match="is missing"):
        publish(folder)
    (shutil.copytree(exports["1"], tmp_path / "more") / "secret.txt").touch()
    with pytest.raises(IntegrityError, match="is not in SHA256SUMS"):
        publish(tmp_path / "more")
    (tmp_path / "more" / "other").symlink_to("secret.txt")
    with pytest.raises(BadInput, match=r"other is a link"):
        publish(tmp_path / "more")
    assert server.requests == []


def test_a_dry_run_has_files_and_sizes(exports: dict[str, Path]) -> None:
    plan = plan_of(exports["1"])
    text = table(plan)
    assert all(name in text for name in plan.files)
    assert f"{sum(len(data) for data in files_of(exports['1']).values()):,}  bytes" in text


@pytest.mark.parametrize("place", ["cars", "me/cars/x", "me/ca rs"])
def test_a_place_that_is_none(exports: dict[str, Path], place: str) -> None:
    with pytest.raises(BadConfig, match="Expected hf:USER/NAME"):
        PUBLISHERS["hf"](plan_of(exports["1"]), place, Settings())


def test_the_command_shows_and_sends(server: Hub, exports: dict[str, Path], tmp_path: Path) -> None:
    words = ["export", str(exports["1"].parent / "release-1"), "--format", "huggingface", "--out", str(tmp_path)]
    shown = CliRunner().invoke(app, [*words, "--to", f"hf:{PLACE}", "--dry-run"])
    assert shown.output.endswith(f"they go to hf:{PLACE}, private.\n")
    assert server.requests == []
    sent = CliRunner().invoke(app, [*words, "--to", f"hf:{PLACE}"])
    assert f"{server.address}/datasets/{PLACE}: " in sent.output
    assert TOKEN not in sent.output
    wrong = CliRunner().invoke(app, [*words, "--to", "hub:me/cars"])
    assert "Unknown publishing target 'hub'" in str(wrong.exception)


def test_a_strict_release_has_all_sections(exports: dict[str, Path], tmp_path: Path) -> None:
    words = ("export", exports["1"].parent / "release-1", "--format", "huggingface", "--out", tmp_path / "out")
    refused = inside(*words, "--strict")
    assert (refused.returncode, "lacks the sections" in refused.stderr) == (2, True)
