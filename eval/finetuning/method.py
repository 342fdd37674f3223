"""A method is a history mode and a final mode; shared parts are written once, here [paper, Table 1; spec, section 3].

`driftline.eval.learners.seq_to_final` has the table of the paper's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from driftline.curate.core.seeding import rng_for
from driftline.eval.finetuning import adapters, objectives
from driftline.eval.finetuning.fit import Fitted
from driftline.eval.finetuning.modes import FROZEN_JOINT, LOW_RANK, SEARCHES, SIDES, Hyper, Method
from driftline.eval.finetuning.objectives import Pull, Samples, fisher, pooled
from driftline.eval.finetuning.search import Work, digest_of
from driftline.eval.nets import build
from driftline.eval.nets.chain import Net

LEAST_RATE = 0.1  # share of a linear schedule's first learning rate that its last step has
FISHER = 1e4  # clean: strength of a pull by Fisher information of single samples for a decay of 1
SCHEDULES = {  # learning rate of the first step, and its change per step [spec, section 3, SFT]
    "linear": ((1e-3, -1e-4), (1e-4, -1e-5)),
    "exponential": ((2e-3, 0.5), (2e-4, 0.5), (2e-4, 0.75)),
}


@dataclass(frozen=True)
class Data:
    """The data of a run."""

    train: Sequence[Samples]
    """training data, one entry per step"""
    val: Sequence[Samples]
    """validation data, one entry per step"""


def run(method: Method, data: Data, work: Work, n_classes: int, x_shape: tuple[int, ...]) -> Net:
    """The trained network; the model of its last time predicts for the last step."""
    start = build(work.rules.network, n_classes, x_shape, _rng(work, "start", work.rules.network))
    start = start.to(work.rules.device)
    work.stages = stages_of(method, len(data.train), start.names)
    if method.history == "joint":
        return _joint(method, data, work, start)
    if method.history == "each":
        return _each(method, data, work, start)
    if method.mode == "pooled":
        return _pooled(method, data, work, start, len(data.train), "all steps")[0]
    if method.history == "none":
        return adapt(method, work, start, data, len(data.train) - 1, [], start)[0]
    steps = len(data.train) if method.sees_final else len(data.train) - 1
    net, _ = _pooled(method, data, work, start, steps, "history")
    earlier = [(net, pooled(data.train[:-1]))]
    return adapt(method, work, net, data, len(data.train) - 1, earlier, start)[0]


def _rng(work: Work, *names: str | int) -> np.random.Generator:
    return rng_for(work.seed, "to-final", *names)


def _pooled(method: Method, data: Data, work: Work, start: Net, steps: int, stage: str) -> tuple[Net, Fitted]:
    """ERM on the pooled first steps, or IRM or DRO with one domain per step. Selected on the last step's validation
    data if the last step is one of them, else on the validation data of all of them."""
    train = list(data.train[:steps])
    if (weights := method.step_weights(len(data.train), steps)) is not None:
        train = [samples.weighted(weight) for samples, weight in zip(train, weights, strict=True)]
    domains = [pooled(train)] if method.history == "erm" else train
    whole = steps == len(data.train) and method.mode == "pooled"
    val = data.val[-1] if whole else pooled(data.val[: min(steps, len(data.val) - 1)])
    terms = {"penalty": method.irm_penalty} if method.irm_penalty != 1 else {}
    grid = work.grid("base")
    return work.tuned(stage, start, domains, val, grid, method.history, decays=_decays(method), terms=terms)


def _decays(method: Method) -> str:
    return "l1" if method.regulariser == "l1" else "l2"


Earlier = list[tuple[Net, Samples]]  # models of earlier steps and their training data


def adapt(
    method: Method, work: Work, net: Net, data: Data, t: int, earlier: Earlier, first: Net, lr: float | None = None
) -> tuple[Net, Fitted]:
    """The network, adapted to step t by the final mode. first: the untrained network. lr: instead of the grid's
    learning rates."""
    stage, train, val = f"step {t}", [data.train[t]], data.val[t]
    if method.mode in SIDES:
        rng = _rng(work, "sides", method.mode, t)
        sided = adapters.with_sides(net, method.mode, rng, method.new_ends)
        pulled: Pulled = ("ends", adapters.ends_to_old) if method.new_ends else None
        return work.tuned(stage, sided, train, val, work.grid("side" if pulled else "base"), pulled=pulled)
    if method.mode in LOW_RANK:
        low = adapters.with_low_rank(net, method.mode, method.rank, _rng(work, "low rank", method.mode, t))
        return work.tuned(stage, low, train, val, work.grid("base", lr))
    pulled, decays = _regular(method, work, net, earlier)
    net = first if method.start == "new" else net
    if method.mode in SEARCHES:
        return _searched(method, work, net, data, t, lr, pulled=pulled, decays=decays)[0]
    objective, terms = "erm", {}
    if method.mode == FROZEN_JOINT:
        net = adapters.beside_frozen(earlier[-1][0], net)
        objective, train = "joint", [earlier[-1][1], *train]
        terms = {"weights": [1.0, 2.0]}  # of two: the last step's loss counts as alone
    for names in adapters.phases(method.mode, net.names):
        net = net.copy()
        net.only(names)
        grid = _strong(method, work, decays, work.grid("base", lr))
        stage_names = f"{stage}, {'+'.join(names)}"
        net, fitted = work.tuned(
            stage_names, net, train, val, grid, objective, pulled=pulled, decays=decays, terms=terms
        )
    return net, fitted


def _searched(
    method: Method, work: Work, net: Net, data: Data, t: int, lr: float | None, pulled: Pulled, decays: str
) -> list[tuple[Net, Fitted]]:
    """Every set of blocks tuned separately, with every learning rate; the best `beam` by validation accuracy."""
    rule = work.rules.rule
    sets = adapters.candidates(method.mode, net, data.train[t], rule.normalise, rule.batch)
    rates = 1 if lr is not None else len({point.lr for point in work.rules.grids["base"]})
    tuned = []
    for names in sets:
        candidate = net.copy()
        candidate.only(names)
        stage = f"step {t}, {'+'.join(names)} alone"
        grid = _strong(method, work, decays, work.grid("base", lr, least=rates))
        tuned.append(work.tuned(stage, candidate, [data.train[t]], data.val[t], grid, pulled=pulled, decays=decays))
    return sorted(tuned, key=lambda pair: -pair[1].accuracy)[: method.beam]


def _strong(method: Method, work: Work, decays: str, grid: Sequence[Hyper]) -> Sequence[Hyper]:
    """The grid; for clean pulls by Fisher information with stronger ones. Squared gradients of single samples are so
    small that the paper's strengths, meant for those of whole batches on raw pixels, do nothing."""
    if decays != "pulls" or "fisher" not in method.regulariser or work.rules.paper:
        return grid
    return [replace(point, decay=FISHER * point.decay) for point in grid]


Pulled = tuple[str, Callable[[Net, Hyper], Sequence[Pull]]] | None


def _regular(method: Method, work: Work, net: Net, earlier: Earlier) -> tuple[Pulled, str]:
    """The pull of training from earlier weights, and which penalty the grid's decay is the strength of."""
    kind = method.regulariser
    if kind in ("l2", "l1") or not earlier:
        return None, _decays(method)
    rule = work.rules.rule
    models = earlier if "all" in kind else earlier[-1:]
    targets, importance = [], []
    for model, seen in models:
        targets.append([p.detach().clone() for p in model.newest()])
        if "fisher" in kind:
            copy = model.copy()
            copy.requires_grad_(True)
            importance.append(fisher(copy, seen, copy.newest(), rule.normalise, rule.batch, rule.whole))
    description = (
        f"{kind} {[digest_of(model.state_dict()) for model, _ in models]} {[seen.digest for _, seen in models]}"
    )

    def pulls(trained: Net, hyper: Hyper) -> Sequence[Pull]:
        result = []
        for k, target in enumerate(targets):
            pairs, weights = [], []
            for i, (p, other) in enumerate(zip(trained.newest(), target, strict=True)):
                if p.requires_grad:
                    pairs.append((p, other))
                    weights.append(importance[k][i] if importance else None)
            result.append(Pull(pairs, hyper.decay, kind.endswith("l1"), weights if importance else None))
        return result

    return (description, pulls), "pulls"


def _each(method: Method, data: Data, work: Work, start: Net) -> Net:
    """Step after step. The candidates of a schedule are whole runs; the best final validation accuracy wins."""
    if method.schedule == "none":
        return _step_by_step(method, data, work, start, None)[0]
    best: tuple[Net, Fitted] | None = None
    for first, change in SCHEDULES[method.schedule]:
        result = _step_by_step(method, data, work, start, rates_of(method.schedule, first, change, len(data.train)))
        if best is None or result[1].accuracy > best[1].accuracy:
            best = result
        if not method.resets:
            start = result[0]
    assert best is not None
    return best[0]


def rates_of(schedule: str, first: float, change: float, steps: int) -> list[float]:
    """Learning rate of each step. Linear ones fall by the paper's `change`; over more than ten steps, where they would
    reach zero, by so much less that the last is a tenth of the first.

    >>> [round(1e3 * rate, 2) for rate in rates_of("linear", 1e-3, -1e-4, 4)]
    [1.0, 0.9, 0.8, 0.7]
    """
    if schedule == "exponential":
        return [first * change**t for t in range(steps)]
    change = max(change, -(1 - LEAST_RATE) * first / max(1, steps - 1))
    return [first + change * t for t in range(steps)]


def stages_of(method: Method, steps: int, names: Sequence[str]) -> int:
    """Searches of hyper-parameters that a method makes. names: of the network's blocks."""
    if method.history == "joint" or method.mode == "pooled":
        return 1
    if method.mode in SEARCHES:
        each = len(names) + (method.mode == "search")
    else:
        added = method.mode in (*SIDES, *LOW_RANK)
        each = 1 if added else len(adapters.phases(method.mode, names))
    if method.history != "each":
        return each + (method.history != "none")
    searched = method.beam if method.mode in SEARCHES else 1
    return len(SCHEDULES.get(method.schedule, (1,))) * (1 + each * (1 + searched * (steps - 2)))


def _step_by_step(
    method: Method, data: Data, work: Work, start: Net, rates: Sequence[float] | None
) -> tuple[Net, Fitted]:
    lrs = [None] * len(data.train) if rates is None else rates
    grid = work.grid("base", lrs[0])
    beam = [work.tuned("step 0", start, [data.train[0]], data.val[0], grid, decays=_decays(method))]
    earlier: Earlier = [(beam[0][0], data.train[0])]
    for t in range(1, len(data.train)):
        if method.mode in SEARCHES:
            pulled, decays = _regular(method, work, beam[0][0], earlier)
            more: Any = {"pulled": pulled, "decays": decays}
            begins = [start if method.start == "new" else net for net, _ in beam]
            grown = [p for net in begins for p in _searched(method, work, net, data, t, lrs[t], **more)]
            beam = sorted(grown, key=lambda pair: -pair[1].accuracy)[: method.beam]
        else:
            beam = [adapt(method, work, beam[0][0], data, t, earlier, start, lr=lrs[t])]
        earlier.append((beam[0][0], data.train[t]))
    return beam[0]


def _joint(method: Method, data: Data, work: Work, start: Net) -> Net:
    """All times at once; selected on the last step's validation data."""
    times, whole = len(data.train), method.mode == "all"
    rng = _rng(work, "times", method.mode)
    net = adapters.over_times(start, times, method.mode, method.sharing, rng, not whole and method.new_ends)
    kind = "joint" if whole else "joint-side"
    grid = work.grid(kind, least=len({point.adjacent for point in work.rules.grids[kind]}))
    plain = method.regulariser in ("l2", "l1")
    decays = _decays(method) if plain else "pulls"
    weights = method.step_weights(times, times)
    terms = {}
    if weights is not None or method.last_weight != objectives.LAST_WEIGHT:
        of = weights or [1.0] * times
        terms = {"weights": [*of[:-1], of[-1] * method.last_weight]}
    pulled: Pulled = None
    if whole and plain:
        pulled = "adjacent", adapters.between_times
    elif whole:
        pulled = method.regulariser, partial(_between, method, data, work)
    by_information = "fisher" in method.regulariser
    if by_information and not work.rules.paper:
        grid = [replace(point, adjacent=FISHER * point.adjacent) for point in grid]
    more: Any = {"pulled": pulled, "decays": decays, "terms": terms, "renews": by_information}
    return work.tuned("all times", net, data.train, data.val[-1], grid, "joint", **more)[0]


def _between(method: Method, data: Data, work: Work, net: Net, hyper: Hyper) -> Sequence[Pull]:
    """The pulls between times, by Fisher information of the earlier time's model on its own step where asked."""
    rule = work.rules.rule

    @cache
    def importance(time: int) -> dict[int, Any]:
        params = net.newest(time)
        of = fisher(net, data.train[time], params, rule.normalise, rule.batch, rule.whole, time)
        return {id(p): each for p, each in zip(params, of, strict=True)}

    by_information = importance if "fisher" in method.regulariser else None
    return adapters.between_times(net, hyper, method.regulariser, by_information)
