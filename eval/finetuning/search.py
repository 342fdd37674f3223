"""Selection of hyper-parameters on validation data: every point of the grid."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from driftline.curate.core.atomic_io import fingerprint
from driftline.curate.core.errors import BadConfig, Diverged
from driftline.eval.finetuning.fit import Fit, Fitted, Hyper
from driftline.eval.finetuning.fit_cache import Store


@dataclass(frozen=True)
class Job:
    """A planned fit."""

    identity: Mapping[str, Any]
    """everything that determines its result, as plain data"""
    make: Callable[[], Fit]
    """makes the fit"""
    hyper: Hyper
    """its hyper-parameters"""

    @property
    def key(self) -> str:
        """Its key in the store."""
        return fingerprint(dict(self.identity))


@dataclass
class Book:
    """Record of a method's searches."""

    fits: list[dict[str, Any]] = field(default_factory=list)
    """the selected fit of each stage: key in the store, accuracy, hyper-parameters"""
    tried: int = 0
    """points of all grids"""
    reused: int = 0
    """points that were in the store, from this or another method"""
    steps: int = 0
    """updates of the weights of all points: the cost of the method"""
    seconds: float = 0.0
    """time on one core of all points"""
    dropped: list[str] = field(default_factory=list)
    """errors of points that diverged"""


def best_of(jobs: Sequence[Job], store: Store, book: Book, stage: str) -> Fitted:
    """The fit with the highest validation accuracy, the first of equals.

    Points that diverge are dropped and recorded in the book. Raises Diverged if all do.
    """
    done: dict[int, Fitted | str] = {}
    wait = False
    while len(done) < len(jobs):  # points that another process works on come last
        before = len(done)
        for i, job in enumerate(jobs):
            if i not in done and (result := fitted_or_found(job, store, book, wait)) is not None:
                done[i], wait = result, False
        wait = wait or len(done) == before
    results = [done[i] for i in range(len(jobs))]
    fitted = [(job, result) for job, result in zip(jobs, results, strict=True) if isinstance(result, Fitted)]
    book.tried += len(jobs)
    book.steps += sum(result.steps for _, result in fitted)
    book.seconds += sum(result.seconds for _, result in fitted)
    book.dropped += [f"{stage}: {result}" for result in results if isinstance(result, str)]
    if not fitted:
        problem = f"All {len(jobs)} points of the grid diverged in {stage}: {results[0]}"
        raise Diverged(problem, "", "Lower the learning rates, or use fidelity=clean, which normalises pixels.")
    job, best = max(fitted, key=lambda pair: pair[1].accuracy)
    if not best.state:
        again = fitted_or_found(job, store, Book(), weights=True)
        assert isinstance(again, Fitted)  # it did not diverge before
        best = replace(best, state=again.state)
    record = {"stage": stage, "fit": job.key, "accuracy": best.accuracy, "best_epoch": best.best_epoch}
    book.fits.append(record | {"epochs": len(best.curve) - 1, **asdict(best.hyper)})
    return best


def fitted_or_found(
    job: Job, store: Store, book: Book, wait: bool = True, weights: bool = False
) -> Fitted | str | None:  # fmt: skip
    """A fit, done now or found in the store; the error of one that diverged; None if another process works on it,
    unless `wait`. weights: one without weights does not count as found."""
    key = job.key

    def look_up() -> Fitted | str | None:
        stored = store.get(key)
        return None if weights and isinstance(stored, Fitted) and not stored.state else stored

    if (fitted := look_up()) is not None:
        book.reused += 1
        return fitted
    with store.claim(key, wait) as claimed:
        if not claimed:
            return None
        if (fitted := look_up()) is not None:  # while this process waited
            book.reused += 1
            return fitted
        clock = time.process_time()
        result: Fitted | str
        try:
            result = replace(job.make().run().result(), seconds=time.process_time() - clock)
        except Diverged as error:
            result = str(error)
        store.put(key, result, dict(job.identity), time.process_time() - clock)
        return result


def points(
    lrs: Sequence[float], decays: Sequence[float], dropouts: Sequence[float], adjacents: Sequence[float] = (0.0,)
) -> list[Hyper]:
    """The product, in the order of the arguments. Raises BadConfig for an empty one."""
    grid = [Hyper(lr, d, p, a) for a in adjacents for lr in lrs for d in decays for p in dropouts]
    if not grid:
        raise BadConfig("The grid has no points.", "Expected at least one value for each hyper-parameter.")
    return grid
