"""Notebooks as Colab opens them: `python examples/notebooks/ipynb.py` writes each script here as a notebook without
outputs. The scripts are in jupytext's percent format, so Jupyter with jupytext opens them as they are.

Links to Colab name the repository of `project.urls` in pyproject.toml; the same command renews them."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TABLE = ROOT / "docs" / "guides" / "python.md"  # of the notebooks
COLAB = re.compile(r"https://colab\.research\.google\.com/github/[\w.-]+/[\w.-]+/")
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def notebook(script: str) -> str:
    """The JSON of a notebook (nbformat 4.5) from a script."""
    cells: list[dict[str, Any]] = []
    for part in script.split("\n# %%")[1:]:
        head, _, text = part.partition("\n")
        cell: dict[str, Any] = {"cell_type": "code", "execution_count": None, "outputs": []}
        if head == " [markdown]":
            cell = {"cell_type": "markdown"}
            text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in text.strip().splitlines())
        cells.append(cell | {"id": f"cell-{len(cells)}", "metadata": {}, "source": text.strip().splitlines(True)})
    whole = {"cells": cells, "metadata": {"kernelspec": KERNEL}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def with_links(text: str, project: str) -> str:
    """The text, whose links to Colab name the repository of this pyproject.toml."""
    repository = tomllib.loads(project)["project"]["urls"]["Repository"].removeprefix("https://github.com/").rstrip("/")
    return COLAB.sub(f"https://colab.research.google.com/github/{repository}/", text)


if __name__ == "__main__":
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    scripts = [path for path in sorted(HERE.glob("*.py")) if path.name != Path(__file__).name]
    for path in (*scripts, TABLE):
        path.write_text(with_links(path.read_text(encoding="utf-8"), project), encoding="utf-8")
        if path in scripts:
            path.with_suffix(".ipynb").write_text(notebook(path.read_text(encoding="utf-8")), encoding="utf-8")
