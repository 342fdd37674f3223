"""One file a method, used by every family that names it.

A new learner is one file here and one line in `LEARNERS`.
"""

from __future__ import annotations

from curate.ground.catalogue import Catalogue

LEARNERS = Catalogue(
    "learner",
    {
        "majority": "eval.learners.majority:Majority",
        "random": "eval.learners.random:Random",
        "nearest-mean": "eval.learners.nearest_mean:NearestMean",
        "nap": "eval.learners.nap:Nap",
        "scratch": "eval.learners.scratch:Scratch",
        "finetune": "eval.learners.finetune:Finetune",
        "cumulative": "eval.learners.cumulative:Cumulative",
        "joint": "eval.learners.joint:Joint",
        "er": "eval.learners.er:Er",
        "reservoir": "eval.learners.reservoir:Reservoir",
        "gdumb": "eval.learners.gdumb:Gdumb",
        "agem": "eval.learners.agem:Agem",
        "ewc": "eval.learners.ewc:Ewc",
        "si": "eval.learners.si:Si",
        "lwf": "eval.learners.lwf:Lwf",
        "cwr": "eval.learners.cwr:Cwr",
        "blind": "eval.learners.blind:Blind",
        "overadapt": "eval.learners.overadapt:Overadapt",
        "er-online": "eval.learners.er_online:ErOnline",
        "fc-only": "eval.learners.fc_only:FcOnly",
        "ace": "eval.learners.ace:Ace",
        "acm": "eval.learners.acm:Acm",
        "cosine-fc": "eval.learners.cosine_fc:CosineFc",
        "substrate": "eval.learners.substrate:Substrate",
        "substrate-k1": "eval.learners.substrate:SubstrateK1",
        "substrate-sumsim": "eval.learners.substrate:SubstrateSumsim",
        "substrate-count-only": "eval.learners.substrate:SubstrateCountOnly",
        "substrate-no-recency": "eval.learners.substrate:SubstrateNoRecency",
        "static-knn": "eval.learners.substrate:StaticKnn",
        "bounded-reservoir": "eval.learners.bounded:BoundedReservoir",
        "bounded-fifo": "eval.learners.bounded:BoundedFifo",
        "static-linear": "eval.learners.heads:StaticLinear",
        "online-linear": "eval.learners.heads:OnlineLinear",
        "knn-lm": "eval.learners.heads:KnnLm",
        "river-logreg": "eval.learners.river_logreg:RiverLogreg",
    },
)
