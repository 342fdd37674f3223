"""What is shipped: packages with their data, and nothing of tests or cards."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_data_files_lie_inside_their_packages() -> None:
    assert (files("curate") / "templates" / "question.html.j2").is_file()
    assert (files("curate") / "templates" / "card.md.j2").is_file()
    assert (files("eval") / "templates" / "report.html.j2").is_file()
    assert (files("pipelines") / "demo" / "model" / "open_clip_model.safetensors").is_file()
    assert (files("pipelines") / "presets" / "mini.yaml").is_file()


def test_the_shipped_model_is_small() -> None:
    model = files("pipelines") / "demo" / "model" / "open_clip_model.safetensors"
    assert len(model.read_bytes()) <= 8_000_000


def test_every_dependency_has_a_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    wanted = [*project["dependencies"], *(d for extra in project["optional-dependencies"].values() for d in extra)]
    for dependency in wanted:
        (line,) = [ln for ln in text.splitlines() if ln.strip().startswith(f'"{dependency}"')]
        assert line.partition("#")[2].strip(), f"{dependency} has no reason"
