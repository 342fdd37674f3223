"""Predictions of a log that people label: the list, the page of annotate, and the way back."""

from __future__ import annotations

import json
from contextlib import closing
from itertools import product
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.console import driftline
from support.pages import served

from driftline.curate.metadata.columns import safe_id
from driftline.pipelines.annotation.server import answer_store_of, application
from driftline.pipelines.cli.common import context_of


def test_predictions_of_a_log_are_asked_on_the_page_and_their_labels_speak_for_the_month(tmp_path: Path) -> None:
    """20 of 40 unlabelled predictions of June, of which each fifth is wrong."""
    (tmp_path / "photos").mkdir()
    rows = []
    for month, k in product((4, 5, 6), range(40)):
        path = f"photos/{month}-{k}.png"
        Image.new("RGB", (9, 9), (6 * k, month, 0)).save(tmp_path / path)
        kind, other = ("cat", "dog") if k % 2 else ("dog", "cat")
        rows.append({"time": f"2026-0{month}-{1 + k % 28:02d}", "id": f"{month}/{k}", "version": "v1",
                     "prediction": other if k % 5 == 0 else kind, "label": None if month == 6 else kind,
                     "path": path})  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "log.parquet")
    words = ("age", "log.parquet", "--period", "month", "--out", "page")
    result = json.loads(driftline(*words, "--ask", "20", "--json", here=tmp_path).stdout)
    assert [gap["from"] for gap in result["gaps"]] == ["2026-06-01"]
    assert (result["asked"]["rows"], result["asked"]["folder"]) == (20, "page/ask")
    folder, asked = tmp_path / "page/ask", {row["id"]: row for row in rows}
    wrong = 0
    with served(lambda port: application(context_of(folder, None, True), port)) as page:
        assert "20 images are open" in httpx.get(page.address).text
        with closing(answer_store_of(context_of(folder, None, True))) as store:
            for item, id_ in store.batch["items"].items():
                row = next(one for one in rows if safe_id(one["id"]) == id_)
                right = "cat" if int(row["id"].split("/")[1]) % 2 else "dog"
                store.answer("Ada", item, [right], False, 1)
                wrong += right != asked[row["id"]]["prediction"]
    again = json.loads(driftline(*words, "--labels", "page/ask", "--json", here=tmp_path).stdout)
    june = next(cell for cell in again["cells"] if cell["from"] == "2026-06-01")
    assert (june["n"], june["accuracy"]) == (20, pytest.approx(1 - wrong / 20))
