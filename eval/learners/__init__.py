"""A file a method, or a family of small ones, used by every protocol that names it.

A new learner is one class in a file here and its name in `MODULES`.
"""

from driftline.curate.core.registry import Registry

MODULES = (  # module, and its learners: `er-online` is the class ErOnline, `der++` DerPlusPlus
    ("references", "majority random"),
    ("nearest_mean", "nearest-mean simple-cil"),
    ("slda", "slda"),
    ("ridge", "ridge random-features ranpac"),
    ("fecam", "fecam"),
    ("knn", "knn"),
    ("zero_shot", "zero-shot text-probe wise-ft"),
    ("trained_heads", "nap scratch finetune cumulative joint"),
    ("er", "er"),
    ("reservoir", "reservoir"),
    ("der", "der der++"),
    ("icarl", "icarl"),
    ("gdumb", "gdumb"),
    ("agem", "agem"),
    ("ewc", "ewc"),
    ("si", "si"),
    ("lwf", "lwf"),
    ("cwr", "cwr"),
    ("blind", "blind"),
    ("online", "overadapt er-online fc-only ace"),
    ("acm", "acm"),
    ("online", "cosine-fc"),
    ("substrate", "substrate substrate-k1 substrate-sumsim substrate-count-only substrate-no-recency static-knn"),
    ("bounded", "bounded-reservoir bounded-fifo"),
    ("heads", "static-linear online-linear knn-lm"),
    ("river_logreg", "river-logreg"),
    ("self_training", "self-training"),
    ("lora", "lora"),
    ("llm", "llm"),
    ("seq_to_final", "oracle baseline erm irm dro ft lp-ft i-ft d-ft st-1 st-b sft sft-linear sft-exponential"),
    ("seq_to_final", "seq-ewc sst-1 sst-b jm jst-1 jst-b to-final"),
)


def _class_of(name: str) -> str:
    return "".join(word.capitalize() for word in name.replace("++", "-plus-plus").split("-"))


LEARNERS = Registry(
    "learner",
    {
        name: f"driftline.eval.learners.{module}:{_class_of(name)}"
        for module, names in MODULES
        for name in names.split()
    },
    group="learners",
    base="driftline.eval.learner:Learner",
)
