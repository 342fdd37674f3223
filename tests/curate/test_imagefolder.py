"""The imagefolder export: each class has a folder of its own, whatever its name."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.curate.core.errors import BadInput
from driftline.curate.export.layouts import _folder
from driftline.curate.export.layouts import imagefolder as export
from driftline.curate.foreign.names import fault
from driftline.curate.metadata.columns import safe_id

NAMES = ["a/b", "a_b", "a\\b", "a%2Fb", "a", ".a", "..", "tea & cake"]


def small(ids: list[str], classes: list[str]) -> Any:
    """A release of one bucket as the export sees it."""
    columns = {"id": ids, "bucket": [1] * len(ids), "class": classes, "member": [f"{i}.jpg" for i in ids]}
    images = [(i, i.encode()) for i in ids]
    return SimpleNamespace(table=pa.table(columns), images=lambda: iter(images), classes=sorted({*classes}))


def test_classes_with_unsafe_names_do_not_share_a_folder(tmp_path: Path) -> None:
    ids = [str(i) for i in range(len(NAMES))]
    assert export(small(ids, NAMES), tmp_path) == {"images": len(NAMES)}
    written = {unquote(path.parent.name): path.name for path in tmp_path.glob("bucket_01/*/*.jpg")}
    assert written == {name: f"{i}.jpg" for i, name in zip(ids, NAMES, strict=True)}


@given(st.text(min_size=1))
def test_a_folder_name_is_safe_and_gives_the_class_name_back(name: str) -> None:
    folder = _folder(name)
    assert unquote(folder) == name
    assert not set(folder) & set("/\\\0")
    assert not folder.startswith(".")


WINDOWS = ["con", "LPT1.x", "a.", "a ", "why?", "C:", "<d>", 'x"y', "a|b", "*", "tab\there"]  # a name may have none of


@pytest.mark.parametrize("name", WINDOWS)
def test_a_name_that_windows_cannot_have_is_escaped(name: str) -> None:
    folder = _folder(name)
    assert not fault(folder)
    assert not re.search(r'[<>:"|?*]|[. ]$', folder)
    assert unquote(folder) == name


@pytest.mark.parametrize("names", [("Car", "car"), ("cafe\u0301", "caf\u00e9"), ("\u00c4tna", "\u00e4tna")])
def test_classes_that_would_be_one_folder_where_case_does_not_count_are_refused(tmp_path, names):
    with pytest.raises(BadInput, match=f"'{names[0]}' and '{names[1]}' are one name on disks"):
        export(small(["a", "b"], [*names]), tmp_path / "out")
    assert not (tmp_path / "out").exists(), "before the first picture"


def test_so_are_ids_of_one_class(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"bus/dQw\.jpg' and '.*bus/dqw\.jpg' are one name"):
        export(small(["dQw", "dqw"], ["bus", "bus"]), tmp_path)
    assert export(small(["dQw", "dqw"], ["bus", "car"]), tmp_path) == {"images": 2}


def test_an_id_that_windows_reserves_is_another() -> None:
    assert not fault(safe_id("aux") + ".jpg")
    assert safe_id("aux") != safe_id("AUX")
    assert safe_id("auxiliary") == "auxiliary"


def test_a_safe_name_stays_as_it_is() -> None:
    assert _folder("Café 100% – (2)") == "Café 100% – (2)"
