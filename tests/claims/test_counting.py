"""28: one counting of photos: a miss keeps its reason through an outage, and every command counts the same."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.console import answer as console
from support.living import LOOSE, Town, context, counted, linked_copy, requests

from driftline.curate.core.errors import Unfinished
from driftline.curate.core.parsing import best_of
from driftline.curate.fetch import native
from driftline.curate.fetch.outcome import Download
from driftline.curate.release import Release
from driftline.curate.validation.answers.verdicts import BEST
from driftline.pipelines.run.living import grow, heal
from driftline.pipelines.run.run_folder import open_collection
from driftline.pipelines.run.runner import run, status
from driftline.pipelines.stages.photos import MEANING, dropped, trace
from driftline.pipelines.stages.state import folder_of


@pytest.fixture(scope="module")
def fetched_once(town: Town, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run up to fetch, while the server answers; not to be changed."""
    return town.built(tmp_path_factory.mktemp("fetched"), 60, "fetch")


@pytest.fixture
def fetched(fetched_once: Path, tmp_path: Path) -> Path:
    return linked_copy(fetched_once, tmp_path / "run")


def misses(root: Path) -> dict[str, str]:
    """Id → reason of the photos without an image."""
    rows = pq.read_table(folder_of(root, "fetch") / "index.parquet", columns=["id", "fault"]).to_pylist()
    return {row["id"]: row["fault"] for row in rows if row["fault"] is not None}


class TestOutages:
    """The server is off: nothing is new, and nothing that was known is lost."""

    def test_misses_of_other_limits_keep_what_the_server_said(self, fetched: Path) -> None:
        before = misses(fetched)
        assert len(set(before.values())) > 1
        for edge in (2, 3):  # two outages, one after another
            run(context(fetched, f"fetch.min_edge={edge}"), until="fetch")
            assert misses(fetched) == before

    @pytest.mark.parametrize("store", [True, False])
    def test_misses_that_are_asked_again_keep_their_reason_and_their_history(self, fetched, town, store):
        before = misses(fetched)
        gone, reason = next(iter(before.items()))
        changes = () if store else ("store.use=false",)
        found = heal(context(fetched, *changes), sorted(set(before.values())))
        assert misses(fetched) == before
        assert (found["healed"], found["asked"]) == (0, 0)
        (event,) = [e for e in trace(fetched, gone)["events"] if e["stage"] == "fetch"]
        assert [attempt["got"] for attempt in event["attempts"]] == [reason], "an outage is no answer"
        with counted(town) as counts:  # the server is back
            assert heal(context(fetched, *changes), [reason])["healed"] == 0
        assert requests(counts) >= Counter(before.values())[reason]

    def test_a_run_that_grows_keeps_what_it_knows_and_waits_for_what_is_new(self, town: Town, tmp_path: Path) -> None:
        root = town.run(tmp_path / "run", 30, LOOSE)
        with counted(town):
            grow(context(root), until="fetch")
        before = misses(root)
        town.write(root, 60)
        with pytest.raises(Unfinished, match="an outage, not a result"):
            grow(context(root), until="fetch")
        with counted(town):
            grow(context(root), until="fetch")
        after = misses(root)
        assert before.items() <= after.items()
        assert "connection_failed" not in after.values()

    def test_an_image_that_a_lost_network_hid_is_still_in_the_store(self, fetched: Path, town: Town) -> None:
        """One host of many is off while all is asked again on purpose: few enough to be accepted as misses."""
        before = misses(fetched)
        ids = pq.read_table(folder_of(fetched, "fetch") / "index.parquet")["id"].to_pylist()
        hidden = next(id_ for id_ in ids if id_ not in before)
        with counted(town), pytest.MonkeyPatch.context() as patch:
            lose(patch, hidden)
            run(context(fetched), start="fetch", until="fetch")
        assert misses(fetched) == before | {hidden: "connection_failed"}
        assert heal(context(fetched), ["connection_failed"])["healed"] == 1, "without a server"
        assert misses(fetched) == before


def lose(patch: pytest.MonkeyPatch, id_: str) -> None:
    """No connection for one photo."""
    ask = native._ask

    async def asking(session: Any, url: str, *rest: Any) -> Any:
        if id_ in url:
            return Download(None, "connection_failed", "refused")
        return await ask(session, url, *rest)

    patch.setattr(native, "_ask", asking)


class TestEveryCommandCountsTheSame:
    def test_what_was_read_was_kept_or_dropped_and_each_stage_reads_what_the_one_before_kept(self, every_drop):
        counts = [entry["counts"] for entry in status(context(every_drop))]
        for now, following in zip(counts, [*counts[1:], None], strict=True):
            assert now["read"] == now["kept"] + sum(now["dropped"].values())
            assert following is None or following["read"] == now["kept"]

    def test_the_run_has_every_kind_of_drop(self, every_drop: Path) -> None:
        reasons = {e["stage"]: set(e["counts"]["dropped"]) for e in status(context(every_drop))}
        assert all(reasons[name] for name in ("ingest", "filter", "fetch", "bucket", "retrieve", "tally"))
        assert [r for name in reasons for r in reasons[name] - MEANING.get(name, {}).keys()] == []
        assert {"duplicate_id", "unlabelled_bucket", "not_retrieved"} <= set().union(*reasons.values())
        asked = pq.read_table(folder_of(every_drop, "tally") / "asked.parquet", columns=["id", "round"]).to_pylist()
        assert max(row["round"] for row in asked) > 1

    def test_a_photo_that_is_asked_for_two_concepts_is_one_photo_with_its_best_verdict(self) -> None:
        verdicts = pa.table({"id": ["a", "b", "a", "b"], "decision": ["wrong_concept", "pending", "kept", "unsure"]})
        best = best_of(verdicts, "decision", BEST).to_pylist()
        assert {row["id"]: row["decision"] for row in best} == {"a": "kept", "b": "unsure"}

    def test_dropped_lists_what_status_counts(self, every_drop: Path) -> None:
        listed: dict[str, Counter[str]] = {}
        for row in console("status", str(every_drop), "--dropped", "--json")["dropped"]:
            listed.setdefault(row["stage"], Counter())[row["reason"]] += 1
        for entry in console("status", str(every_drop), "--json")["stages"]:
            assert listed.get(entry["stage"], {}) == entry["counts"]["dropped"], entry["stage"]

    def test_browse_shows_the_same_and_every_photo_has_one_outcome(self, every_drop: Path) -> None:
        entries = status(context(every_drop))
        wanted = Counter({f"{e['stage']}: {k}": n for e in entries for k, n in e["counts"]["dropped"].items()})
        rows = open_collection(every_drop).rows("SELECT reason, outcome, count(*) FROM photos GROUP BY ALL")
        assert Counter({reason: n for reason, _, n in rows if reason is not None}) == wanted
        assert {outcome: n for reason, outcome, n in rows if reason is None} == {
            "in the release": entries[-1]["counts"]["kept"]
        }

    def test_a_dropped_record_has_no_vector_bucket_decision_or_place_of_the_photo_whose_id_it_has(self, every_drop):
        collection, late = open_collection(every_drop), "reason LIKE 'filter: %'"
        assert collection.rows(f"SELECT count(*) FROM photos WHERE {late}")[0][0] > 0
        mine = "vector IS NULL AND bucket IS NULL AND decision IS NULL AND shard IS NULL"
        assert collection.rows(f"SELECT id FROM photos WHERE {late} AND NOT ({mine})") == []

    def test_each_vector_belongs_to_one_photo(self, every_drop: Path, tmp_path: Path) -> None:
        """Where a published photo is ingested once more, as a record that filter drops."""
        run = Path(shutil.copytree(every_drop, tmp_path / "run", ignore=shutil.ignore_patterns("*.tar", "*.jpg")))
        part = sorted(folder_of(run, "ingest").glob("table/*.parquet"))[0]
        table = pq.read_table(part)
        published = Release.open(run).table["id"].to_pylist()
        at = next(i for i, id_ in enumerate(table["id"].to_pylist()) if id_ in published)
        again = table.slice(at, 1).set_column(table.schema.get_field_index("row"), "row", pa.array([10**6], pa.int64()))
        pq.write_table(pa.concat_tables([table, again.cast(table.schema)]), part)
        reject = {"id": again["id"], "row": pa.array([10**6], pa.int64()), "reason": ["duplicate_id"]}
        pq.write_table(pa.table(reject), folder_of(run, "filter") / "rejects" / "part-twin.parquet")
        _, rows = open_collection(run).vector_rows()
        assert len(set(rows.tolist())) == len(rows)

    def test_trace_ends_where_dropped_says(self, every_drop: Path) -> None:
        lost = {row["id"]: row for row in dropped(every_drop) if row["id"] is not None and row["stage"] != "filter"}
        for id_, row in lost.items():
            assert trace(every_drop, id_)["ended"] == f"It was dropped at {row['stage']}: {row['reason']}."
        published = Release.open(every_drop).table["id"].to_pylist()
        assert not lost.keys() & set(published)
        assert {trace(every_drop, id_)["ended"] for id_ in published} == {"It is in the release."}

    def test_the_plan_counts_as_status_does(self, every_drop: Path) -> None:
        counts = {e["stage"]: e["counts"] for e in status(context(every_drop))}
        assert console("plan", str(every_drop), "--json")["photos"]["expected"] == counts["fetch"]["kept"]

    def test_vectors_that_are_missing_are_listed(self, every_drop: Path, tmp_path: Path) -> None:
        root = linked_copy(every_drop, tmp_path / "run")
        given = tmp_path / "given"
        shutil.copytree(folder_of(every_drop, "embed") / "img_emb", given / "img_emb")
        (given / "metadata").mkdir()
        for number, part in enumerate(sorted(folder_of(every_drop, "embed").glob("metadata/*.parquet"))):
            table = pq.read_table(part)
            ids = table["id"].filter(pc.is_null(table["fault"])).to_pylist()
            ids[:3] = ["unknown"] * 3 if number == 0 else ids[:3]
            pq.write_table(pa.table({"id": ids}), given / "metadata" / part.name)
        run(context(root, f"embed.from={given}"), until="embed")
        assert [row["reason"] for row in dropped(root) if row["stage"] == "embed"] == ["no_vector"] * 3
