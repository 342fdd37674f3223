"""The browse page: total, facets and time line are of the same photos, and a vector belongs to the photo that has
it."""

import shutil
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline.curate.core.seeding import rng_for
from driftline.pipelines.browse.collection import VALUES, Asked, Collection, Selections, Source
from driftline.pipelines.run.run_folder import open_collection
from driftline.pipelines.stages.state import folder_of

N = 400


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """Photos of 20 classes, class k with 1 + 2 k photos or none; half of them have a decision."""
    rng = rng_for(0, "rows")
    classes = [f"c{k:02d}" for k in range(20) for _ in range(1 + 2 * k)]
    drawn = [None] * (N - len(classes)) + classes
    return [
        {
            "id": f"p{i}",
            "uploaded": 1_200_000_000 + 86_400 * i,
            "class": name,
            "bucket": f"b{int(rng.integers(3))}",
            "decision": ["kept", None][int(rng.integers(2))],
        }
        for i, name in enumerate(rng_for(1, "order").permutation(np.array(drawn, object)).tolist())
    ]


@pytest.fixture(scope="module")
def page(rows: list[dict[str, Any]]) -> Selections:
    database = duckdb.connect()
    kinds = {"uploaded": pa.int64()}
    table = {name: pa.array([row[name] for row in rows], kinds.get(name, pa.string())) for name in rows[0]}
    database.register("photos_of", pa.table(table | {"place_in_order": list(range(N))}))
    source = Source("made", "run", ["b0", "b1", "b2", "b3"], lambda row: None)
    return Selections(Collection(source, database, "SELECT * FROM photos_of"))


ASKED = {
    "nothing": Asked(),
    "rare classes": Asked({"class": ("c00", "c03", "c19")}),
    "a decision in a time": Asked({"decision": ("kept",), "bucket": ("b1",)}, since=1_205_000_000),
    "no decision": Asked({"decision": ("",)}),
    "none of these": Asked({"class": ("c01", "zebra"), "bucket": ("b3",)}),
}


class TestAllNumbersAreOfOneSet:
    @pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
    def test_total_facets_and_timeline(self, page: Selections, rows: list[dict[str, Any]], asked: Asked) -> None:
        def holds(i: int, without: str = "") -> bool:
            row = rows[i]
            chosen = all(
                any(value in values_of(row, name) for value in wanted)
                for name, wanted in asked.facets.items()
                if name != without
            )
            late = asked.since is None or without == "time" or row["uploaded"] >= asked.since
            return chosen and late

        shown = page.overview(asked)
        expected = [i for i in range(N) if holds(i)]
        assert shown["total"] == len(expected)
        assert sorted(page.ordered(asked).tolist()) == expected
        for name, counts in shown["facets"].items():
            of = [value for i in range(N) if holds(i, name) for value in values_of(rows[i], name)]
            assert len(counts["values"]) >= min(len(set(of)), VALUES), name
            assert counts["values"] == [[value, of.count(value)] for value, _ in counts["values"]]
            assert set(asked.facets.get(name, ())) <= {value for value, _ in counts["values"]}
            assert counts["more"] == (name != "bucket" and len(set(of)) > VALUES)
        assert sum(shown["timeline"]) == sum(holds(i, "time") for i in range(N))

    def test_a_chosen_value_beyond_the_largest_has_its_count_also_among_more_values(self, page: Selections) -> None:
        asked = Asked({"class": ("c00",)})
        assert ["c00", 1] in page.counts(asked, "class")["values"]
        assert ["c00", 1] in page.counts(asked, "class", most=3)["values"]
        assert len(page.counts(asked, "class", most=3)["values"]) == 4


def values_of(row: dict[str, Any], name: str) -> list[str]:
    """A photo's values of a facet; "" for none."""
    value = row[name]
    return ["" if value is None else value]


class TestADroppedRecordHasNothingOfItsNamesake:
    """The records that filter drops because of their id have the id of a photo that is kept."""

    @pytest.fixture(scope="class")
    def collection(self, every_drop: Path) -> Collection:
        return open_collection(every_drop)

    def test_it_has_no_vector_bucket_decision_or_place_in_the_release(self, collection: Collection) -> None:
        late = "reason LIKE 'filter: %'"
        assert collection.rows(f"SELECT count(*) FROM photos WHERE {late}")[0][0] > 0
        mine = "vector IS NULL AND bucket IS NULL AND decision IS NULL AND shard IS NULL"
        assert collection.rows(f"SELECT id FROM photos WHERE {late} AND NOT ({mine})") == []

    def test_each_vector_belongs_to_one_photo(self, every_drop: Path, tmp_path: Path) -> None:
        run = copied(every_drop, tmp_path / "run")
        repeat(run)
        _, rows = open_collection(run).vector_rows()
        assert len(set(rows.tolist())) == len(rows)


def copied(run: Path, place: Path) -> Path:
    """The run's tables, without pictures."""
    shutil.copytree(run, place, ignore=shutil.ignore_patterns("*.tar", "*.jpg"))
    return place


def repeat(run: Path) -> str:
    """Ingest a published photo once more, as a record that filter drops; returns its id."""
    part = sorted(folder_of(run, "ingest").glob("table/*.parquet"))[0]
    table = pq.read_table(part)
    published = pq.read_table(folder_of(run, "publish") / "release" / "metadata.parquet")["id"].to_pylist()
    at = next(i for i, id_ in enumerate(table["id"].to_pylist()) if id_ in published)
    again = table.slice(at, 1).set_column(table.schema.get_field_index("row"), "row", pa.array([10**6], pa.int64()))
    pq.write_table(pa.concat_tables([table, again.cast(table.schema)]), part)
    rejects = folder_of(run, "filter") / "rejects" / "part-twin.parquet"
    pq.write_table(
        pa.table({"id": again["id"], "row": pa.array([10**6], pa.int64()), "reason": ["duplicate_id"]}), rejects
    )
    return str(table["id"][at])
