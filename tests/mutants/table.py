"""The table of mutants: one line of the source each, wrong in a way that a reader of results would not see."""

import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("table.toml")


@dataclass(frozen=True)
class Mutant:
    """One wrong line."""

    name: str
    """what is wrong, in words"""
    file: str
    before: str
    """a piece of one line that the file has once"""
    after: str
    """what stands in its place"""
    tests: tuple[str, ...]
    """the nearest test files, or parts of them as pytest names them; seconds each"""

    def applied(self, text: str) -> str:
        """The file's text with the wrong line."""
        return text.replace(self.before, self.after)


def read(table: Path = TABLE) -> list[Mutant]:
    """All mutants, in the order of the table."""
    found = []
    for part in tomllib.loads(table.read_text(encoding="utf-8"))["part"]:
        found += [Mutant(*line[:1], part["file"], *line[1:], tuple(part["tests"])) for line in part["mutants"]]
    return found


def problems(mutants: Sequence[Mutant], root: Path = ROOT) -> list[str]:
    """Why mutants cannot be run: their line is gone or no longer the only one, the wrong file is no Python, …"""
    names = Counter(mutant.name for mutant in mutants)
    found = [f"{name}: there are {n} of this name" for name, n in names.items() if n > 1]
    texts = {m.file: (root / m.file).read_text(encoding="utf-8") for m in mutants if (root / m.file).is_file()}
    for m in mutants:
        times = texts.get(m.file, "").count(m.before)
        if times != 1 or "\n" in m.before + m.after:
            found.append(f"{m.name}: {m.file} has {m.before!r} {times} times; expected a piece of one line, once")
        elif m.applied(texts[m.file]) == texts[m.file]:
            found.append(f"{m.name}: nothing changes")
        elif m.file.endswith(".py"):
            try:
                compile(m.applied(texts[m.file]), m.file, "exec")
            except SyntaxError as error:
                found.append(f"{m.name}: {error}")
        found += [f"{m.name}: there is no {path}" for path in m.tests if not (root / path.partition("::")[0]).is_file()]
    return found
