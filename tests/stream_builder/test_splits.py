"""No test sample shares an uploader or is a near-duplicate of a training sample, unless that is asked for by name."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from support.console import driftline
from support.helpers import drifting
from support.worlds import across_seeds

from driftline.curate.core.errors import BadArray, BadConfig, IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.curate.release import Release
from driftline.curate.release.selection import split_groups
from driftline.eval.protocols.clear import Iid
from driftline.eval.reporting.pages import leakage
from driftline.eval.reporting.protocols import IID
from driftline.eval.run import evaluate
from driftline.stream_builder.builders.arrays import from_arrays
from driftline.stream_builder.builders.release import from_release
from driftline.stream_builder.builders.table import in_time_order, timed_release, timed_table
from driftline.stream_builder.rows import Rows
from driftline.stream_builder.splitting import numbered
from driftline.stream_builder.stream import Split, Step, Stream


def uploads(n: int = 600, users: int = 60) -> Rows:
    """Albums: an uploader's photos in a row, and again later."""
    rng = rng_for(0, "uploads")
    user = rng.permutation(np.repeat(np.arange(users), n // users // 2)).repeat(2)
    ids = np.array([f"i{i:04d}" for i in range(n)])
    y = rng.integers(0, 3, n)
    return Rows("album", Split(rng.normal(size=(n, 4)).astype(np.float32), y, ids, np.arange(n), user), "abc")


def grouped(stream: Stream, size: int = 6) -> Stream:
    """The same, `size` neighbours of every step sharing an uploader."""
    steps = []
    for step in stream.steps:
        splits = {}
        for offset, (name, split) in enumerate(step.splits.items()):
            splits[name] = replace(split, group=(np.arange(len(split)) + 7 * offset) // size % 15 + 100 * step.index)
        steps.append(replace(step, splits=splits))
    return replace(stream, steps=steps, sha256="grouped")


class TestInOrder:
    def test_no_uploader_is_on_both_sides(self) -> None:
        stream = in_time_order(uploads(), period=5)
        assert stream.shared_with_training() == 0
        assert stream.facts["split"] == "grouped"
        held = sum(len(step["test"]) for step in stream.steps)
        assert 0.08 < held / 600 <= 0.1, "as many test samples as were asked for"

    def test_random_is_asked_for_by_name_and_says_what_it_shares(self) -> None:
        stream = in_time_order(uploads(), period=5, grouping="random")
        assert stream.facts["split"] == "random"
        assert (stream.shared_with_training() or 0) > 0.9

    def test_one_uploader_of_everything_is_an_error_with_the_way_out(self) -> None:
        alone = replace(uploads(), samples=replace(uploads().samples, group=np.zeros(600, np.int64)))
        with pytest.raises(IncompatibleStream, match=r"Step 0 of album has no test sample.*--grouping random"):
            in_time_order(alone, period=5)

    def test_a_source_without_uploaders_gives_what_it_gave(self) -> None:
        unknown = replace(uploads(), samples=replace(uploads().samples, group=None))
        assert in_time_order(unknown).shared_with_training() is None
        both = [in_time_order(unknown, grouping=split) for split in ("grouped", "random")]  # type: ignore[arg-type]
        assert both[0].flat("test").ids.tolist() == both[1].flat("test").ids.tolist()

    def test_a_table_may_name_uploaders(self, tmp_path: Path) -> None:
        lines = ["id,time,label,user", *(f"p{i},{i},cat,u{i // 4}" for i in range(40)), "q,99,dog,"]
        (tmp_path / "t.csv").write_text("\n".join(lines))
        np.save(tmp_path / "x.npy", np.zeros((41, 2), np.float32))
        data = timed_table(tmp_path / "t.csv", features=tmp_path / "x.npy")
        assert data.samples.group is not None
        assert len(set(data.samples.group.tolist())) == 11


class TestRelease:
    def test_a_release_says_which_images_belong_together(self, journey: Path) -> None:
        release = Release.open(journey)
        rows = release.table.select(["id", "user"]).to_pylist()
        ours, uploaders = release.table["group"].to_pylist(), split_groups(rows)
        assert all(len({ours[i] for i in same}) == 1 for same in positions(uploaders)), "uploaders are not torn apart"
        for name in release.facts["splits"]:
            sides = release.table[name].to_pylist()
            assert all(len({sides[i] for i in same}) == 1 for same in positions(ours))

    def test_its_stream_shares_nothing_and_says_so(self, journey: Path, tmp_path: Path) -> None:
        stream = from_release(journey).save(tmp_path / "s")
        assert stream.facts["shared_with_training"] == 0
        assert leakage(stream).verdict == "none"
        assert in_time_order(timed_release(journey), period=3).shared_with_training() == 0

    def test_any_of_its_splits_can_be_chosen(self, journey: Path, tmp_path: Path) -> None:
        release = Release.open(journey)
        done = driftline("stream", "from-release", str(journey), "--split", "1", "--out", str(tmp_path / "s"))
        assert done.returncode == 0, done.stderr
        second, first = Stream.load(tmp_path / "s"), from_release(release)
        side = dict(zip(release.table["id"].to_pylist(), release.table["split_1"].to_pylist(), strict=True))
        for name in ("train", "test"):
            assert {side[i] for i in second.flat(name).ids.tolist()} == {name}
            assert sorted(first.published(1).flat(name).ids) == sorted(second.flat(name).ids)
        with pytest.raises(BadConfig, match=r"no split 'split_9'\. Available: split_0, split_1"):
            from_release(release, split=9)

    def test_all_published_splits_run_with_all_seeds_in_one_call(self, journey: Path) -> None:
        stream = from_release(journey)
        k = stream.published_splits
        assert k == len(Release.open(journey).facts["splits"])
        protocol, seeds = Iid(splits="published"), range(2 * k)
        tests = [tuple(protocol.split(stream, rng_for(s), s).flat("test").ids.tolist()) for s in seeds]
        assert len(set(tests)) == k
        assert tests[:k] == tests[k:]
        found = evaluate(stream, protocol, ["nearest-mean"], seeds)["results"][0]
        assert found["seeds"] == list(seeds)


def positions(groups: list[str]) -> list[list[int]]:
    """Positions with the same group."""
    found: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        found.setdefault(group, []).append(i)
    return list(found.values())


class TestSeeded:
    def test_seeded_splits_keep_uploaders_together_and_random_ones_do_not(self) -> None:
        stream = grouped(drifting(n=120))
        shared = {splits: Iid(splits=splits).split(stream, rng_for(3), 3).shared_with_training() for splits in
                  ("seeded", "random")}  # fmt: skip
        assert shared["seeded"] == 0
        assert (shared["random"] or 0) > 0.9

    def test_a_seeded_split_has_the_share_of_every_step_and_class(self) -> None:
        new = grouped(drifting(n=120), size=2).resplit(0.3, rng_for(0))
        for step in new.steps:
            for label in range(3):
                n = sum((split.y == label).sum() for split in step.splits.values())
                assert abs((step["test"].y == label).sum() - 0.3 * n) <= 4, "a group has twelve samples"

    def test_results_carry_the_warning(self) -> None:
        stream = grouped(drifting(n=120))
        document = evaluate(stream, "clear-iid", ["majority"], settings={"splits": "random"})
        assert "share an uploader" in IID.note(document)
        assert document["results"][0]["told"]["shared_with_training"] > 0.9
        assert IID.note(evaluate(stream, "clear-iid", ["majority"], settings={"splits": "seeded"})) == ""

    def test_groups_that_are_too_large_are_an_error_with_the_way_out(self) -> None:
        with pytest.raises(IncompatibleStream, match=r"Step '0' of 'drifting' has no test sample.*splits=random"):
            grouped(drifting(), size=1000).resplit(0.3, rng_for(0))

    def test_published_splits_need_some(self) -> None:
        with pytest.raises(IncompatibleStream, match="has one split only"):
            evaluate(drifting(), "clear-iid", ["majority"], settings={"splits": "published"})


class TestByHand:
    def test_a_sample_without_uploader_is_a_group_of_its_own(self) -> None:
        a, none, again, other, nobody = numbered(np.array(["a", "", "a", "b", ""])).tolist()
        assert a == again
        assert len({a, none, other, nobody}) == 4

    def test_a_published_split_tests_what_its_column_says(self) -> None:
        sides = np.array([[True, False], [False, True], [False, False], [False, True]])
        x, y = np.zeros((4, 1), np.float32), np.zeros(4, np.int64)
        stream = Stream("s", [Step(0, "0", {"train": Split(x, y, np.array(list("abcd")), test_in=sides)})], ["c"])
        assert stream.published_splits == 2
        for number, (train, test) in enumerate((("bcd", "a"), ("ac", "bd"))):
            step = stream.published(number).steps[0]
            assert ["".join(step[side].ids) for side in ("train", "test")] == [train, test]

    def test_validation_counts_as_training_where_uploaders_are_shared(self) -> None:
        groups = {"train": [1, 2], "val": [3], "test": [3, 4, 1, 5]}
        splits = {
            name: Split(np.zeros((len(g), 1), np.float32), np.zeros(len(g), np.int64), group=np.array(g))
            for name, g in groups.items()
        }
        assert Stream("s", [Step(0, "0", splits)], ["c"]).shared_with_training() == 0.5


def test_groups_survive_disk_and_are_part_of_the_hash(tmp_path: Path) -> None:
    known, unknown = grouped(drifting()), drifting()
    saved = known.save(tmp_path / "known")
    assert saved.steps[1]["test"].group is not None
    assert saved.steps[1]["test"].group.tolist() == known.steps[1]["test"].group.tolist()  # type: ignore[union-attr]
    assert saved.sha256 != unknown.save(tmp_path / "unknown").sha256
    saved.verify(tmp_path / "known")
    assert saved.facts["shared_with_training"] == round(known.shared_with_training() or 0, 4) > 0.3


class TestArrays:
    def arrays(self, n: int = 120, **more: object) -> dict[str, np.ndarray]:
        rng = rng_for(0, "arrays")
        made = {"x": rng.normal(size=(n, 3)).astype(np.float32), "y": rng.integers(0, 3, n)}
        return made | {name: np.asarray(value) for name, value in more.items()}

    def test_without_a_split_one_is_drawn_and_said(self) -> None:
        made = from_arrays(self.arrays())
        assert made.facts["made"] == "a test split of 30% of every step and class, random, seed 0"
        assert abs(len(made.flat("test")) - 36) <= 2
        y = dict(enumerate(self.arrays()["y"].tolist()))
        across_seeds(lambda k: map(int, from_arrays(self.arrays(), seed=k).flat("test").ids), list(y), strata=y)
        assert "test" not in from_arrays(self.arrays(), test_share=0).steps[0].splits

    def test_with_groups_it_keeps_them_together(self) -> None:
        group = np.arange(120) // 4
        assert from_arrays(self.arrays(group=group)).shared_with_training() == 0
        assert (from_arrays(self.arrays(group=group), grouping="random").shared_with_training() or 0) > 0.5

    def test_a_given_split_is_kept_and_measured(self, tmp_path: Path) -> None:
        split = np.where(np.arange(120) % 3 == 0, "test", "train")
        np.savez(tmp_path / "a.npz", **self.arrays(group=[f"u{i // 6}" for i in range(120)], split=split))
        done = driftline("stream", "from-arrays", str(tmp_path / "a.npz"), "--out", str(tmp_path / "s"))
        assert done.returncode == 0, done.stderr
        assert "Warning: 100.0% of its test samples share an uploader" in done.stderr
        assert len(Stream.load(tmp_path / "s").flat("test")) == 40

    def test_times_without_steps_are_cut_into_periods_and_equal_times_stay_together(self, tmp_path: Path) -> None:
        time = np.repeat(np.arange(15), 8)
        made = from_arrays(self.arrays(time=time), test_share=0)
        assert 5 <= len(made.steps) <= 10
        seen = [set(step["train"].time.tolist()) for step in made.steps]  # type: ignore[union-attr]
        assert sum(map(len, seen)) == 15, "no time is in two steps"
        assert all(max(a) < min(b) for a, b in pairwise(seen))
        np.savez(tmp_path / "a.npz", **self.arrays(time=time))
        done = driftline("stream", "from-arrays", str(tmp_path / "a.npz"), "--out", str(tmp_path / "s"))
        assert "steps with about equally many samples, cut by time" in done.stdout

    def test_labels_may_be_names(self) -> None:
        names = np.array(["dog", "cat", "emu"])[np.arange(120) % 3]
        made = from_arrays(self.arrays(y=names))
        assert made.classes == ["cat", "dog", "emu"]
        assert made.steps[0]["train"].y.dtype == np.int64
        ordered = from_arrays(self.arrays(y=names, classes=["emu", "dog", "cat"]), test_share=0)
        assert ordered.steps[0]["train"].y[:3].tolist() == [1, 2, 0]
        with pytest.raises(BadArray, match=r"y is 'emu' at index 2\. Expected one of cat, dog"):
            from_arrays(self.arrays(y=names, classes=["cat", "dog"]))
