"""Named sets of learners with settings: the rows of published tables, for `--learners`."""

from __future__ import annotations

from collections.abc import Sequence

ALPHAS = ("0.5", "1.0", "2.0", "5.0", "dynamic:0.25", "dynamic:0.5", "dynamic:0.75", "dynamic:1.0")
TABLE_4 = (  # [CLEAR, supplement, tables 4 and 5], in their order
    "nap",
    "cumulative(start=scratch)",
    *(f"reservoir(alpha={a},start=scratch)" for a in ALPHAS),
    "cumulative",
    *(f"reservoir(alpha={a})" for a in ALPHAS),
)
TABLE_1 = ("ewc", "si", "lwf", "cwr", "gdumb", "er", "agem", "reservoir", "reservoir(alpha=dynamic:1.0)")
SAMPLERS = tuple(f"fc-only(sampler={s})" for s in ("fifo", "uniform", "mixed", "balanced"))
GRIDS: dict[str, tuple[str, ...]] = {
    "clear-table-1": TABLE_1,
    "clear-table-4": TABLE_4,
    "near-future-samplers": (*SAMPLERS, "fc-only(memory=1000,alpha=5.0)"),
}


def split(text: str) -> list[str]:
    """`er,reservoir(alpha=5,start=scratch)` → two learners: commas inside brackets do not separate.

    >>> split("er, reservoir(alpha=5,start=scratch)")
    ['er', 'reservoir(alpha=5,start=scratch)']
    """
    words, depth, word = [], 0, ""
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            words.append(word.strip())
            word = ""
        else:
            word += character
    return [w for w in (*words, word.strip()) if w]


def expand(names: Sequence[str], all_names: Sequence[str]) -> list[str]:
    """Names of sets and `all` → their learners, each once, in order."""
    learners: list[str] = []
    for name in names:
        learners += GRIDS.get(name, tuple(all_names) if name == "all" else (name,))
    return list(dict.fromkeys(learners))
