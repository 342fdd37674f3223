"""A file a method, or a family of small ones, used by every protocol that names it.

A new learner is one class in a file here and its name in `MODULES`.
"""

from driftline.curate.core.registry import Registry

MODULES = (  # module, and its learners: `er-online` is the class ErOnline, `der++` DerPlusPlus
    ("references", "majority random"),
    ("closed_forms", "nearest-mean simple-cil slda ridge random-features ranpac fecam"),
    ("neighbours", "knn"),
    ("trained_heads", "zero-shot text-probe wise-ft"),
    ("trained_heads", "nap scratch finetune cumulative joint"),
    ("er", "er"),
    ("replay", "reservoir der der++ icarl gdumb agem"),
    ("regularised", "ewc si lwf cwr"),
    ("references", "blind"),
    ("online", "overadapt er-online fc-only ace"),
    ("neighbours", "acm"),
    ("online", "cosine-fc"),
    ("neighbours", "substrate substrate-k1 substrate-sumsim substrate-count-only substrate-no-recency static-knn"),
    ("neighbours", "bounded-reservoir bounded-fifo"),
    ("trained_heads", "static-linear online-linear knn-lm"),
    ("online", "river-logreg"),
    ("trained_heads", "self-training"),
    ("texts", "lora llm"),
    ("seq_to_final", "oracle baseline erm irm dro ft lp-ft i-ft d-ft st-1 st-b sft sft-linear sft-exponential"),
    ("seq_to_final", "seq-ewc sst-1 sst-b jm jst-1 jst-b to-final"),
)


LEARNERS = Registry(
    "learner",
    __name__,
    {
        name: f".{module}:{name.replace('++', '-plus-plus').title().replace('-', '')}"
        for module, names in MODULES
        for name in names.split()
    },
    group="learners",
    base="driftline.eval.learner:Learner",
)
