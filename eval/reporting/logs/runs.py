"""The versions of a log as runs, so that `compare`, `report` and the ageing functions read them.

Steps are periods: a version is trained up to the one in which its training data ends, and tested on what it answered in
that one and in later ones.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadInput
from driftline.eval import outcomes
from driftline.eval import rows as row_files
from driftline.eval.logs.age import Aged
from driftline.eval.logs.cells import Ints, rows_of_cells
from driftline.eval.logs.periods import day_of
from driftline.eval.logs.reading import NONE
from driftline.eval.protocol import OF_LOGS
from driftline.eval.rows import Answers, Row, folder_name

LEARNER = "model"


def write_runs(aged: Aged, out: Path) -> list[Path]:
    """A folder for each version with complete cells, as `driftline eval` writes runs; returns them. Raises
    BadInput for versions with one folder name."""
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
    starts = [aged.start_of(period) for period in steps.tolist()]
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
