"""A method is a history mode and a final mode; what both share is written once here [paper, Table 1; spec, section 3].

| history \\ final | pooled | all | fc-all | side-1, side-b |
|---|---|---|---|---|
| none | | baseline, oracle | | |
| erm, irm, dro | erm, irm, dro | ft, i-ft, d-ft | lp-ft | st-1, st-b |
| each | | sft, seq-ewc | | sst-1, sst-b |
| joint | | jm | | jst-1, jst-b |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from curate.core.errors import BadConfig
from curate.core.seeding import rng_for
from eval.finetuning import adapters, layers
from eval.finetuning.fit import Fitted, Hyper, scores_of
from eval.finetuning.fit_cache import digest_of
from eval.finetuning.regularisers import Pull, fisher
from eval.finetuning.samples import Samples, plain, pooled
from eval.finetuning.stage import Work
from eval.nets import build
from eval.nets.chain import Net

HISTORIES = ("none", "erm", "irm", "dro", "each", "joint")
SIDES, LOW_RANK = ("side-1", "side-b"), ("lowrank-add", "lowrank-mul")
SEARCHES = ("search", "surgical-rgn", "surgical-snr")
FINALS = ("pooled", *layers.PHASED, *SIDES, *LOW_RANK, *SEARCHES)
REGULARISERS = ("l2", "l1", "previous-l2", "previous-l1", "previous-all-l2", "fisher", "fisher-all")
SCHEDULES = {  # learning rate of the first step, and what each later one changes [spec, section 3, SFT]
    "linear": ((1e-3, -1e-4), (1e-4, -1e-5)),
    "exponential": ((2e-3, 0.5), (2e-4, 0.5), (2e-4, 0.75)),
}


@dataclass(frozen=True)
class Method:
    """history: how steps before the last are learned. final: what is done at the last step (under "each", at every
    step after the first; under "joint", how times differ). regulariser: of training from earlier weights; "l2" and "l1"
    pull towards zero. schedule: of learning rates over steps, "none", "linear" or "exponential". weights: of pooled
    steps' losses, "equal" or "increasing" (1/(T − t + 1)). sees_final: the final step's training data are in the
    history as well, a defect of the paper's code. shared: blocks that all times of a joint model have in common. beam:
    models that a search over steps keeps. resets: each schedule begins anew; the paper's code does not."""

    history: str = "none"
    final: str = "all"
    regulariser: str = "l2"
    schedule: str = "none"
    weights: str = "equal"
    sees_final: bool = False
    rank: int = 4
    shared: tuple[str, ...] = ()
    beam: int = 1
    resets: bool = True

    def __post_init__(self) -> None:
        for name, value, known in (
            ("history", self.history, HISTORIES),
            ("final", self.final, FINALS),
            ("regulariser", self.regulariser, REGULARISERS),
            ("schedule", self.schedule, ("none", *SCHEDULES)),
            ("weights", self.weights, ("equal", "increasing")),
        ):
            if value not in known:
                raise BadConfig(f"{name} is {value!r}.", f"Expected {', '.join(known)}.")
        if self.history in ("none", "each") and self.final == "pooled":
            raise BadConfig(f"final is pooled and history {self.history}.", "Expected history erm, irm or dro.")
        if self.history == "joint" and self.final not in ("all", *SIDES):
            raise BadConfig(f"final is {self.final!r} and history joint.", "Expected all, side-1 or side-b.")
        if self.schedule != "none" and (self.history != "each" or self.final in SIDES):
            raise BadConfig(
                f"schedule is {self.schedule!r}, history {self.history} and final {self.final}.",
                "Expected history each and no side modules.",
            )
        if self.rank < 1 or self.beam < 1:
            raise BadConfig(f"rank is {self.rank}, beam {self.beam}.", "Expected at least 1.")


@dataclass(frozen=True)
class Data:
    """One entry a step."""

    train: Sequence[Samples]
    val: Sequence[Samples]


def run(method: Method, data: Data, work: Work, n_classes: int, x_shape: tuple[int, ...]) -> Net:
    """The network that the method ends with; its last time's model answers for the last step."""
    start = build(work.rules.network, n_classes, x_shape, _rng(work, "start", work.rules.network))
    start = start.to(work.rules.device)
    if method.history == "joint":
        return _joint(method, data, work, start)
    if method.history == "each":
        return _each(method, data, work, start)
    if method.final == "pooled":
        return _pooled(method, data, work, start, len(data.train), "all steps")[0]
    if method.history == "none":
        return adapt(method, work, start, data, len(data.train) - 1, [], work.rules.grids["base"])[0]
    steps = len(data.train) if method.sees_final else len(data.train) - 1
    net, _ = _pooled(method, data, work, start, steps, "history")
    earlier = [(net, pooled(data.train[:-1]))]
    return adapt(method, work, net, data, len(data.train) - 1, earlier)[0]


def _rng(work: Work, *names: str | int) -> np.random.Generator:
    return rng_for(work.seed, "to-final", *names)


def _pooled(method: Method, data: Data, work: Work, start: Net, steps: int, stage: str) -> tuple[Net, Fitted]:
    """ERM on the pooled first steps, or IRM or DRO with one domain a step. Chosen on the last step's validation data
    where that is one of them, else on all of theirs."""
    train = list(data.train[:steps])
    if method.weights == "increasing":
        train = [one.weighted(1 / (steps - t)) for t, one in enumerate(train)]
    domains = [pooled(train)] if method.history == "erm" else train
    whole = steps == len(data.train) and method.final == "pooled"
    val = data.val[-1] if whole else pooled(data.val[: min(steps, len(data.val) - 1)])
    return work.tuned(stage, start, domains, val, work.rules.grids["base"], method.history, decays=_decays(method))


def _decays(method: Method) -> str:
    return "l1" if method.regulariser == "l1" else "l2"


Earlier = list[tuple[Net, Samples]]  # models of earlier steps and what they were trained on


def adapt(
    method: Method, work: Work, net: Net, data: Data, t: int, earlier: Earlier, grid: Sequence[Hyper] | None = None
) -> tuple[Net, Fitted]:
    """A network, adapted to step t by the final mode."""
    stage, train, val = f"step {t}", [data.train[t]], data.val[t]
    rules = work.rules
    grid = rules.grids["base"] if grid is None else grid
    if method.final in SIDES:
        sided = adapters.with_sides(net, method.final, _rng(work, "sides", method.final, t))
        return work.tuned(stage, sided, train, val, rules.grids["side"], pulled=("ends", adapters.ends_to_old))
    if method.final in LOW_RANK:
        low = adapters.with_low_rank(net, method.final, method.rank, _rng(work, "low rank", method.final, t))
        return work.tuned(stage, low, train, val, grid)
    pulled, decays = _regular(method, work, net, earlier)
    if method.final in SEARCHES:
        return _searched(method, work, net, data, t, grid, pulled, decays)[0]
    for names in layers.phases(method.final, net.names):
        net = net.copy()
        net.only(names)
        net, fitted = work.tuned(f"{stage}, {'+'.join(names)}", net, train, val, grid, "erm", pulled, decays)
    return net, fitted


def _searched(
    method: Method, work: Work, net: Net, data: Data, t: int, grid: Sequence[Hyper], pulled: Pulled, decays: str
) -> list[tuple[Net, Fitted]]:
    """Every set of blocks tuned by itself; the best `beam` by validation accuracy. Where budgets are to be equal, all
    sets share one grid's number of fits."""
    rule = work.rules.rule
    sets = layers.candidates(method.final, net, data.train[t], rule.normalise, rule.batch)
    grid = grid if work.rules.paper else grid[: max(1, len(grid) // len(sets))]
    found = []
    for names in sets:
        one = net.copy()
        one.only(names)
        stage = f"step {t}, {'+'.join(names)} alone"
        found.append(work.tuned(stage, one, [data.train[t]], data.val[t], grid, "erm", pulled, decays))
    return sorted(found, key=lambda pair: -pair[1].accuracy)[: method.beam]


Pulled = tuple[str, Callable[[Net, Hyper], Sequence[Pull]]] | None


def _regular(method: Method, work: Work, net: Net, earlier: Earlier) -> tuple[Pulled, str]:
    """What training from earlier weights is pulled towards; strength is the grid's decay."""
    kind = method.regulariser
    if kind in ("l2", "l1") or not earlier:
        return None, _decays(method)
    rule = work.rules.rule
    models = earlier if "all" in kind else earlier[-1:]
    targets, importance = [], []
    for model, seen in models:
        params = [p for _, p in model.named_parameters()]
        targets.append([p.detach().clone() for p in params])
        if "fisher" in kind:
            whole = model.copy()
            whole.requires_grad_(True)
            of = list(whole.parameters())
            importance.append(fisher(whole, seen, of, rule.normalise, rule.batch, rule.whole))
    told = f"{kind} {[digest_of(model.state_dict()) for model, _ in models]} {[seen.digest for _, seen in models]}"

    def pulls(one: Net, hyper: Hyper) -> Sequence[Pull]:
        found = []
        for k, target in enumerate(targets):
            pairs, weights = [], []
            for i, (p, other) in enumerate(zip(one.parameters(), target, strict=True)):
                if p.requires_grad:
                    pairs.append((p, other))
                    weights.append(importance[k][i] if importance else None)
            found.append(Pull(pairs, hyper.decay, kind.endswith("l1"), weights if importance else None))
        return found

    return (told, pulls), "pulls"


def _each(method: Method, data: Data, work: Work, start: Net) -> Net:
    """Step after step. A schedule's candidates are whole runs; the one with the best final validation accuracy wins."""
    if method.schedule == "none":
        return _walk(method, data, work, start, None)[0]
    best: tuple[Net, Fitted] | None = None
    for first, change in SCHEDULES[method.schedule]:
        times = len(data.train)
        rates = [first + change * t if method.schedule == "linear" else first * change**t for t in range(times)]
        found = _walk(method, data, work, start, rates)
        if best is None or found[1].accuracy > best[1].accuracy:
            best = found
        if not method.resets:
            start = found[0]
    assert best is not None
    return best[0]


def _walk(method: Method, data: Data, work: Work, start: Net, rates: Sequence[float] | None) -> tuple[Net, Fitted]:
    def grid(t: int) -> list[Hyper]:
        base = work.rules.grids["base"]
        return base if rates is None else list(dict.fromkeys(replace(h, lr=rates[t]) for h in base))

    beam = [work.tuned("step 0", start, [data.train[0]], data.val[0], grid(0), decays=_decays(method))]
    earlier: Earlier = [(beam[0][0], data.train[0])]
    for t in range(1, len(data.train)):
        if method.final in SEARCHES:
            pulled, decays = _regular(method, work, beam[0][0], earlier)
            grown = [_searched(method, work, net, data, t, grid(t), pulled, decays) for net, _ in beam]
            beam = sorted((one for of in grown for one in of), key=lambda pair: -pair[1].accuracy)[: method.beam]
        else:
            beam = [adapt(method, work, beam[0][0], data, t, earlier, grid(t))]
        earlier.append((beam[0][0], data.train[t]))
    return beam[0]


def _joint(method: Method, data: Data, work: Work, start: Net) -> Net:
    """All times at once; chosen on the last step's validation data."""
    times = len(data.train)
    net = adapters.over_times(start, times, method.final, method.shared, _rng(work, "times", method.final))
    if method.final == "all":
        grid = work.rules.grids["joint"]
        return work.tuned("all times", net, data.train, data.val[-1], grid, "joint", ("adjacent", adapters.adjacent))[0]
    return work.tuned("all times", net, data.train, data.val[-1], work.rules.grids["joint-side"], "joint")[0]


def scores(net: Net, x: Any, work: Work) -> Any:
    """(N, C) of the last time's model; x as a stream has it."""
    return scores_of(net, torch.from_numpy(plain(x)).to(work.rules.device), work.rules.rule)
