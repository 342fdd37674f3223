"""Stored rows that were damaged: the file is named, and the way out works."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.helpers import drifting

from driftline.curate.core.errors import BadInput
from driftline.eval import rows
from driftline.eval.reporting.report import report
from driftline.eval.run import evaluate, plan

STREAM = drifting(steps=2, n=60)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("rows")
    evaluate(STREAM, "clear-iid", ["majority", "nearest-mean"], out=out)
    return out


def run_folder(out: Path) -> Path:
    return sorted(path.parent for path in out.rglob("rows.parquet"))[0]


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGE: dict[str, Callable[[Path], object]] = {
    "emptied": lambda path: path.write_bytes(b""),
    "cut in half": half,
    "another file": lambda path: path.write_text("a,b\n1,2\n"),
    "removed": Path.unlink,
    "other columns": lambda path: pq.write_table(pa.table({"a": [1]}), path),
    "no rows": lambda path: pq.write_table(rows.schema().empty_table(), path),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_rows_are_named_and_the_way_out_repeats_the_run(stored: Path, tmp_path: Path, damage: str) -> None:
    out = tmp_path / "out"
    shutil.copytree(stored, out)
    folder = run_folder(out)
    DAMAGE[damage](folder / "rows.parquet")
    for call in (
        lambda: rows.find([out]),
        lambda: plan(STREAM, "clear-iid", ["majority", "nearest-mean"], [0], out=out),
        lambda: evaluate(STREAM, "clear-iid", ["majority", "nearest-mean"], out=out),
    ):
        with pytest.raises(BadInput, match=f"{folder}/rows.parquet .* Remove the folder {folder} and evaluate again"):
            call()
    shutil.rmtree(folder)
    assert plan(STREAM, "clear-iid", ["majority", "nearest-mean"], [0], out=out).finished == 1
    evaluate(STREAM, "clear-iid", ["majority", "nearest-mean"], out=out)
    assert len(rows.find([out])) == 2


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": 1}', '{"format": 9}'])
def test_a_damaged_record_is_named(stored: Path, tmp_path: Path, text: str) -> None:
    shutil.copytree(stored, tmp_path / "out")
    record = run_folder(tmp_path / "out") / "run.json"
    record.write_text(text)
    with pytest.raises(BadInput, match=str(record)):
        rows.find([tmp_path / "out"])


@pytest.mark.parametrize("key", [*rows.NEEDED, rows.ROWS_DIGEST])
def test_a_record_without_a_key_is_named(stored: Path, tmp_path: Path, key: str) -> None:
    shutil.copytree(stored, tmp_path / "out")
    record = run_folder(tmp_path / "out") / "run.json"
    about = json.loads(record.read_text())
    del about[key]
    record.write_text(json.dumps(about))
    with pytest.raises(BadInput, match=f"{record} has no valid '{key}'"):
        rows.find([tmp_path / "out"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(st.data())
def test_every_changed_byte_is_found(stored: Path, tmp_path: Path, data: st.DataObject) -> None:
    folder, target = run_folder(stored), tmp_path / "run"
    target.mkdir(exist_ok=True)
    shutil.copy(folder / "run.json", target)
    whole = bytearray((folder / "rows.parquet").read_bytes())
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    (target / "rows.parquet").write_bytes(whole)
    with pytest.raises(BadInput, match=str(target / "rows.parquet")):
        rows.load(target)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 10**30}, "seed has more than 64 bits"),
        ({"protocol_settings": {"²": 1}}, "has the protocol setting '²'"),
    ],
)
def test_a_report_refuses_an_edited_record_in_one_sentence(change, message, tmp_path):
    evaluate(drifting(), "clear-iid", ["majority"], out=tmp_path / "runs")
    (path,) = tmp_path.rglob("run.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(BadInput, match=message):
        report(tmp_path / "runs", tmp_path / "out")


def test_right_answers_of_other_classes_are_another_digest(stored: Path) -> None:
    run = rows.find([stored])[0]
    first, second, *rest = run.rows[-1].class_correct
    moved = replace(run.rows[-1], class_correct=[first + 1, second - 1, *rest])
    assert rows.digest(run) != rows.digest(replace(run, rows=[*run.rows[:-1], moved]))
