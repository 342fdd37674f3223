"""A stage of a method: every point of a grid is fitted, the best by validation accuracy wins. Fits are stored by data,
starting weights, objective, hyper-parameters, rule and seed.

Methods with the same first stage (FT, LP-FT and ST on one history model), sequences with the same end (CLR and RCL) and
interrupted runs reuse finished fits. Several processes, also on several machines with one folder, share a grid: each
takes fits that no other process works on.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import check_format, fingerprint, read_json, write_bytes, write_json
from driftline.curate.core.errors import Diverged
from driftline.curate.core.own_code import HOME, code_of
from driftline.curate.core.system import lock
from driftline.eval.finetuning.fit import Fit, Fitted
from driftline.eval.finetuning.modes import OBJECTIVES, Hyper, Rules
from driftline.eval.finetuning.objectives import Pull, Samples
from driftline.eval.nets.chain import Net

FORMAT = 1
NUMBERS = ("accuracy", "best_epoch", "curve", "steps")
WEIGHTS = "best.safetensors"


@dataclass
class Fits:
    """Finished fits in a folder or in memory."""

    folder: Path | None = None
    """folder; None keeps fits in memory, for this process"""
    in_memory: dict[str, Fitted | str] = field(default_factory=dict)

    def get(self, key: str) -> Fitted | str | None:
        """A finished fit, without weights if `thin` deleted them; the error of one that diverged; None if it was not
        done yet. Raises BadInput for a fit of another version."""
        if self.folder is None:
            return self.in_memory.get(key)
        place = self.place(key)
        if not (place / "fit.json").is_file():
            return None
        about = read_json(place / "fit.json")
        check_format(place / "fit.json", about.get("format"), FORMAT, "Delete the folder.")
        if "diverged" in about:
            return str(about["diverged"])
        from safetensors.torch import load_file

        state = load_file(place / WEIGHTS) if (place / WEIGHTS).is_file() else {}
        result = {name: about[name] for name in (*NUMBERS, "seconds")}
        return Fitted(state, hyper=Hyper(**about["hyper"]), **result)

    def put(self, key: str, fitted: Fitted | str, identity: dict[str, Any], seconds: float) -> None:
        """Store a finished fit, or the error of one that diverged."""
        if self.folder is None:
            self.in_memory[key] = fitted
            return
        from safetensors.torch import save

        place = self.place(key)
        about: dict[str, Any] = {"format": FORMAT, "identity": identity, "seconds": round(seconds, 3)}
        if isinstance(fitted, str):
            about["diverged"] = fitted
        else:
            write_bytes(place / WEIGHTS, save({k: v.contiguous().cpu() for k, v in fitted.state.items()}))
            about |= {name: getattr(fitted, name) for name in NUMBERS}
            about["hyper"] = asdict(fitted.hyper)
        write_json(place / "fit.json", about)

    def thin(self) -> int:
        """Delete the weights of all finished fits in the folder; returns their bytes. What the fits found stays, and
        one whose weights are needed is done again (`search.best_of`)."""
        freed = 0
        for path in sorted(self.folder.glob("*/*/fit.json")) if self.folder else ():
            if (weights := path.with_name(WEIGHTS)).is_file():
                freed += weights.stat().st_size
                weights.unlink()
        return freed

    def place(self, key: str) -> Path:
        """The fit's folder."""
        assert self.folder is not None
        return self.folder / key[:2] / key

    @contextmanager
    def claim(self, key: str, wait: bool) -> Iterator[bool]:
        """Whether this process may do the fit, because no other process does. wait: until the other one has finished.
        The claim ends with the process, even after a crash."""
        if self.folder is None:
            yield True
            return
        self.place(key).mkdir(parents=True, exist_ok=True)
        with (self.place(key) / "claim").open("w") as file:
            yield lock(file, wait)


def digest_of(state: dict[str, Any]) -> str:
    """SHA-256 of a network's state: names, shapes and values."""
    digest = hashlib.sha256()
    for name, value in sorted(state.items()):
        digest.update(f"{name}{tuple(value.shape)}".encode())
        digest.update(value.contiguous().cpu().numpy().tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Job:
    """A planned fit."""

    identity: Mapping[str, Any]
    """everything that determines its result, as plain data"""
    make: Callable[[], Fit]

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
    points: int = 0
    """the same, if no number of fits ended a grid before"""
    reused: int = 0
    """points that were in the store, from this or another method"""
    steps: int = 0
    """updates of the weights of all points: the cost of the method"""
    seconds: float = 0.0
    """time on one core of all points"""
    dropped: list[str] = field(default_factory=list)
    """errors of points that diverged"""


def best_of(jobs: Sequence[Job], store: Fits, book: Book, stage: str) -> Fitted:
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
    job: Job, store: Fits, book: Book, wait: bool = True, weights: bool = False
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


@dataclass
class Work:
    """What the stages of one run share."""

    rules: Rules
    seed: int
    """of the run, the same for every method, so that equal first stages are one fit"""
    store: Fits
    book: Book = field(default_factory=Book)
    stages: int = 1
    """stages of the method, which share its fits"""
    stage: int = 0

    def grid(self, kind: str, lr: float | None = None, least: int = 1) -> list[Hyper]:
        """Points of the next stage. kind: key of `Rules.grids`. lr: instead of the grid's learning rates. least: points
        that the stage needs even if its share of the fits is smaller."""
        points = self.rules.grids[kind]
        if lr is not None:
            points = list(dict.fromkeys(replace(point, lr=lr) for point in points))
        self.book.points += len(points)
        if not self.rules.fits:
            return points
        first, last = (k * self.rules.fits // self.stages for k in (self.stage, self.stage + 1))
        self.stage += 1
        return points[: max(least, last - first)]

    def tuned(
        self, stage: str, net: Net, train: Sequence[Samples], val: Samples, hypers: Sequence[Hyper],
        objective: str = "erm", pulled: tuple[str, Callable[[Net, Hyper], Sequence[Pull]]] | None = None,
        decays: str = "l2", terms: Mapping[str, Any] | None = None, renews: bool = False,
    ) -> tuple[Net, Fitted]:  # fmt: skip
        """The network with its best weights, and their fit. net: the start; its trainable parts learn. pulled: a
        description that identifies the pulls, and a function that makes those of a copy. The others: as in `Fit`.

        Raises Diverged if every point does."""
        code = HOME if objective == "joint" else code_of(OBJECTIVES.resolve(objective))
        base: dict[str, Any] = {
            "net": self.rules.network,
            "uses": net.used,
            "start": digest_of(net.state_dict()),
            "learns": [name for name, p in net.named_parameters() if p.requires_grad],
            "train": [domain.digest for domain in train],
            "val": val.digest,
            "objective": objective,
            "rule": asdict(self.rules.rule),
            "seed": self.seed,
            "pulled": pulled[0] if pulled else "",
            "made": net.additions,
            "decays": decays,
            "compiled": self.rules.compiled,
            "terms": dict(terms or {}),
            "code": "" if code == HOME else code,  # of one's own: a changed one must not find its older fits
        }

        def job(hyper: Hyper) -> Job:
            how: Any = {name: base[name] for name in ("objective", "terms", "decays", "compiled")} | {"renews": renews}
            how |= {"pulls_of": lambda copy: pulled[1](copy, hyper)} if pulled else {}
            fit = (train, val, hyper, self.rules.rule, self.seed)
            return Job(base | {"hyper": asdict(hyper)}, lambda: Fit(net.copy(), *fit, **how))

        fitted = best_of(list(map(job, hypers)), self.store, self.book, stage)
        best = net.copy()
        best.load_state_dict(fitted.state)
        best.fits = [*net.fits, self.book.fits[-1]["fit"]]
        return best, fitted
