"""A small run with a release, whose images two people answered: one on the page, one of a crowd."""

import atexit
import shutil
import sqlite3
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

from support.helpers import album, photo_config
from support.living import context as context_of

from driftline.curate.core.atomic_io import csv_text, write_text
from driftline.curate.validation.answers.answer_store import COLUMNS
from driftline.curate.validation.asking.batches import NONE
from driftline.pipelines.annotation.batches import open_batch
from driftline.pipelines.annotation.server import answer_store_of
from driftline.pipelines.run.runner import run

PEOPLE = ("ZoeCanary", "CrowdCanary")  # on the page of this machine; in results of a crowd
CROWD = "{method: crowd, workers: 2, agree: 2}"
WRONG = "2011-05-01"  # photos of this day get other answers


def answer(root: Path, *changes: str) -> int:
    """Two people answer the open batch; returns how many images they were asked."""
    context = context_of(root, *changes)
    batch = open_batch(context).facts
    lines = []
    with closing(answer_store_of(context)) as store:
        for item, id_ in batch["items"].items():
            label = next(thing for thing in ("car", "bus") if thing in id_)
            labels = [NONE] if WRONG in id_ else [label]
            store.answer(PEOPLE[0], item, labels, False, 2)
            assignment = f"CanaryAssignment-{item}"
            lines.append((item, assignment, PEOPLE[1], "Submitted", "", 3, batch["batch"], item, label, "no", ""))
        store.skip(PEOPLE[0], item)
    write_text(root / "answers" / f"crowd-{batch['batch']}.csv", csv_text(COLUMNS, lines))
    return len(lines)


@cache
def annotated() -> Path:
    """The folder itself, which is not to be changed."""
    place = Path(tempfile.mkdtemp(prefix="driftline-annotated-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    root = place / "run"
    album(root / "photos", 4)
    (root / "driftline.yaml").write_text(photo_config("  per_class: 4", validation=CROWD))
    run(context_of(root))
    assert answer(root) == 23
    run(context_of(root))
    return root


def annotated_copy(out: Path) -> Path:
    """A copy in `out`, with its photos and its store."""
    copy = Path(shutil.copytree(annotated(), out / "run"))
    with closing(sqlite3.connect(copy / "store" / "index.sqlite")) as base, base:
        base.execute("UPDATE runs SET path = ?", (str(copy),))
    return copy
