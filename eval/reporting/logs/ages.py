"""`dl.age`: the log of a model in service, from Python."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadInput
from driftline.eval import outcomes
from driftline.eval import rows as row_files
from driftline.eval.logs.age import Aged, aged
from driftline.eval.logs.cells import Ints, rows_of_cells
from driftline.eval.logs.periods import day_of
from driftline.eval.logs.reading import NONE
from driftline.eval.protocol import OF_LOGS
from driftline.eval.reporting.logs.document import document
from driftline.eval.reporting.logs.page import write
from driftline.eval.rows import Answers, Row, folder_name

LEARNER = "model"


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


def write_runs(aged: Aged, out: Path) -> list[Path]:
    """A folder for each version with complete cells, as `driftline eval` writes runs; returns them. Steps are periods:
    a version is trained up to the one in which its training data ends, and tested on what it answered in that one and
    in later ones. Raises BadInput for versions with one folder name."""
    cells, log = aged.cells, aged.source
    use = np.flatnonzero(cells.usable)
    trained = np.array(aged.trained)[cells.version]
    steps = np.unique(np.concatenate([trained[use], cells.period[use]]))
    rows = rows_of_cells(cells)
    labelled = {}
    for k in use.tolist():
        labelled[k] = rows[k][log.label[rows[k]] != NONE]
    ids = np.unique(np.concatenate([log.id[of] for of in labelled.values()]))
    stream = {"name": "log", "sha256": hashlib.sha256(ids.tobytes() + steps.tobytes()).hexdigest()}
    starts = [aged.periods.start(period) for period in steps.tolist()]
    timeline = {"names": [day_of(start) for start in starts], "dates": starts}
    folders: dict[Path, str] = {}
    for v in np.unique(cells.version[use]).tolist():
        name = aged.versions[v].name
        tests = []
        for k in use[cells.version[use] == v].tolist():
            test, learned_to = (int(np.searchsorted(steps, at)) for at in (cells.period[k], trained[k]))
            tests.append(_row(aged, labelled[k], ids, test, learned_to))
        if (folder := out / folder_name(name)) in folders:
            raise BadInput(f"Versions {folders[folder]!r} and {name!r} have one folder name.", "Expected other names.")
        folders[folder] = name
        about = {
            "protocol": OF_LOGS, "protocol_settings": {}, "learner": LEARNER, "settings": {"version": name}, "seed": 0,
            "stream": stream, "steps": len(steps), "stored_bytes": 0, "gradient_steps": 0, "seconds": 0.0,
            "timeline": timeline,
        }  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        outcomes.write(folder / outcomes.FILE, outcomes.table(tests))
        row_files.save(folder, about, tests)
    return list(folders)


def _row(aged: Aged, of: Ints, ids: npt.NDArray[np.uint64], test: int, learned_to: int) -> Row:
    log = aged.source
    label, answer = log.label[of], log.prediction[of]
    sure = None if log.score is None else log.score[of]
    hit, size = label == answer, len(log.classes)
    return Row(
        str(test), len(of), int(hit.sum()), learned_to, last_change=learned_to,
        class_n=np.bincount(label, minlength=size).tolist(),
        class_correct=np.bincount(label[hit], minlength=size).tolist(),
        answers=Answers(np.searchsorted(ids, log.id[of]), label, answer, sure),
    )  # fmt: skip
