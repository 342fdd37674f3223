"""Named sets of learners with settings: the rows of published tables, for `--learners`."""

import re
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
RECOVERY = (  # [OCRR, readme]
    "static-knn", "static-linear", "online-linear", "ewc", "agem", "lwf", "knn-lm", "river-logreg",
    "lora(model=microsoft/deberta-v3-large)", "substrate",
    *(f"bounded-{kind}(capacity={n})" for kind in ("reservoir", "fifo") for n in (1000, 5000)),
)  # fmt: skip
GRIDS: dict[str, tuple[str, ...]] = {
    "clear-table-1": TABLE_1,
    "clear-table-4": TABLE_4,
    "near-future-samplers": (*SAMPLERS, "fc-only(memory=1000,alpha=5.0)"),
    # [near-future accuracy]; uniform samples are er-online's default; a rate or decay ten times as large and as small
    "near-future-figure-3": ("overadapt", "er-online", "ace", "acm"),
    "near-future-figure-4": ("overadapt", "er-online(sampler=fifo)", "fc-only", "er-online"),
    "near-future-figure-6": ("er-online", "fc-only", "ace", "acm", "cosine-fc"),
    "near-future-figures-7-10": ("er-online(sampler=fifo)", "er-online(sampler=mixed)", "er-online"),
    "near-future-figure-11": tuple(f"er-online(weight_decay={w})" for w in ("0.001", "0.0001", "0.00001")),
    "near-future-figure-12": tuple(f"er-online(lr={lr})" for lr in ("0.05", "0.005", "0.0005")),
    "ocrr-sanity": ("substrate", "ewc", "online-linear", "static-knn"),
    "ocrr-table": RECOVERY,
    "ocrr-ablations": ("substrate", *(f"substrate-{a}" for a in ("k1", "sumsim", "count-only", "no-recency"))),
}


def split(text: str) -> list[str]:
    """`er,reservoir(alpha=5,start=scratch)` → two learners: commas inside brackets do not separate.

    >>> split("er, reservoir(alpha=5,start=scratch)")
    ['er', 'reservoir(alpha=5,start=scratch)']
    """
    return [word.strip() for word in re.split(r",(?![^(]*\))", text) if word.strip()]


def expand(names: Sequence[str], all_names: Sequence[str]) -> list[str]:
    """Names of sets and `all` → their learners, each once, in order."""
    learners: list[str] = []
    for name in names:
        learners += GRIDS.get(name, tuple(all_names) if name == "all" else (name,))
    return list(dict.fromkeys(learners))
