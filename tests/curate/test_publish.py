"""Publishing: n images per class and bucket, splits that keep uploaders together, a release that can be verified; and
what seeds decide. Bounds are five standard errors."""

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
from driftline.curate.core.group_split import count_groups, draw_sides, too_large
from driftline.curate.core.seeding import rng_for
from driftline.curate.release import Release
from driftline.curate.release.selection import all_splits, gaps_of, select, split_groups, split_sides
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


def animals(n: int = 20, sizes: tuple[int, ...] = (1,)) -> list[dict[str, Any]]:
    """n images of each of two classes in one bucket; uploaders have as many images as `sizes` says, in turns."""
    users = np.repeat(np.arange(2 * n), np.resize(sizes, 2 * n))
    return [
        {"id": f"{name}{i:02}", "bucket": 1, "concept": name, "user": f"u{users[k * n + i]}"}
        for k, name in enumerate(("zebra", "ant"))
        for i in range(n)
    ]


def test_images_of_the_version_before_are_selected_first() -> None:
    before, rules = ("zebra03", "zebra19", "ant00", "ant07"), ReleaseSettings(per_class=10)
    for seed in range(20):
        chosen = select(animals(), [1], ["zebra", "ant"], rules, seed, before)
        assert set(before) <= {row["id"] for row in chosen}


def test_near_copies_of_several_uploaders_are_on_one_side() -> None:
    some = animals(40)
    copies = np.arange(80) // 2 * 2
    groups = split_groups(some, copies)
    assert len(set(groups)) == 40
    for seed in range(5):
        sides = split_sides(some, groups, 0.3, seed, 0)
        assert sides[::2] == sides[1::2]


def test_a_group_is_named_by_its_smallest_id() -> None:
    assert set(split_groups(animals(6, (3,)))) == {"zebra00", "zebra03", "ant00", "ant03"}


def test_groups_keep_the_side_that_is_known() -> None:
    some = animals(40, (1, 2, 3))
    groups = split_groups(some)
    known = {g: "test" if k % 3 == 0 else "train" for k, g in enumerate(sorted(set(groups))[::2])}
    for seed in range(5):
        sides = dict(zip(groups, split_sides(some, groups, 0.3, seed, 0, known), strict=True))
        assert all(sides[g] == side for g, side in known.items())


def test_a_class_without_tests_equal_splits_and_large_groups_are_said() -> None:
    some = [{**r, "user": "all zebras" if r["concept"] == "zebra" else None} for r in animals()]
    groups = split_groups(some)
    splits = all_splits(some, groups, ReleaseSettings(splits=2), 0)
    large, untested = gaps_of(some, groups, splits, 0.3)
    assert large.startswith("20 of 40 images train in every split")
    assert large.endswith("too large to be tested: 1.")
    assert untested == "The class 'zebra' has no test image in split_0, split_1."
    same = gaps_of(some, groups, {"a": splits["split_0"], "b": splits["split_0"]}, 0.3)
    assert same[-1] == "These splits are the same draw: a and b."


def test_half_an_image_is_tested_every_other_time() -> None:
    cell = np.zeros(10, np.int64)
    tested = [int(draw_sides((cell,), np.arange(10), 0.25, rng_for(seed)).sum()) for seed in range(400)]
    assert set(tested) == {2, 3}
    assert abs(np.mean(tested) - 2.5) < 5 * 0.5 / 20


def test_groups_of_rare_sizes_are_tested_about_as_often_as_others() -> None:
    group = np.repeat(np.arange(43), [11, 5, 2, *[1] * 40])
    sides = [draw_sides((np.zeros(58),), group, 0.3, rng_for(seed)) for seed in range(100)]
    often = np.sum(sides, axis=0)
    assert all(10 <= often[np.searchsorted(group, g)] <= 55 for g in range(3))


def test_a_group_is_too_large_from_one_image_more_than_the_tests_on() -> None:
    for size, large in ((30, False), (31, True)):
        group = np.repeat(np.arange(101 - size), [size, *[1] * (100 - size)])
        assert too_large(count_groups((np.zeros(100),), group), 0.3)[0] == large
