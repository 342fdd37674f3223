"""Execute notebooks as a reader would: cell by cell, showing the last line's value. `python notebooks.py FILE…`, in one
process and in the working directory; prints one JSON line for each: seconds, and what was shown."""

import ast
import json
import sys
import time
from pathlib import Path
from types import ModuleType


def cells(text: str) -> list[str]:
    """Code cells of a script in jupytext's percent format."""
    parts = text.split("\n# %%")[1:]
    return [part.partition("\n")[2] for part in parts if not part.startswith(" [markdown]")]


def shown(value: object) -> str:
    """How a notebook shows a value: HTML, else picture, else text; "" for None."""
    for name in ("_repr_html_", "_repr_png_"):
        if hasattr(value, name) and (made := getattr(value, name)()):
            return f"{type(value).__name__}{name}{len(made)}"
    return "" if value is None else f"{type(value).__name__} {value}"[:200]


def execute(path: Path) -> list[str]:
    """What the cells showed."""
    notebook = sys.modules["__main__"] = ModuleType("__main__")
    found = []
    for number, text in enumerate(cells(path.read_text(encoding="utf-8"))):
        tree = ast.parse(text)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        name = f"{path.name}, cell {number}"
        exec(compile(tree, name, "exec", dont_inherit=True), notebook.__dict__)
        if last is not None:
            expression = ast.Expression(last.value)  # type: ignore[attr-defined]
            found.append(shown(eval(compile(expression, name, "eval", dont_inherit=True), notebook.__dict__)))
    return found


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        begun, cpu = time.monotonic(), time.process_time()
        result = execute(Path(argument))
        took = {"seconds": round(time.monotonic() - begun, 1), "cpu": round(time.process_time() - cpu, 1)}
        print(json.dumps({"notebook": Path(argument).stem, **took, "shown": result}), flush=True)
