"""Notebooks as Colab opens them: `python examples/notebooks/ipynb.py` writes each script here as a notebook without
outputs. The scripts are in jupytext's percent format, so Jupyter with jupytext opens them as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
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


if __name__ == "__main__":
    for path in sorted(HERE.glob("*.py")):
        if path.name != Path(__file__).name:
            path.with_suffix(".ipynb").write_text(notebook(path.read_text(encoding="utf-8")), encoding="utf-8")
