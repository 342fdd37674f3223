"""Every registered platform: all images, the right counts, and nothing that shows a worker the expected answer."""

from pathlib import Path
from typing import Any

import pytest

from driftline.curate.retrieval.settings import Concept
from driftline.curate.validation.asking import PLATFORMS

CONCEPTS = [Concept(name=name, prompts=(name,)) for name in ("bus", "car")]
ADDRESSES = {f"item{n}": f"https://images.example/item{n}.jpg" for n in range(4)}


def written(
    name: str, out: Path, gold: dict[str, list[str]], ids: str = "a"
) -> tuple[dict[str, int], dict[str, bytes]]:
    """(counts, name → content) of the files of one platform."""
    batch: dict[str, Any] = {
        "batch": "b1", "after": None, "items": {item: f"{ids}-{item}" for item in ADDRESSES}, "gold": gold,
        "concepts": ["bus", "car"], "workers": 3, "reward_usd": 0.02, "estimate_usd": 0.36,
        "usd_an_hour": 8.0,
    }  # fmt: skip
    counts = PLATFORMS[name](batch, ADDRESSES, CONCEPTS, out)
    return counts, {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", PLATFORMS)
def test_every_image_is_asked_and_counted(name: str, tmp_path: Path) -> None:
    counts, files = written(name, tmp_path, {})
    assert counts == {"images": 4, "answers": 12}
    assert all(any(address.encode() in content for content in files.values()) for address in ADDRESSES.values())


@pytest.mark.parametrize("name", PLATFORMS)
def test_no_file_depends_on_gold_questions_or_ids(name: str, tmp_path: Path) -> None:
    _, files = written(name, tmp_path / "a", {"item1": ["bus"]})
    assert files == written(name, tmp_path / "b", {"item2": ["car"]}, ids="b")[1]
