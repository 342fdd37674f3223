"""Queries from concepts; CLEAR's rules against a slow, literal implementation; the additional rules."""

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from driftline.curate.core.atomic_io import read_json
from driftline.curate.core.errors import BadConfig, Shortage
from driftline.curate.core.run_log import RunLog
from driftline.curate.embedding.vector_store import VectorStore, vector_file
from driftline.curate.retrieval.candidates import Chosen, Lookup, check_enough, choose, query_vectors
from driftline.curate.retrieval.exact_search import Ranked, search
from driftline.curate.retrieval.settings import Concept, RetrieveSettings
from driftline.pipelines.config.loader import load
from driftline.pipelines.run.runner import run
from driftline.pipelines.stages.base import Context, parts_of
from driftline.pipelines.stages.state import folder_of

NAMES = ["bus", "car", "dog"]


def settings_of(**values: Any) -> RetrieveSettings:
    concepts = [{"name": name, "prompts": [name]} for name in NAMES]
    return RetrieveSettings.model_validate({"concepts": concepts, **values})


def lists(
    scores_of: np.ndarray, x: np.ndarray, ids: list[str], folder: Path, rules: RetrieveSettings
) -> tuple[list[Ranked], list[Ranked]]:
    np.save(folder / "x.npy", np.ascontiguousarray(x))
    buckets = np.zeros(len(ids), np.int32)
    store = VectorStore((vector_file(folder / "x.npy"),), buckets, pa.chunked_array([pa.array(ids)]))
    ranked = search(store, scores_of, rules.depth, [0]).ranked
    return ranked["top"][0], ranked["bottom"][0]


def kept_ids(tops: list[Ranked], chosen: Chosen, ids: list[str], fate: str = "kept") -> list[list[str]]:
    return [
        [ids[row] for row, f in zip(top.rows, fates, strict=True) if f == fate]
        for top, fates in zip(tops, chosen.fates, strict=True)
    ]


def test_of_equal_cosines_the_earlier_concept_has_the_image(tmp_path: Path) -> None:
    x = np.array([[1, 0], [0.5**0.5, 0.5**0.5], [0, 1]], np.float32)
    queries = np.array([[1, 0], [0, 1], [1, 0]], np.float32)  # the second row is as near to all three
    rules = settings_of(per_class=1, depth=3, background_share=0)
    tops, bottoms = lists(queries, x, ["c", "b", "a"], tmp_path, rules)
    assert [top.scores[1] for top in tops] == [tops[0].scores[1]] * 3
    fates = choose(tops, bottoms, rules).fates
    assert [list(zip(top.rows.tolist(), fate, strict=True)) for top, fate in zip(tops, fates, strict=True)] == [
        [(0, "kept"), (1, "surplus"), (2, "ambiguous")],
        [(2, "kept"), (1, "ambiguous"), (0, "ambiguous")],
        [(0, "ambiguous"), (1, "ambiguous"), (2, "ambiguous")],
    ]


def literal(scores: np.ndarray, ids: list[str], rules: RetrieveSettings) -> tuple[dict[str, list[str]], list[str]]:
    """CLEAR's code, word by word: lists, overlap, then the lowest of each concept walked upwards."""
    order = [sorted(range(len(ids)), key=lambda i, c=c: (-scores[c][i], ids[i])) for c in range(len(NAMES))]  # type: ignore[misc]
    lists = [o[: rules.depth] for o in order]
    kept: dict[str, list[str]] = {}
    if rules.overlap == "highest":
        for c, name in enumerate(NAMES):
            mine = []
            for i in lists[c]:
                rivals = [scores[d][i] for d in range(len(NAMES)) if i in lists[d]]
                owner = next(d for d in range(len(NAMES)) if i in lists[d] and scores[d][i] == max(rivals))
                if owner == c:
                    mine.append(ids[i])
            kept[name] = mine[: rules.per_class]
    elif rules.overlap == "discard":
        thrown: set[int] = set()
        while True:
            current = [[i for i in one if i not in thrown][: rules.per_class] for one in lists]
            both = {i for a in range(len(NAMES)) for b in range(a) for i in current[a] if i in current[b]}
            if not both:
                break
            thrown |= both
        kept = {name: [ids[i] for i in one] for name, one in zip(NAMES, current, strict=True)}
    else:
        kept = {name: [ids[i] for i in one[: rules.per_class]] for name, one in zip(NAMES, lists, strict=True)}
    used = {i for one in kept.values() for i in one}
    ground: list[str] = []
    for c in range(len(NAMES)):
        taken = 0
        for i in sorted(range(len(ids)), key=lambda i, c=c: (scores[c][i], ids[i]))[: rules.depth]:  # type: ignore[misc]
            if taken < int(rules.per_class * rules.background_share) and ids[i] not in used:
                used.add(ids[i])
                ground.append(ids[i])
                taken += 1
    return kept, ground


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10_000), st.sampled_from(["highest", "discard", "allow"]), st.integers(2, 12), st.integers(2, 40))
def test_clears_rules_equal_their_literal_implementation(tmp_path, seed, overlap, per_class, depth):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, 5)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    asked = x[:3] + 0.3
    asked = (asked / np.linalg.norm(asked, axis=1, keepdims=True)).astype(np.float32)
    ids = [f"{i:02d}" for i in range(40)]
    rules = settings_of(per_class=per_class, depth=depth, overlap=overlap, background_share=0.5)
    tops, bottoms = lists(asked, x, ids, tmp_path, rules)
    chosen = choose(tops, bottoms, rules)
    kept, ground = literal((asked.astype(np.float64) @ x.T).astype(np.float32), ids, rules)
    assert kept_ids(tops, chosen, ids) == list(kept.values())
    assert [ids[row] for _, _, row, _ in chosen.background] == ground


def ranked(*scores: list[float]) -> list[Ranked]:
    """Lists of concepts that score the same rows 0, 1, …"""
    found = []
    for one in scores:
        order = np.argsort(-np.array(one), kind="stable")
        found.append(Ranked(order.astype(np.int64), np.array(one, np.float32)[order]))
    return found


def fates(tops: list[Ranked], rules: RetrieveSettings, lookup: Lookup | None = None) -> list[dict[int, str]]:
    chosen = choose(tops, [], rules, lookup)
    return [dict(zip(t.rows.tolist(), f, strict=True)) for t, f in zip(tops, chosen.fates, strict=True)]


def test_discarded_images_are_replaced_by_the_next() -> None:
    tops = ranked([0.9, 0.3, 0.2, 0.0], [0.9, 0.0, 0.1, 0.3])
    p, q = fates(tops, settings_of(per_class=1, depth=4, overlap="discard", background_share=0))
    assert (p[1], q[3]) == ("kept", "kept")
    assert (p[0], q[0]) == ("ambiguous", "ambiguous")


class TestAdditionalRules:
    rules = settings_of(per_class=2, depth=4, background_share=0)

    def test_images_above_the_maximum_of_an_uploader_are_replaced(self) -> None:
        lookup = Lookup(users=lambda rows: [["ann", "ann", None, None][r] for r in rows])
        found = fates(ranked([0.9, 0.8, 0.7, 0.6]), self.rules.model_copy(update={"per_user": 1}), lookup)
        assert found == [{0: "kept", 1: "user_cap", 2: "kept", 3: "surplus"}]

    def test_photos_without_uploader_do_not_count_as_one_uploader(self) -> None:
        lookup = Lookup(users=lambda rows: [None] * len(rows))
        found = fates(ranked([0.9, 0.8, 0.7, 0.6]), self.rules.model_copy(update={"per_user": 1}), lookup)
        assert list(found[0].values()).count("kept") == 2

    def test_which_part_of_the_time_has_one_image_more_is_drawn(self) -> None:
        rules = self.rules.model_copy(update={"per_class": 1, "strata": 2})
        of_all = [fates(ranked([0.9, 0.8]), rules, Lookup(strata=lambda rows: rows, bucket=b))[0] for b in range(20)]
        assert {row for found in of_all for row, fate in found.items() if fate == "kept"} == {0, 1}

    def test_a_near_copy_is_replaced(self) -> None:
        x = np.array([[1, 0], [0.999, 0.04], [0, 1], [0, 1]], np.float32)
        found = fates(
            ranked([0.9, 0.8, 0.7, 0.6]),
            self.rules.model_copy(update={"near_copy_cosine": 0.99}),
            Lookup(vectors=lambda rows: x[rows]),
        )
        assert found == [{0: "kept", 1: "near_copy", 2: "kept", 3: "surplus"}]

    def test_a_score_close_to_that_of_another_concept_is_replaced(self) -> None:
        both = np.array([[0.9, 0.2], [0.8, 0.79], [0.7, 0.1], [0.6, 0.0]], np.float32)
        tops = ranked(both[:, 0].tolist(), both[:, 1].tolist())
        first, _ = fates(tops, self.rules.model_copy(update={"margin": 0.05}), Lookup(scores=lambda rows: both[rows]))
        assert first == {0: "kept", 1: "small_margin", 2: "kept", 3: "surplus"}


class Words:
    """Texts as counts of letters, which show what is averaged."""

    def texts(self, texts: Sequence[str]) -> np.ndarray:
        rows = np.array([[t.count(c) + 1e-3 for c in "abcd"] for t in texts], np.float32)
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_prompts_in_templates_are_one_query_and_subcategories_further_ones() -> None:
    concept = Concept(name="x", prompts=("a", "b"), templates=("{}", "c {}"), subcategories=("d",))
    assert concept.texts() == [["a", "c a", "b", "c b"], ["d", "c d"]]
    found, first = query_vectors(Words(), [concept, Concept(name="y", prompts=("b",))])  # type: ignore[arg-type]
    assert first == [0, 2]
    mean = Words().texts(["a", "c a", "b", "c b"]).mean(0)
    assert np.allclose(found[0], mean / np.linalg.norm(mean), atol=1e-6)


def test_negatives_move_the_query_away() -> None:
    plain, away = (
        query_vectors(Words(), [Concept(name="x", prompts=("a b",), negatives=n)])[0][0]  # type: ignore[arg-type]
        for n in ((), ("b",))
    )
    assert away[1] < plain[1]
    assert np.isclose(np.linalg.norm(away), 1)


def test_a_shortage_is_an_error_with_a_table() -> None:
    with pytest.raises(Shortage, match=r"bucket\s+2009  bus\s+3 of 5[\s\S]*Lower"):
        check_enough({("2009", "bus"): 3, ("2010", "bus"): 5}, {"bus": 5}, "Too few", "Lower it.")


# ---- the retrieve stage


@pytest.fixture
def retrieved(journey: Path, tmp_path: Path):  # type: ignore[no-untyped-def]
    """Run the stage again with other settings; returns the run folder."""

    def again(*changes: str) -> Path:
        out = tmp_path / "run"
        shutil.copytree(journey, out, ignore=shutil.ignore_patterns("runs", "stream", "report", "world"), symlinks=True)
        (out / "world").symlink_to(journey / "world")
        changed = load(out / "driftline.yaml", changes)
        run(Context(out, changed, RunLog(out / "log.jsonl", quiet=True)), until="retrieve")
        return out

    return again


def rows_of(folder: Path, fate: str = "kept") -> list[dict[str, object]]:
    table = pq.read_table(folder_of(folder, "retrieve") / "candidates.parquet", filters=[("fate", "=", fate)])
    return list(table.to_pylist())


def test_no_uploader_has_more_than_the_cap(retrieved) -> None:  # type: ignore[no-untyped-def]
    folder = retrieved("retrieve.per_user=1")
    table = pq.read_table(parts_of(folder_of(folder, "filter")), columns=["id", "user"])
    user = dict(zip(table["id"].to_pylist(), table["user"].to_pylist(), strict=True))
    kept = Counter((r["bucket"], r["concept"], user[r["id"]]) for r in rows_of(folder))
    assert max(kept.values()) == 1
    assert rows_of(folder, "user_cap")


def test_margins_parts_and_copies_have_their_fates_and_the_counts_balance(retrieved) -> None:  # type: ignore[no-untyped-def]
    folder = retrieved("retrieve.margin=0.05", "retrieve.strata=4", "retrieve.near_copy_cosine=0.995")
    fates = Counter(
        pq.read_table(folder_of(folder, "retrieve") / "candidates.parquet", columns=["fate"])["fate"].to_pylist()
    )
    assert fates["small_margin"] > 0
    assert fates["near_copy"] > 0
    counts = read_json(folder_of(folder, "retrieve") / "done.json")["counts"]
    assert counts["read"] == counts["kept"] + sum(counts["dropped"].values())


def test_a_prompt_that_is_cut_is_said(retrieved) -> None:  # type: ignore[no-untyped-def]
    long = "a photo of a bus " + "beside a car " * 20
    concepts = json.dumps([{"name": "bus", "prompts": [long]}])
    folder = retrieved(f"retrieve.concepts={concepts}")
    assert "does not read the end of a prompt" in (folder / "log.jsonl").read_text()


def test_two_concepts_with_the_same_prompts_are_refused_before_any_work(journey: Path) -> None:
    same = json.dumps(["a bus", {"name": "coach", "prompts": ["bus"], "templates": ["a {}"]}])
    with pytest.raises(BadConfig, match="'a bus' and 'coach' have the same prompts"):
        load(journey / "driftline.yaml", [f"retrieve.concepts={same}"])


def test_a_file_of_concepts_that_is_not_there_is_named(journey: Path) -> None:
    with pytest.raises(Exception, match=r"There is no file .*nowhere\.yaml"):
        load(journey / "driftline.yaml", ["retrieve.concepts=nowhere.yaml"])
