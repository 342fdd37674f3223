"""Text from outside in files that other programs interpret: spreadsheets, LaTeX, Markdown, loaders of image folders.

HTML is escaped by Jinja and `html.escape`.
"""

import re
from collections.abc import Mapping
from typing import Any

_FORMULA = tuple("=+-@\t\r\n")
_MARKDOWN = str.maketrans(
    {c: f"\\{c}" for c in "\\*[]{}|~$!#"} | {"`": "'", "<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;"}
)
_LATEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''"}
)


def no_formula(cell: Any) -> Any:
    """A cell of a CSV table: an apostrophe before text that a spreadsheet would run as a formula.

    >>> no_formula("=1+1"), no_formula("fine"), no_formula(-0.5)
    ("'=1+1", 'fine', -0.5)
    """
    return "'" + cell if isinstance(cell, str) and cell.startswith(_FORMULA) else cell


def latex(text: str) -> str:
    """Text in a LaTeX document, in one line, in which no character is a command.

    >>> latex("a_b 100% \\\\write18")
    'a\\\\_b 100\\\\% \\\\textbackslash{}write18'
    """
    return _one_line(text).translate(_LATEX)


def markdown(text: str) -> str:
    """Text in a cell of a Markdown table that stays in its cell and is neither markup nor a link.

    >>> markdown("a|b\\r\\n# [c](http://d)")
    'a\\\\|b  \\\\# \\\\[c\\\\](http&#58;//d)'
    """
    return _one_line(text).translate(_MARKDOWN).replace("://", "&#58;//").replace("www.", "www&#46;")


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def image_folders_readme(splits: Mapping[str, str]) -> str:
    """The README of image folders: its header names the splits for `datasets`. splits: name → folder."""
    names = {re.sub(r"\W", "_", name): folder for name, folder in sorted(splits.items())}
    files = "".join(f"  - split: {name}\n    path: {folder}/**\n" for name, folder in names.items())
    first, folder = next(iter(names.items()), ("SPLIT", "FOLDER"))
    return f"""---
configs:
- config_name: default
  drop_labels: false
  data_files:
{files}---

Load the whole folder, here called FOLDER, so that the header above names the splits:

```python
datasets.load_dataset("FOLDER")["{first}"]
torchvision.datasets.ImageFolder("FOLDER/{folder}")
```

Do not use `load_dataset("imagefolder", data_dir="FOLDER")`: it takes folders and files called train, test or
validation for splits and leaves out the others. Both libraries number classes in order of their folders' names, as
text (10 is before 2): compare names, not numbers. `urllib.parse.unquote` makes a class of a folder's name.
Times and groups are not in this layout: the layouts huggingface and webdataset have them.
"""
