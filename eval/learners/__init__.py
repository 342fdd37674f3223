"""One file a method, used by every family that names it.

A new learner is one file here and its name in `NAMES`; the class of `er-online` is ErOnline.
"""

from __future__ import annotations

from curate.core.registry import Registry

NAMES = (  # file, and its learners; "": each learner has a file of its own, er_online for `er-online`
    ("", "majority random nearest-mean nap scratch finetune cumulative joint er reservoir gdumb agem ewc si lwf cwr"),
    ("", "blind overadapt er-online fc-only ace acm cosine-fc"),
    ("substrate", "substrate substrate-k1 substrate-sumsim substrate-count-only substrate-no-recency static-knn"),
    ("bounded", "bounded-reservoir bounded-fifo"),
    ("heads", "static-linear online-linear knn-lm"),
    ("", "river-logreg self-training lora llm"),
    ("seq_to_final", "oracle baseline erm irm dro ft lp-ft i-ft d-ft st-1 st-b sft sft-linear sft-exponential seq-ewc"),
    ("seq_to_final", "sst-1 sst-b jm jst-1 jst-b to-final"),
)


def _target(file: str, name: str) -> str:
    return f"eval.learners.{file or name.replace('-', '_')}:{name.title().replace('-', '')}"


LEARNERS = Registry(
    "learner",
    {name: _target(file, name) for file, names in NAMES for name in names.split()},
    group="learners",
    base="eval.learner:Learner",
)
