"""`dl.age`: the log of a model in service, from Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driftline.eval.logs.age import Aged, aged
from driftline.eval.reporting.logs.document import document
from driftline.eval.reporting.logs.page import write
from driftline.eval.reporting.logs.runs import write_runs


@dataclass(frozen=True, repr=False)
class Ages(Aged):
    """What a log says about ageing, with ways to show it."""

    def json(self, alarm: str | None = None) -> dict[str, Any]:
        """What `driftline age --json` prints. alarm: a limit, as in accuracy<0.8."""
        return document(self, alarm)

    def page(self, out: str | Path) -> Path:
        """Write the page, a file that ends with .html or a folder, and age.json beside it; returns its path."""
        return write(self, Path(out))

    def runs(self, out: str | Path) -> list[Path]:
        """Write each version as a run, which compare, report and the ageing functions read; returns their folders."""
        return write_runs(self, Path(out))

    def __repr__(self) -> str:
        names = ", ".join(one.name for one in self.versions)
        return f"<{len(self.source):,} predictions of {names} in {len(self.periods)} {self.periods.unit}s>"


def age(
    log: Any, *, versions: Any = None, labels: Any = (), columns: Mapping[str, str] | None = None,
    period: str | int = "auto", until: str | int | None = None, cost_error: float | None = None,
    cost_retrain: float | None = None, seed: int = 0,
) -> Ages:  # fmt: skip
    """How fast a model in service ages, from its log; parameters as of `driftline age`.

    log, labels: one or several files, data frames, Arrow tables, rows, or columns by name. versions: the same, or names
    with the dates to which they are trained. Raises MissingFile, BadInput and BadConfig.
    """
    facts = aged(
        log, versions=versions, labels=labels, columns=columns, period=period, until=until, cost_error=cost_error,
        cost_retrain=cost_retrain, seed=seed,
    )  # fmt: skip
    return Ages(**vars(facts))
