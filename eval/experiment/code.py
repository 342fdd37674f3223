"""The code that decides a row: of driftline, of a learner or protocol of one's own, of what it was given.

A digest changes when a file changes that can change a result: the module of a class and the modules beside it that it
imports, the version of an installed package, the values that a function encloses. What cannot be read as text or data,
as a class of a notebook's cell, has none (`Untold`): its rows are not used again.
"""

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from driftline.curate.core import files as digests
from driftline.curate.core.atomic_io import fingerprint
from driftline.curate.core.files import files_of
from driftline.curate.core.own_code import HOME, PLAIN, Untold, code_of, sha256_of, value_of

OURS = ("curate", "stream_builder", "eval")  # packages of driftline whose code decides a row


def code_of_run(learner: object, protocol: object) -> dict[str, str]:
    """What decides the rows of a learner under a protocol: `driftline`, `learner`, `protocol` → a digest or a version.
    Raises Untold."""
    return {HOME: ours(), "learner": _object(learner), "protocol": _object(protocol)}


def code_or_name(learner: object, protocol: object) -> dict[str, str]:
    """The same; {"untold": name} for code that has no digest."""
    try:
        return code_of_run(learner, protocol)
    except Untold as error:
        return {"untold": str(error)}


def ours() -> str:
    """Of driftline's own code that decides rows."""
    return digests.code_of(OURS)


def _object(thing: Any) -> str:
    """Of an instance: its class, the settings that are no text or number, and the files that its settings name."""
    own = {f.name: getattr(thing, f.name) for f in fields(thing) if f.init} if is_dataclass(thing) else {}
    values = {name: value_of(value) for name, value in own.items() if not isinstance(value, PLAIN)}
    for name, what in getattr(thing, "reaches", {}).items():
        if what in ("a file", "a model") and isinstance(own.get(name), str) and own[name] and Path(own[name]).exists():
            values[name] = _content(Path(own[name]))
    kind = code_of(type(thing))
    return kind if not values else fingerprint([kind, values])[:16]


def _content(path: Path) -> Any:
    files = sorted(files_of(path)) if path.is_dir() else [path]
    return [(file.name, sha256_of(file)) for file in files]
