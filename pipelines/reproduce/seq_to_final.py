"""Seq-to-Final [Ji, Alaa, Sontag 2024]: tables 2, 5 to 15 and its figures of networks."""

from driftline.eval.protocols.seq_to_final import published
from driftline.pipelines.reproduce.items import Cell, Item, Need, Paper
from driftline.stream_builder.shifts.grammar import NAMES

TABLES = {"CLR": 8, "RCL": 9, "rrr": 10, "TTT": 11, "sss": 12}
NETWORKS = tuple(f"{kind}-{size}" for size in (1, 2, 3, 4) for kind in ("conv", "dense", "res"))
QUICK = {"network": "conv-1", "fidelity": "paper-code", "budget": "small", "epochs": 4, "lrs": 0.003}
PRINTED = published.table()
METHODS = sorted({learner for _, _, learner in PRINTED} | {"sft-linear", "sft-exponential"})
SCHEDULES = ("sft", "sft-linear", "sft-exponential")


def _cells(name: str, networks: tuple[str, ...], row: str) -> list[Cell]:
    """All methods that the paper ran, on each network; with --quick on the first."""
    sequence, base = NAMES.get(name, name), "cifar100" if name == "sss" else "cifar10"
    stream = ("composed", base, sequence) if name in NAMES else (name,)
    return [
        Cell(
            stream,
            [name for name in METHODS if (sequence, network, name) in PRINTED or name in SCHEDULES],
            {name: {"final": v} for (s, net, name), v in PRINTED.items() if (s, net) == (sequence, network)},
            row=f"{row}, {network}", group=row, preset="seq-to-final-code", settings={"network": network},
            quick=QUICK if network == networks[0] else None,
        )
        for network in networks
    ]  # fmt: skip


SYNTHETIC = {name: _cells(name, NETWORKS, name) for name in TABLES}
PORTRAITS = _cells("portraits", NETWORKS, "Portraits")
ROTATIONS = [cell for n in range(2, 9) for cell in _cells(f"rotations-{n}", ("res-4",), f"{n} steps")]
FROZEN = "to-final(final=frozen-joint"
TABLE_15 = {
    "baseline": 0.5470, "ft": 0.6766, "ft(regulariser=previous-l2)": 0.6726,
    "ft(regulariser=previous-l2,start=new)": 0.6644, f"{FROZEN},start=new)": 0.5466, f"{FROZEN})": 0.6784,
    f"{FROZEN},regulariser=previous-l2)": 0.6756, f"{FROZEN},regulariser=previous-l2,start=new)": 0.6564,
}  # fmt: skip
TABLE_5 = {  # distances of steps 0, 1, 2 to the last: covariate, conditional
    "CLR": ((1.69, 1.69, 1.69), (1.68, 1.68, 1.61)), "RCL": ((1.65, 1.00, 1.00), (1.64, 1.13, 1.12)),
    "rrr": ((1.12, 1.55, 1.53), (1.13, 1.51, 1.47)), "TTT": ((1.54, 1.28, 1.08), (1.46, 1.24, 1.06)),
    "sss": ((1.01, 1.00, 1.00), (1.00, 1.01, 1.00)),
}  # fmt: skip
TABLE_6 = ((1.40, 1.61, 1.77, 1.62, 1.31, 1.26, 1.13), (1.41, 1.68, 1.77, 1.61, 1.32, 1.27, 1.13))
TABLE_7 = {  # millions of parameters
    "conv-1": 0.3, "conv-2": 0.7, "conv-3": 1.6, "conv-4": 1.6, "dense-1": 1.2, "dense-2": 1.7, "dense-3": 3.0,
    "dense-4": 6.9, "res-1": 7.4, "res-2": 8.2, "res-3": 10.9, "res-4": 11.0,
}  # fmt: skip
PATHS = ("ft", "lp-ft", "i-ft", "d-ft", "st-1", "st-b", *SCHEDULES, "seq-ewc", "sst-1", "sst-b", "jm", "jst-1", "jst-b")
OVER_STEPS = ("oracle", "baseline", "ft", "lp-ft", *SCHEDULES, "seq-ewc", "sst-b", "jm", "jst-b")


def _distances(row: str, stream: tuple[str, ...], values: tuple[tuple[float, ...], ...]) -> Cell:
    kinds = zip(("covariate", "conditional"), values, strict=True)
    return Cell(stream, (), {kind: {f"step {t}": v for t, v in enumerate(of)} for kind, of in kinds}, row, quick={})


def _drawn(row: str, stream: tuple[str, ...], network: str, learners: tuple[str, ...], **more: str) -> Cell:
    settings = {"network": network, **more}
    return Cell(stream, learners, row=f"{row}, {network}", preset="seq-to-final-code", settings=settings,
                quick=QUICK | more)  # fmt: skip


def _paths(number: int, row: str, stream: tuple[str, ...], hours: tuple[float, float] = (1400, 6)) -> Item:
    cells = [_drawn(row, stream, network, PATHS) for network in ("conv-4", "dense-4", "res-4")]
    return Item(f"figure-{number}", f"Paths through the last step, {row}", "figure", cells, *hours,
                plots=("interpolation",))  # fmt: skip


STREAMS = {name: cells[0].stream for name, cells in SYNTHETIC.items()}
ONE_SEED = "One seed, as in the paper."
CLR_4 = [_drawn("CLR", STREAMS["CLR"], "conv-4", OVER_STEPS)]
ITEMS = (
    Item("table-2", "Accuracy on the last step, means over twelve networks", "means",
         [cell for cells in (*SYNTHETIC.values(), PORTRAITS) for cell in cells], 35_000, 40, ONE_SEED),
    Item("table-5", "Covariate and conditional shift of each step", "distances",
         [_distances(name, STREAMS[name], values) for name, values in TABLE_5.items()]),
    Item("table-6", "The same for Portraits", "distances", [_distances("Portraits", ("portraits",), TABLE_6)]),
    Item("table-7", "Parameters of the networks, in millions", "parameters",
         [Cell((), tuple(TABLE_7), {name: {"parameters": v} for name, v in TABLE_7.items()}, "Table 7",
               quick={})], digits=1),
    *(Item(f"table-{number}", f"Accuracy on the last step, {name}, each network", "scores", SYNTHETIC[name], 5_440, 8,
           ONE_SEED) for name, number in TABLES.items()),
    Item("table-13", "Accuracy on the last decade, Portraits, each network", "scores", PORTRAITS, 8_000, 10, ONE_SEED),
    Item("table-14", "Two to eight rotations, Res-4", "scores", ROTATIONS, 6_300, 15,
         f"{ONE_SEED} The paper's samples of these sequences were not published: own ones of the same sizes."),
    Item("table-15", "Initialisation, regularisation and frozen joint models, RCL, Res-4", "scores",
         [Cell(STREAMS["RCL"], tuple(TABLE_15), {name: {"final": v} for name, v in TABLE_15.items()}, "RCL, res-4",
               preset="seq-to-final-code", settings={"network": "res-4"}, quick=QUICK)], 350, 1, ONE_SEED, digits=4),
    Item("figure-1", "Paths through the last step: CLR on three networks, RCL on Conv-4", "figure",
         [_drawn("CLR", STREAMS["CLR"], net, PATHS) for net in ("conv-4", "dense-4", "res-4")]
         + [_drawn("RCL", STREAMS["RCL"], "conv-4", PATHS)], 1_500, 7, plots=("interpolation",)),
    Item("figure-9", "Validation accuracy over the regularisation between times, RCL, Res-4", "figure",
         [_drawn("RCL", STREAMS["RCL"], "res-4", ("jm",), adjacents="0/0.001/0.01/0.1/1/10/100")], 60, 0.5,
         plots=("adjacent",)),
    *(_paths(number, name, STREAMS[name]) for number, name in ((10, "RCL"), (11, "rrr"), (12, "TTT"), (13, "sss"))),
    _paths(14, "8 steps", ROTATIONS[-1].stream, hours=(3000, 12)),
    _paths(15, "Portraits", ("portraits",), hours=(2100, 8)),
    Item("figure-16", "Weights after each step, block by block, CLR, Conv-4", "figure", CLR_4, 40, 0.5,
         plots=("projection",)),
    Item("figure-17", "SVCCA with the oracle after each step, block by block, CLR, Conv-4", "figure", CLR_4, 40, 0.5,
         plots=("svcca",)),
)  # fmt: skip
NEEDS = {
    "cifar10": Need("cifar10", "CIFAR-10 as Parquet or as unpacked; *draws*.npz beside it: the paper's own samples",
                    "https://www.cs.toronto.edu/~kriz/cifar.html, draws: github.com/clinicalml/seq_to_final_benchmark"),
    "cifar100": Need("cifar100", "CIFAR-100 with both kinds of labels", "https://www.cs.toronto.edu/~kriz/cifar.html"),
    "portraits": Need("portraits", "folders M and F of A Century of Portraits, YEAR_….png",
                      "https://people.eecs.berkeley.edu/~shiry/projects/yearbooks/yearbooks.html"),
}  # fmt: skip
PAPER = Paper(
    "Seq-to-Final: A Benchmark for Tuning from Sequential Distributions to a Final Time Point", NEEDS, ITEMS,
    "Conv-1 in place of every network; images of half the width and height; a tenth of the samples; 4 epochs; one "
    "learning rate, 0.003, and no other points of the grid", {"sft": SCHEDULES},
)  # fmt: skip
