"""The imagefolder export: each class has a folder of its own, whatever its name."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from driftline.curate.export.imagefolder import _folder, export

NAMES = ["a/b", "a_b", "a\\b", "a%2Fb", "a", ".a", "..", "tea & cake"]


def test_classes_with_unsafe_names_do_not_share_a_folder(tmp_path: Path) -> None:
    ids = [str(i) for i in range(len(NAMES))]
    columns = {"id": ids, "bucket": [1] * len(ids), "class": NAMES, "member": [f"{i}.jpg" for i in ids]}
    release: Any = SimpleNamespace(table=pa.table(columns), images=lambda: ((i, i.encode()) for i in ids))
    assert export(release, tmp_path) == {"images": len(NAMES)}
    written = {unquote(path.parent.name): path.name for path in tmp_path.glob("bucket_01/*/*.jpg")}
    assert written == {name: f"{i}.jpg" for i, name in zip(ids, NAMES, strict=True)}


@given(st.text(min_size=1))
def test_a_folder_name_is_safe_and_gives_the_class_name_back(name: str) -> None:
    folder = _folder(name)
    assert unquote(folder) == name
    assert not set(folder) & set("/\\\0")
    assert not folder.startswith(".")


def test_a_safe_name_stays_as_it_is() -> None:
    assert _folder("Café 100% – (2)") == "Café 100% – (2)"
