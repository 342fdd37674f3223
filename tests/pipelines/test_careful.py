"""What leaves the machine: a release by default settings names no folder, no token and nothing that needs no credit."""

import itertools
import shutil
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.console import driftline
from support.helpers import album, photo_config
from support.living import context

import driftline as dl
from driftline.curate.core.atomic_io import csv_text
from driftline.curate.core.errors import BadConfig, without_secrets
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import rng_for
from driftline.curate.export import EXPORTS
from driftline.curate.metadata.columns import id_of_address
from driftline.curate.metadata.released_ids import FILE, released_ids
from driftline.curate.pretrain.pool import open_pool
from driftline.curate.release import Release
from driftline.curate.validation.answers.answer_store import AnswerStore
from driftline.curate.validation.answers.answers import KEY, worker_key
from driftline.eval.leaderboard.submission import pack
from driftline.eval.run import evaluate
from driftline.pipelines.actions.common import OUTPUT, show
from driftline.pipelines.demo.draw import photo
from driftline.pipelines.forecast import forecast
from driftline.pipelines.run.leaving import withdraw_photos
from driftline.pipelines.run.runner import plan, run
from driftline.pipelines.stages.photos import trace
from driftline.stream_builder.builders.release import from_release
from driftline.stream_builder.stream import Stream

PERSON = "ZoeCanary"


def publish(root: Path, *changes: str) -> Release:
    run(context(root, *changes))
    return Release.open(root)


def everything(*folders: Path) -> str:
    """Names and bytes of every file below some folders; tables as text, archives with their members."""
    texts = []
    for path in (path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()):
        parts = [path.read_bytes()]
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                parts += [part for name in archive.namelist() for part in (name.encode(), archive.read(name))]
        texts += [path.as_posix().removeprefix(str(folders[0].parent)), *(part.decode("latin-1") for part in parts)]
        if path.suffix == ".parquet":
            texts.append(str(pq.read_table(path).to_pylist()))
    return "\n".join(texts)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("careful") / "run"
    own = album(root / "photos" / PERSON, 4)
    (root / "photos" / "car").mkdir()
    shutil.copy(own / "car" / "2010-05-01.jpg", root / "photos" / "car")  # the same file in another folder
    (root / "driftline.yaml").write_text(photo_config("  per_class: 6"))
    publish(root, "release.per_class=3")
    return root


@pytest.fixture
def root(first: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(first, tmp_path / "run"))


def test_no_byte_of_a_release_or_its_exports_names_a_folder(root: Path, tmp_path: Path) -> None:
    release = publish(root, "release.per_class=3", "release.unlabelled=images")
    assert PERSON in everything(root / "stages" / "01_ingest"), "the test would see it"
    for name in EXPORTS:
        EXPORTS[name](release, tmp_path / "exports" / name)
    assert PERSON not in everything(release.path, tmp_path / "exports")
    assert "2010-05-0" not in everything(release.path, tmp_path / "exports"), "nor a file"
    without_tests = open_pool(root, None).dropped
    kept = publish(root, "release.per_class=3", "release.ids=path", "release.version=2.0.0")
    assert open_pool(root, None).dropped == without_tests
    assert PERSON in kept.table["id"][0].as_py()


def test_the_same_inputs_have_the_same_ids_in_another_folder_and_equal_files_have_two(first: Path, root: Path) -> None:
    (root / FILE).unlink()
    shutil.rmtree(next(root.glob("stages/*_publish")))
    release = publish(root, "release.per_class=3")
    assert everything(release.path) == everything(Release.open(first).path)
    assert (root / FILE).stat().st_mode & 0o777 == 0o600
    ids = released_ids(root)
    equal = [name for id_, name in ids.items() if "car-2010-05-01-jpg" in id_]
    assert len(set(ids.values())) == len(ids) == 25
    assert max(equal) == f"{min(equal)}-2"


def test_a_photo_keeps_its_id_when_the_album_grows_and_an_equal_one_leaves(root: Path) -> None:
    before = released_ids(root)
    plain = min(name for id_, name in before.items() if "car-2010-05-01-jpg" in id_)
    path = next(event["path"] for event in trace(root, plain)["events"] if "path" in event)
    (root / "photos" / path.partition("/photos/")[2]).unlink()
    album(root / "photos" / "AAA", 1)
    publish(root, "release.per_class=3", "release.version=2.0.0")
    after = released_ids(root)
    assert before.items() <= after.items()
    assert len(after) == len(before) + 6


def test_a_published_id_withdraws_and_traces_as_the_own_one(root: Path) -> None:
    release = Release.open(root)
    name, gone = release.table["id"].to_pylist()[:2]
    assert trace(root, name) == trace(root, next(id_ for id_, of in released_ids(root).items() if of == name))
    assert trace(root, name)["ended"] == "It is in the release."
    (root / "list.csv").write_text(f"id\n{name}\n")
    for changes in (("release.withdrawn=list.csv",), ("filter.withdrawn=list.csv",)):
        after = publish(root, "release.per_class=3", "release.version=1.1.0", *changes)
        assert name not in after.table["id"].to_pylist()
        assert gone in after.table["id"].to_pylist()
    withdraw_photos(root, [gone])
    after = publish(root, "release.per_class=3", "release.version=1.2.0")
    assert after.withdrawn([name, gone]) == [gone]
    assert gone not in everything(after.path)


def test_a_release_with_ids_of_paths_goes_on_with_them_or_is_refused(root: Path, tmp_path: Path) -> None:
    old = publish(root, "release.per_class=3", "release.ids=path").path
    shutil.copytree(old, tmp_path / "old")
    changes = ("release.per_class=3", f"release.previous={tmp_path / 'old'}", "release.version=1.0.1")
    with pytest.raises(BadConfig, match="made from paths, such as .*Set release.ids: path to go on with them"):
        publish(root, *changes)
    publish(root, *changes, "release.ids=path")


NEEDED = ("NeededCreator", "NeededTitle", "NeededPage", "https://creativecommons.org/licenses/by-nc-nd/4.0/")
LICENCES = ("All rights reserved", "", "Attribution License", NEEDED[-1])  # of the photos in turn: two permit copies
ROW = {  # what a photo's row says; n: its number
    "user": "CanaryUser{n}", "nickname": "NeededCreator", "title": "NeededTitle", "caption": "CanaryCaption",
    "tags": "CanaryTag", "latitude": "48.12345", "longitude": "11.56789", "camera": "CanaryCamera",
    "description": "CanaryDescription", "page_url": "http://h/NeededPage/{n}?access_token=CanaryPageToken",
    "url": "http://h/{n}.jpg?X-Amz-Signature=CanarySignature&w=CanaryWidth&password=CanaryPassword",
}  # fmt: skip
CANARIES = (
    "Home Folder File Maker Model Artist Software Host Lens Serial Gps Comment Xmp User Password Signature Width "
    "PageToken Caption Tag Camera Description Hidden"
)
PLANTED = [*(f"Canary{name}" for name in CANARIES.split()), "48.12345", "11.56789"]  # 25, not for attribution


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of photos with EXIF, GPS, XMP and comments, of mixed licences."""
    root = tmp_path_factory.mktemp("CanaryHome") / "run"
    exif = Image.Exif()
    for tag, name in {0x010F: "Maker", 0x0110: "Model", 0x013B: "Artist", 0x0131: "Software", 0x013C: "Host"}.items():
        exif[tag] = f"Canary{name}"
    exif.get_ifd(0x8825)[29] = "CanaryGps"
    exif.get_ifd(0x8769).update({0xA434: "CanaryLens", 0xA431: "CanarySerial"})
    rows: list[dict[str, str]] = []
    for year, thing, day in itertools.product((2010, 2011), ("car", "bus"), range(1, 9)):
        n, path = len(rows), f"CanaryFolder/{thing}/CanaryFile-{year}-{day}.jpg"
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        picture = photo([thing], 0.2, rng_for(year, thing, day))
        picture.save(root / path, exif=exif, comment=b"CanaryComment", xmp=b"<x>CanaryXmp</x>")
        row = {name: text.format(n=n) for name, text in ROW.items()}
        row |= {"path": path, "uploaded": f"{year}-05-{day:02d}", "label": thing, "licence": "", "licence_url": ""}
        row["licence_url" if n % 4 == 3 else "licence"] = LICENCES[n % 4]
        if n % 4 == 0:
            row |= {"nickname": "CanaryHidden", "url": "", "page_url": ""}
        rows.append(row)
    (root / "photos.csv").write_text(csv_text(list(rows[0]), [list(row.values()) for row in rows]))
    columns = ", ".join(f"{name}: {name}" for name in rows[0])
    source = f"{{source: delimited, path: photos.csv, root: ., columns: {{{columns}}}}}"
    text = photo_config("  per_class: 8", collection=source).replace(", own: true", "")
    (root / "driftline.yaml").write_text(text)
    return root


def test_a_release_by_default_settings_holds_what_attribution_needs_and_no_canary(mixed: Path, tmp_path: Path) -> None:
    planted = everything(mixed / "CanaryFolder", mixed) + str(mixed)
    assert [name for name in PLANTED if name not in planted] == []
    here = context(mixed)
    needs = forecast(here, plan(here))
    assert needs["without_licence"] == {"photos": 16, "of": 32}
    release = publish(mixed, "release.per_class=3")
    for name in EXPORTS:
        EXPORTS[name](release, tmp_path / "exports" / name)
    from_release(release).save(tmp_path / "exports" / "stream")
    place, pages = tmp_path / "exports" / "stream", tmp_path / "pages"
    assert evaluate(Stream.load(place), "clear-iid", ["nearest-mean"], [0], {}, out=tmp_path / "rows")
    dl.report(tmp_path / "rows", pages / "report", stream=[place])
    packed = tmp_path / "packed"
    pack([tmp_path / "rows"], "ours", packed / "ours.zip")
    dl.leaderboard([packed / "ours.zip"], stream=[place], again=1, public_value="drawn", out=pages / "board.md")
    assert "nearest-mean" in (pages / "board.md").read_text()
    assert '"protocol":' in everything(packed), "what is packed is seen, too"
    left = everything(release.path, tmp_path / "exports", tmp_path / "rows", pages, packed)
    assert [name for name in PLANTED if name in left] == []
    assert [name for name in NEEDED if name not in left] == []
    shown = release.table.to_pylist()
    assert len(shown) == 12
    assert len(pq.read_table(release.path / "unlabelled.parquet")) == 4
    assert {row["licence_url"] or row["licence"] for row in shown} == {*LICENCES[2:]}
    addresses = pq.read_table(release.path / "urls.parquet").to_pylist()
    assert [(row["page_url"], row["url"]) for row in addresses][:1] == [("http://h/NeededPage/1", None)]
    assert len(addresses) == 8, "those without an address are nowhere"
    assert "`urls.parquet` lists 8 further labelled photos" in (release.path / "README.md").read_text()


def test_asked_for_the_uploader_and_the_address_are_published_without_tokens(mixed: Path) -> None:
    sets = ("release.columns=[user, url]", "release.own=true", "release.version=2.0.0")
    rows = publish(mixed, *sets).table.to_pylist()
    assert len(rows) == 16
    assert {row["user"] for row in rows} < {f"CanaryUser{n}" for n in range(32)}
    assert {row["url"] for row in rows} < {f"http://h/{n}.jpg?w=CanaryWidth" for n in range(32)} | {None}
    assert {row["licence"] for row in rows} >= {"All rights reserved", None}


def test_unlabelled_images_are_published_by_the_same_rule(mixed: Path) -> None:
    release = publish(mixed, "release.unlabelled=images", "buckets.unlabelled=[0]", "release.version=3.0.0")
    rows = pq.read_table(release.path / "unlabelled.parquet").to_pylist()
    whole = [row for row in rows if row["sha256"] is not None]
    assert (len(rows), len(whole)) == (12, 8)
    assert {row["licence_url"] or row["licence"] for row in whole} == {*LICENCES[2:]}
    assert [name for name in PLANTED if name in everything(release.path)] == []


def test_two_photos_whose_addresses_differ_by_a_token_stay_two() -> None:
    pair = [id_of_address(f"http://h/a.jpg?size=1&token={token}") for token in ("Canary1", "Canary2")]
    assert len(set(pair)) == 2
    assert {id_.rpartition("-")[0] for id_ in pair} == {"http-h-a-jpg-size-1"}
    assert without_secrets("http://h/a?design=1&Monkey=2&keyword=x") == "http://h/a?design=1&Monkey=2&keyword=x"
    for name in ("token", "sig", "Signature", "X-Amz-Credential", "key", "auth", "password", "api_key", "X-Goog-Date"):
        assert without_secrets(f'see "http://h/a?w=1&{name}=Canary" twice') == 'see "http://h/a?w=1" twice'


def test_nothing_prints_a_token(tmp_path, capsys, monkeypatch):
    text = "http://h/a.jpg?token=Canary"
    log = RunLog(tmp_path / "log.jsonl", verbose=True)
    log.say(text)
    log.write("asked", url=text)
    show({}, text)
    monkeypatch.setattr(OUTPUT, "json", True)
    show({"url": text}, "")
    shown = capsys.readouterr()
    assert "http://h/a.jpg" in shown.out
    assert "Canary" not in shown.out + shown.err + (tmp_path / "log.jsonl").read_text() + str(BadConfig(text))


def test_an_export_of_addresses_counts_photos_without_one(first: Path, tmp_path: Path) -> None:
    done = driftline("export", str(first), "--format", "urls", "--out", str(tmp_path / "out"))
    assert (done.returncode, done.stderr.partition(",")[0]) == (0, "Warning: 18 photos have no URL")


def test_pseudonyms_of_workers_need_a_random_key_and_their_answers_are_private(tmp_path: Path) -> None:
    keys = [worker_key(tmp_path), worker_key(tmp_path), worker_key(tmp_path, make=False)]
    assert keys == [(tmp_path / KEY).read_text()] * 3
    other = tmp_path / "other"
    other.mkdir()
    throwaway = worker_key(other, make=False)
    assert list(other.iterdir()) == [], "a plan writes nothing"
    assert len({keys[0], throwaway, worker_key(other)}) == 3
    batch = {"batch": "b", "items": {"i": "photo"}, "concepts": ["car"], "workers": 1}
    store = AnswerStore(tmp_path / "annotate" / "b.sqlite", batch)
    store.answer("ann", "i", ["car"], False, 1)
    store.export(tmp_path / "answers" / "annotate-b.csv")
    modes = {
        path.relative_to(tmp_path).as_posix(): oct(path.stat().st_mode & 0o777)
        for path in tmp_path.rglob("*")
        if path.parent != other and path != other
    }
    assert {mode for name, mode in modes.items() if "/" not in name and name != KEY} == {"0o700"}
    assert {mode for name, mode in modes.items() if "/" in name or name == KEY} == {"0o600"}
