"""What a reader should know of each learner: family, source, cost, and when to use it; docs/guides/learners.md is made
from it.

Costs are of learning one step. n: its samples, D: their width, C: classes, E: epochs, M: memory or random features, N:
all samples so far, k: neighbours. A product of two numbers counts once.
"""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """A learner's line."""

    family: str
    source: str
    cost: str
    when: str


REFERENCE, CLOSED, TRAINED, REPLAY = "references", "closed form", "trained heads", "replay"
TEXTS, ADAPT = "texts of the classes", "adaptation without labels"
REGULARISED, ONLINE, MEMORY, ADAPTERS = "regularised", "online", "nearest neighbours", "adapters and language models"
FINAL = "for the last step"
CLEAR, NEAR, OCRR, SEQ = "CLEAR", "near-future accuracy", "OCRR", "Seq-to-Final"
SGD, ONCE = "E n D C", "one draw"

GUIDE = {
    "majority": Entry(REFERENCE, "", "n", "what a model reaches that ignores the samples"),
    "random": Entry(REFERENCE, "", ONCE, "chance"),
    "blind": Entry(REFERENCE, NEAR, "n", "how far labels predict each other; choose the shift by it"),
    "joint": Entry(REFERENCE, "", SGD, "an upper bound that sees the future"),
    "oracle": Entry(REFERENCE, SEQ, SGD, "an upper bound with data of the last step's distribution"),
    "nearest-mean": Entry(CLOSED, "Mensink et al. 2013", "n D", "the cheapest row; always"),
    "simple-cil": Entry(CLOSED, "Zhou et al. 2023", "n D", "nearest mean by cosine, for features of CLIP and ViT"),
    "slda": Entry(
        CLOSED, "Hayes & Kanan 2020", "n D² + D³", "the first strong row on frozen features; shrink for few samples"
    ),
    "ridge": Entry(CLOSED, "Hoerl & Kennard 1970", "n D² + D³", "a linear head without a learning rate"),
    "random-features": Entry(CLOSED, "Rahimi & Recht 2007", "n M² + M³", "as ridge, if classes are not linear"),
    "ranpac": Entry(
        CLOSED, "McDonnell et al. 2023", "n M² + M³", "often the best closed form; penalty=held-out as in the paper"
    ),
    "randumb": Entry(CLOSED, "Prabhu et al. 2024", "n M² + M³", "whether a learned representation is needed at all"),
    "fecam": Entry(
        CLOSED,
        "Goswami et al. 2023",
        "n D² + C D³",
        "classes of different shape, with many samples each; slow for many",
    ),
    "zero-shot": Entry(TEXTS, "Radford et al. 2021", "nothing", "row 0 of every table on vectors of CLIP"),
    "zero-shot-calibrated": Entry(
        TEXTS, "Saerens et al. 2002", "n D C", "a class is answered too often; labels are not needed"
    ),
    "tip-adapter": Entry(TEXTS, "Zhang et al. 2022", "n D C", "few labelled samples of each class"),
    "text-probe": Entry(TEXTS, "Wortsman et al. 2022", SGD, "few samples, or classes that come late"),
    "wise-ft": Entry(TEXTS, "Wortsman et al. 2022", SGD, "training must not cost accuracy on other years"),
    "nap": Entry(
        TRAINED, f"{CLEAR}, table 4", SGD + ", first step only", "how fast a model ages that is never trained again"
    ),
    "scratch": Entry(TRAINED, f"{CLEAR}, table 4", SGD, "what one step alone teaches"),
    "finetune": Entry(TRAINED, CLEAR, SGD, "the plain way; the row that all others must beat"),
    "cumulative": Entry(TRAINED, f"{CLEAR}, table 4", "E N D C", "all data so far, if memory and time are no limit"),
    "self-training": Entry(TRAINED, "Lee 2013", "twice " + SGD, "unlabelled samples come with the steps"),
    "er": Entry(REPLAY, "Chaudhry et al. 2019", "2 " + SGD, "a memory of fixed size; hard to beat"),
    "der": Entry(REPLAY, "Buzzega et al. 2020", "2 " + SGD, "a memory of fixed size, steps without borders"),
    "der++": Entry(REPLAY, "Buzzega et al. 2020", "3 " + SGD, "as der, a stronger row for one more pass"),
    "cls-er": Entry(REPLAY, "Arani et al. 2022", "3 " + SGD, "averages of weights over time, with replay"),
    "icarl": Entry(
        REPLAY, "Rebuffi et al. 2017", "n D + M² D / C", "a small memory on frozen features, nothing trained"
    ),
    "reservoir": Entry(REPLAY, f"{CLEAR}, supplement 4", "E M D C", "a memory that prefers recent samples (alpha)"),
    "gdumb": Entry(REPLAY, "Prabhu et al. 2020", "E M D C", "whether a method is better than a balanced memory alone"),
    "agem": Entry(REPLAY, "Chaudhry et al. 2018", "2 " + SGD, "an update may not hurt the memory"),
    "ewc": Entry(REGULARISED, "Kirkpatrick et al. 2017", SGD, "no sample may be stored"),
    "si": Entry(REGULARISED, "Zenke et al. 2017", SGD, "as ewc, without a pass for the importance"),
    "lwf": Entry(REGULARISED, "Li & Hoiem 2016", SGD, "no sample may be stored; the old model teaches"),
    "cwr": Entry(REGULARISED, "Lomonaco et al. 2020", SGD, "classes that come in few steps only"),
    "fc-only": Entry(ONLINE, f"{NEAR}, sec. 5", "n D C", "the base row on fast streams"),
    "er-online": Entry(ONLINE, f"{NEAR}, sec. 5", "n D C", "replay on a stream, with a network"),
    "ace": Entry(ONLINE, "Caccia et al. 2022", "n D C", "new classes displace old ones; this is ER-ACE"),
    "cosine-fc": Entry(ONLINE, "Hou et al. 2019", "n D C", "frequent classes dominate"),
    "overadapt": Entry(ONLINE, NEAR, "n D C", "to show that online accuracy misleads"),
    "acm": Entry(MEMORY, f"{NEAR}, sec. 5", "n N D", "all samples may be stored"),
    "knn": Entry(MEMORY, "Wu et al. 2018", "n N D", "neighbours whose votes decay with age"),
    "substrate": Entry(MEMORY, OCRR, "n N D", "single corrections must count at once"),
    "substrate-k1": Entry(MEMORY, OCRR, "n N D", "ablation: one neighbour"),
    "substrate-sumsim": Entry(MEMORY, OCRR, "n N D", "ablation: sum of cosines"),
    "substrate-count-only": Entry(MEMORY, OCRR, "n N D", "ablation: no tie-breaks"),
    "substrate-no-recency": Entry(MEMORY, OCRR, "n N D", "ablation: old samples win ties"),
    "static-knn": Entry(MEMORY, OCRR, "n N D", "what corrections add to neighbours"),
    "bounded-reservoir": Entry(MEMORY, OCRR, "n M D", "neighbours in a memory of fixed size"),
    "bounded-fifo": Entry(MEMORY, OCRR, "n M D", "as above, the newest samples"),
    "static-linear": Entry(ONLINE, OCRR, SGD, "what corrections add to a head"),
    "online-linear": Entry(ONLINE, OCRR, SGD, "one step of SGD for each correction"),
    "knn-lm": Entry(MEMORY, "Khandelwal et al. 2020", SGD + " + n N D", "a frozen head and neighbours together"),
    "river-logreg": Entry(ONLINE, "River; OCRR", "n D C", "a second implementation of an online head"),
    "t3a": Entry(ADAPT, "Iwasawa & Matsuo 2021", SGD, "classes look different at test time, and no label comes"),
    "mlls": Entry(ADAPT, "Alexandari et al. 2020", SGD, "classes are more or less frequent at test time"),
    "bbse": Entry(ADAPT, "Lipton et al. 2018", SGD, "as mlls, from answers alone"),
    "bn-stats": Entry(
        ADAPT, "Schneider et al. 2020", "a network", "images are darker, noisier or of other cameras at test time"
    ),
    "tent": Entry(ADAPT, "Wang et al. 2021", "a network", "as bn-stats, and batches of test samples are large"),
    "cotta": Entry(ADAPT, "Wang et al. 2022, CVPR", "three networks", "as tent, if no reset may be made for long"),
    "l2p": Entry(
        ADAPTERS, "Wang et al. 2022, L2P", "a network", "a frozen vision transformer, and no sample is stored"
    ),
    "lora": Entry(ADAPTERS, "Hu et al. 2021", "a network", "raw texts or images and a pre-trained transformer"),
    "lora-merged": Entry(ADAPTERS, "Dziadzio et al. 2025", "a network", "steps must not undo each other"),
    "llm": Entry(ADAPTERS, OCRR, "an endpoint", "what a language model answers with nearest examples"),
    "baseline": Entry(FINAL, SEQ, SGD, "the last step alone"),
    "erm": Entry(FINAL, SEQ, "E N D C", "all steps as one"),
    "irm": Entry(FINAL, "Arjovsky et al. 2019", "E N D C", "what holds in every step"),
    "dro": Entry(FINAL, "Sagawa et al. 2020", "E N D C", "the worst step counts"),
    "ft": Entry(FINAL, SEQ, "E N D C", "pooled history, then fine-tuning"),
    "lp-ft": Entry(FINAL, "Kumar et al. 2022", "E N D C", "as ft, the head first"),
    "i-ft": Entry(FINAL, SEQ, "E N D C", "invariant history, then fine-tuning"),
    "d-ft": Entry(FINAL, SEQ, "E N D C", "robust history, then fine-tuning"),
    "st-1": Entry(FINAL, SEQ, "E N D C", "side tuning of one module"),
    "st-b": Entry(FINAL, SEQ, "E N D C", "side tuning of every block"),
    "sft": Entry(FINAL, SEQ, "E N D C", "sequential fine-tuning, one rate"),
    "sft-linear": Entry(FINAL, SEQ, "E N D C", "as sft, rates that fall linearly"),
    "sft-exponential": Entry(FINAL, SEQ, "E N D C", "as sft, rates that fall exponentially"),
    "seq-ewc": Entry(FINAL, SEQ, "E N D C", "sequential fine-tuning with a penalty"),
    "sst-1": Entry(FINAL, SEQ, "E N D C", "sequential side tuning of one module"),
    "sst-b": Entry(FINAL, SEQ, "E N D C", "sequential side tuning of every block"),
    "jm": Entry(FINAL, SEQ, "E N D C", "one model with weights for each step"),
    "jst-1": Entry(FINAL, SEQ, "E N D C", "joint side tuning of one module"),
    "jst-b": Entry(FINAL, SEQ, "E N D C", "joint side tuning of every block"),
    "to-final": Entry(FINAL, SEQ, "E N D C", "a combination of your own"),
}
