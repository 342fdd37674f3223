"""A release from elsewhere: nothing is written outside the output folder, and damage is one sentence with the file."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.console import inside

from driftline.curate.core.errors import BadInput, IntegrityError
from driftline.curate.export import EXPORTS
from driftline.curate.release import Release
from driftline.curate.release.compose import seal


@pytest.fixture
def folder(journey: Path, tmp_path: Path) -> Path:
    """A copy of a release, which the test makes hostile."""
    shutil.copytree(Release.open(journey).path, tmp_path / "world" / "release")
    return tmp_path / "world" / "release"


def edit(folder: Path, change: Callable[[dict], object]) -> None:
    """Change release.json and seal the release again, as an attacker would."""
    document = json.loads((folder / "release.json").read_text())
    change(document)
    (folder / "release.json").write_text(json.dumps(document))
    seal(folder)


def column(folder: Path, name: str, value: object) -> None:
    """Put a value into the first row of metadata.parquet, and seal the release again."""
    table = pq.read_table(folder / "metadata.parquet")
    values = [value, *table[name].to_pylist()[1:]]
    position = table.schema.get_field_index(name)
    pq.write_table(table.set_column(position, name, pa.array(values)), folder / "metadata.parquet")
    seal(folder)


def escape(folder: Path) -> None:
    """A file outside that exists and matches its checksum."""
    (folder.parent / "evil.txt").write_text("evil")
    digest = hashlib.sha256(b"evil").hexdigest()
    with (folder / "SHA256SUMS").open("a") as file:
        file.write(f"{digest}  ../evil.txt\n")


HOSTILE: dict[str, Callable[[Path], object]] = {
    "a name with .. in SHA256SUMS": escape,
    "the index of a bucket as text": lambda f: edit(f, lambda d: d["buckets"][0].update(index="../../../../evil")),
    "a negative index": lambda f: edit(f, lambda d: d["buckets"][0].update(index=-1)),
    "features of another folder": lambda f: edit(f, lambda d: d.update(features=["../../evil"])),
    "absolute features": lambda f: edit(f, lambda d: d.update(features=["/tmp/evil"])),
    "a split with a path": lambda f: edit(f, lambda d: d.update(splits=["split_0/../../evil"])),
    "a member with a path": lambda f: column(f, "member", "../../../evil.jpg"),
    "a shard with a path": lambda f: column(f, "shard", "../../evil.tar"),
    "no shard": lambda f: column(f, "shard", None),
    "labels as text": lambda f: edit(f, lambda d: d.update(classes="abc")),
    "no provenance": lambda f: edit(f, lambda d: d.pop("provenance")),
}


@pytest.mark.parametrize("attack", HOSTILE)
def test_nothing_is_written_outside(attack: str, folder: Path, tmp_path: Path) -> None:
    HOSTILE[attack](folder)
    world = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    out = tmp_path / "deep" / "er" / "out"
    done = inside("export", folder, "--format", ",".join(EXPORTS), "--out", out)
    assert done.returncode == 1
    assert str(folder) in done.stderr.replace("\n", "")
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and out not in path.parents}
    assert after == world


def test_the_exporter_itself_joins_no_foreign_name(folder: Path, tmp_path: Path) -> None:
    release = Release.open(folder)
    escape(folder)
    with pytest.raises(IntegrityError, match=r"SHA256SUMS names the file '\.\./evil\.txt'"):
        EXPORTS["webdataset"](release, tmp_path / "deep" / "out")
    assert not (tmp_path / "deep" / "evil.txt").exists()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("bucket", lambda values: [99, *values[1:]], r"has 1 images of '.*' in bucket 99, release\.json says 0"),
        ("label", lambda values: [(values[0] + 1) % 3, *values[1:]], r"has the label \d+ for the class"),
        ("id", lambda values: [values[1], *values[1:]], r"has (\d+) rows, but (\d+) different id"),
        ("member", lambda values: [values[1], *values[1:]], r"has (\d+) rows, but (\d+) different shard and member"),
        *((name, lambda values: [None, *values[1:]], rf"has the {name} None in row 1")
          for name in ("id", "bucket", "class", "label", "uploaded", "group", "split_0")),
        ("split_0", lambda values: [*values[:2], "Test", *values[3:]], "has the split_0 'Test' in row 3"),
    ],
)  # fmt: skip
def test_metadata_of_other_counts_are_refused_with_both(folder, name, change, message):
    """Else the formats would hold different numbers of images."""
    table = pq.read_table(folder / "metadata.parquet")
    position = table.schema.get_field_index(name)
    values = pa.array(change(table[name].to_pylist()), table.schema.field(name).type)
    pq.write_table(table.set_column(position, name, values), folder / "metadata.parquet")
    seal(folder)
    with pytest.raises(IntegrityError, match=message):
        Release.open(folder)


def test_counts_of_release_json_are_those_of_the_images(folder: Path) -> None:
    def one_more(document: dict) -> None:
        bucket = next(iter(document["per_class"]))
        name = next(iter(document["per_class"][bucket]))
        document["per_class"][bucket][name] += 1

    edit(folder, one_more)
    with pytest.raises(IntegrityError, match=r"has (\d+) images of .* release\.json says (\d+)"):
        Release.open(folder)


def test_links_are_refused(folder: Path) -> None:
    card = folder / "README.md"
    card.rename(folder.parent / "README.md")
    card.symlink_to(folder.parent / "README.md")
    with pytest.raises(IntegrityError, match=r"README\.md.*link"):
        Release.open(folder).verify()


@pytest.mark.parametrize(
    "line", [b"\xff\xfe\n", b"nonsense\n", b"0" * 64 + b"  \xff\n", b"0" * 64 + b"  \n", b"\x00\n"]
)
def test_damaged_checksums_are_named_by_line(folder: Path, line: bytes) -> None:
    sums = folder / "SHA256SUMS"
    sums.write_bytes(line + sums.read_bytes())
    with pytest.raises(IntegrityError, match=r"SHA256SUMS, line 1"):
        Release.open(folder).verify()


def test_a_release_that_is_no_longer_one_is_named(folder: Path) -> None:
    (folder / "release.json").write_text("[]")
    with pytest.raises(BadInput, match=r"release\.json: the document is \[\]"):
        Release.open(folder)
    (folder / "release.json").write_text("[" * 100_000)
    with pytest.raises(BadInput, match=r"release\.json"):
        Release.open(folder)
