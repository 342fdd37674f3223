"""Publishing: n images per class and bucket, splits that keep uploaders together, a release that can be verified."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.helpers import release_of
from support.worlds import CLASSES as NAMES
from support.worlds import across_seeds, heavy_groups, permuted

from driftline.curate.core.errors import IntegrityError, MissingFile, Shortage, UnknownName
from driftline.curate.release import Release
from driftline.curate.release.selection import select, split_groups, split_sides
from driftline.curate.release.settings import ReleaseSettings

CLASSES = ["background", "bus"]
BUCKETS = [{"index": 1, "name": "1", "start": None, "end": None}, {"index": 2, "name": "2", "start": None, "end": None}]


def accepted(n: int) -> list[dict[str, Any]]:
    return [
        {"id": f"{b}-{c}-{i}", "bucket": b, "concept": c, "user": None, "uploaded": i, "licence": None, "sha256": "x"}
        for b in (1, 2) for c in CLASSES for i in range(n)
    ]  # fmt: skip


def made(folder: Path) -> Release:
    rows = select(accepted(12), [1, 2], CLASSES, ReleaseSettings(per_class=10), 0)
    images = {r["id"]: (r["id"].encode(), "jpg") for r in rows}
    rows = [{**r, "title": "<script>x</script>", "creator": "=1+1"} for r in rows]
    provenance = {
        "driftline": "0", "notice": "", "source": "yfcc", "seed": 0, "encoder": {"model": "m", "fingerprint": "f" * 64},
        "prompts": {"bus": ["a | bus"]}, "validation": {"method": "crowd", "workers": 3, "agree": 2, "rule": "exact"},
        "counts": {"ingest": {"read": 9, "kept": 8, "dropped": {"not_utf8": 1}}}, "judgement": None,
    }  # fmt: skip
    vectors = np.arange(len(rows) * 2, dtype=np.float16).reshape(-1, 2)
    rules = ReleaseSettings(name="tiny", per_class=10)
    return release_of(rows, images, vectors, BUCKETS, CLASSES, provenance, folder, rules, shard_images=15)


def cells_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {row["id"]: (row["bucket"], row["concept"]) for row in rows}


def test_a_choice_of_n_per_class_and_bucket_is_any_of_its_photos() -> None:
    rows, rules = heavy_groups().rows(), ReleaseSettings(per_class=9, short="fewer")

    def chosen(seed: int) -> list[str]:
        return [row["id"] for row in select(rows, range(4), NAMES, rules, seed)]

    cells = cells_of(rows)
    assert Counter(cells[id_] for id_ in chosen(0)) == {c: min(9, n) for c, n in Counter(cells.values()).items()}
    for other in permuted(rows):
        assert [row["id"] for row in select(other, range(4), NAMES, rules, 0)] == chosen(0)
        assert {row["id"] for row in select(other, range(4), NAMES[::-1], rules, 0)} == set(chosen(0))
    across_seeds(chosen, list(cells), strata=cells)


def test_the_order_of_a_release_within_its_buckets_is_a_draw() -> None:
    rows = heavy_groups().rows()
    everything = ReleaseSettings(per_class=900, short="fewer")

    def first_half(seed: int) -> set[str]:
        order = [row["id"] for row in select(rows, range(4), NAMES, everything, seed) if row["bucket"] == 2]
        return set(order[: len(order) // 2])

    across_seeds(first_half, [row["id"] for row in rows if row["bucket"] == 2])


def test_too_few_images_are_an_error_unless_fewer_is_set() -> None:
    rows = [r for r in accepted(12) if r["id"] not in ("1-bus-0", "1-bus-1", "1-bus-2")]
    with pytest.raises(Shortage, match=r"bucket\s+1  bus\s+9 of 10[\s\S]*release\.per_class"):
        select(rows, [1, 2], CLASSES, ReleaseSettings(per_class=10), 0)
    fewer = select(rows, [1, 2], CLASSES, ReleaseSettings(per_class=10, short="fewer"), 0)
    assert Counter(r["concept"] for r in fewer if r["bucket"] == 1) == {"bus": 9, "background": 10}
    none = [r for r in rows if not (r["bucket"] == 2 and r["concept"] == "bus")]
    for short in ("fewer", "reopen"):
        without = select(none, [1, 2], CLASSES, ReleaseSettings(per_class=10, short=short), 0)
        assert Counter(r["concept"] for r in without if r["bucket"] == 2) == {"background": 10}


@pytest.mark.parametrize("what", ["seeds", "numbers"])
def test_splits_of_other_seeds_and_numbers_are_independent(what: str) -> None:
    """Uploaders of one photo, in a world of heavy ones; equally likely in a bucket and class. An uploader of a third of
    all is never tested, nor is the only one of a class."""
    rows = heavy_groups().rows()
    group = split_groups(rows)
    size = Counter(row["user"] for row in rows)

    def tested(k: int) -> set[str]:
        seed, number = (k, 0) if what == "seeds" else (0, k)
        sides = split_sides(rows, group, 0.3, seed, number)
        users = {row["user"] for row, side in zip(rows, sides, strict=True) if side == "test"}
        assert not users & {"u0", "u1"}
        return {row["id"] for row, side in zip(rows, sides, strict=True) if side == "test" and size[row["user"]] == 1}

    alone = [row for row in rows if size[row["user"]] == 1]
    across_seeds(tested, [row["id"] for row in alone], strata=cells_of(alone))


def test_a_split_does_not_depend_on_the_order_of_rows() -> None:
    rows = heavy_groups().rows()

    def sides(of: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        return dict(zip((row["id"] for row in of), split_sides(of, split_groups(of), 0.3, 0, 0), strict=True))

    first = sides(rows)
    assert set(first.values()) == {"train", "test"}
    for other in permuted(rows):
        assert sides(other) == first


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3), st.sampled_from(CLASSES)), min_size=1, max_size=60),
    st.integers(0, 99),
)
def test_no_uploader_is_on_both_sides_and_none_alone_is_all_that_trains(photos, seed):
    rows = [
        {"id": str(i), "user": f"u{u}" if u else None, "bucket": b, "concept": c} for i, (u, b, c) in enumerate(photos)
    ]
    sides = split_sides(rows, split_groups(rows), 0.3, seed, 0)
    of_user: dict[str, set[str]] = {}
    for row, side in zip(rows, sides, strict=True):
        if row["user"]:
            of_user.setdefault(row["user"], set()).add(side)
    assert all(len(s) == 1 for s in of_user.values())
    for column in ("bucket", "concept"):
        for value in {row[column] for row in rows}:
            users = {row["user"] or row["id"] for row in rows if row[column] == value}
            tested = [side == "test" for row, side in zip(rows, sides, strict=True) if row[column] == value]
            assert len(users) > 1 or not any(tested), "one uploader of a whole bucket or class is not tested"


class TestRelease:
    def test_images_and_features_are_in_the_order_of_the_table(self, tmp_path: Path) -> None:
        release = made(tmp_path / "r")
        release.verify()
        assert [i for i, _ in release.images()] == release.table["id"].to_pylist()
        assert all(data == i.encode() for i, data in release.images(bucket=2))
        some = set(release.table["id"].to_pylist()[1::3])
        assert {i for i, _ in release.images(ids=some)} == some
        assert release.features("clip")[3].tolist() == [6.0, 7.0]
        with pytest.raises(UnknownName, match="Available: clip"):
            release.features("moco")

    def test_the_same_input_gives_the_same_bytes(self, tmp_path: Path) -> None:
        made(tmp_path / "a")
        made(tmp_path / "b")
        a, b = (
            sorted((p.relative_to(tmp_path / n), p.read_bytes()) for p in (tmp_path / n).rglob("*") if p.is_file())
            for n in "ab"
        )
        assert a == b

    def test_a_tampered_shard_is_named(self, tmp_path: Path) -> None:
        release = made(tmp_path / "r")
        shard = tmp_path / "r" / "shards" / "bucket_01-00000.tar"
        shard.write_bytes(shard.read_bytes().replace(b"1-bus-", b"1-BUS-"))
        with pytest.raises(IntegrityError, match=r"bucket_01-00000\.tar"):
            release.verify()
        with pytest.raises(IntegrityError):
            list(release.images())

    def test_parts_of_two_releases_are_refused(self, tmp_path: Path) -> None:
        made(tmp_path / "r")
        facts = json.loads((tmp_path / "r" / "release.json").read_text())
        (tmp_path / "r" / "release.json").write_text(json.dumps(facts | {"images": 7}))
        with pytest.raises(IntegrityError, match="40 rows.*says 7"):
            Release.open(tmp_path / "r")

    def test_an_unfinished_release_is_refused(self, tmp_path: Path) -> None:
        release = made(tmp_path / "r")
        (tmp_path / "r" / "SHA256SUMS").unlink()
        with pytest.raises(MissingFile, match="not finished"):
            release.verify()
        with pytest.raises(MissingFile, match=r"no release\.json"):
            Release.open(tmp_path / "r" / "shards")

    def test_the_card_has_facts_and_notes_missing_sections(self, tmp_path: Path) -> None:
        made(tmp_path / "r")
        card = (tmp_path / "r" / "README.md").read_text()
        assert "| ingest | 9 | 8 | not\\_utf8 1 |" in card
        assert "a \\| bus" in card
        assert "**People.** *Not written yet" in card
        import yaml

        head = yaml.safe_load(card.split("---")[1])
        assert head["configs"][0]["data_files"][0]["split"] == "bucket_01"
