"""Jobs for `hostile.faults`: a run of few photos that grows, heals, and cleans its store; what people leave, and their
answers."""

import atexit
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from support.annotated import PEOPLE, annotated_copy
from support.helpers import photo_config
from support.living import context, linked_copy

from driftline.curate.core.seeding import rng_for
from driftline.curate.store.database import open_store, remove, unneeded
from driftline.curate.validation.answers.answer_store import AnswerStore, unstored
from driftline.curate.validation.answers.stored import deletions
from driftline.pipelines.demo.draw import photo
from driftline.pipelines.run import leaving, living
from driftline.pipelines.run.runner import run
from driftline.pipelines.stages.state import folder_of

SOURCE = "{source: delimited, path: table.csv, columns: {url: url, uploaded: uploaded, label: label}}"
RUN_FILE = photo_config("  per_class: 4", collection=SOURCE) + "fetch: {shard_size: 4, retries: 0, backoff: 0}\n"


def served(place: Path) -> list[str]:
    """Photos of three years, and a server in a process of its own; made once. Returns the lines of a table of them."""
    table = place / "table.csv"
    if not table.is_file():
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        place.mkdir()
        lines = ["url,uploaded,label"]
        for i in range(18):
            year, thing = 2010 + i // 6, ("car", "bus")[i % 2]
            photo([thing], 0.2, rng_for(i, thing)).save(place / f"{i}.jpg")
            lines.append(f"http://127.0.0.1:{port}/{i}.jpg,{year},{thing}")
        table.write_text("".join(f"{line}\n" for line in lines))
        command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(place)]
        server = subprocess.Popen(command, env={}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        atexit.register(server.kill)
        while socket.socket().connect_ex(("127.0.0.1", port)):
            time.sleep(0.05)
    return table.read_text().splitlines(keepends=True)


def prepare(job: str, folder: Path) -> None:
    """Put into `folder` what a job starts from: a copy of a run that is built once."""
    place = folder.parents[1]
    lines, base = served(place / "served"), place / job
    if not base.is_dir():
        base.mkdir()
        (base / "driftline.yaml").write_text(RUN_FILE)
        (base / "table.csv").write_text("".join(lines if job in ("heal", "withdraw") else lines[:13]))
        missed = place / "served" / "3.jpg"
        hidden = missed.rename(missed.with_name("hidden"))
        run(context(base), until="embed" if job == "gc" else None)
        hidden.rename(missed)
        (base / "table.csv").write_text("".join(lines))
        if job == "gc":
            (base / "table.csv").write_text("".join(lines[:7]))
            run(context(base), until="embed")
    folder.rmdir()
    linked_copy(base, folder)


def grow(folder: Path) -> None:
    """Six new photos, up to the release."""
    living.grow(context(folder))


def heal(folder: Path) -> None:
    """A photo that was missing is there now."""
    living.heal(context(folder), ["http_404"])


def gc(folder: Path) -> None:
    """Half of the photos are not needed any more."""
    with open_store(folder / "store") as store:
        remove(store, unneeded(store, living.needed_photos([folder])))


def attempts(folder: Path) -> dict[str, Any]:
    """Address → how often it was asked."""
    with open_store(folder / "store") as store:
        return dict(store.base.execute("SELECT hex(address), COUNT(*) FROM attempts GROUP BY 1"))


def withdraw(folder: Path) -> None:
    """Two photos of a release leave the next one."""
    leaving.withdraw_photos(folder, ["0.jpg", "7.jpg"])
    run(context(folder, "release.version=1.0.1"))


def annotated(folder: Path) -> None:
    """Put a run with a release into `folder`, whose images two people answered."""
    annotated_copy(folder)


def forget(folder: Path) -> None:
    """Delete what is known of them; a job that was done has nobody left."""
    if not deletions(folder / "run") or (folder / "run" / leaving.INTENT).is_file():
        leaving.forget(context(folder / "run"), yes=True)


def left_of_people(folder: Path) -> dict[str, Any]:
    """Files with a name, how often people were deleted, and the labels that stay."""
    root = folder / "run"
    files = [
        path for path in root.rglob("*") if path.is_file() and any(n.encode() in path.read_bytes() for n in PEOPLE)
    ]
    labels = pq.read_table(folder_of(root, "tally") / "labels.parquet").to_pylist()
    return {"named": [p.name for p in files], "times": len(deletions(root)), "labels": labels}


BATCH = {"batch": "b", "items": {str(i): str(i) for i in range(6)}, "concepts": ["car", "bus"], "workers": 2}


def annotate(folder: Path) -> None:
    """Six answers; each acknowledged one is noted outside the folder, where no fault happens. Then the export. What
    SQLite says of a full disk is a sentence, as on the page."""
    try:
        _six_answers(folder)
    except sqlite3.Error as error:
        raise unstored(folder / "b.sqlite", error) from None


def _six_answers(folder: Path) -> None:
    with closing(AnswerStore(folder / "b.sqlite", BATCH)) as store:
        for item in store.following("ann", 6):
            store.answer("ann", item, ["bus" if int(item) % 2 else "car"], False, 2)
            with folder.with_name("acknowledged").open("a") as file:
                file.write(f"{item}\n")
            if len(store.answered("ann")) == 3:
                store.undo("ann")
                store.answer("ann", item, ["car", "bus"], False, 2)
        store.export(folder / "b.csv")


def answers(folder: Path) -> list[Any]:
    """Who answered what, acknowledged answers that are lost, and lines of the export."""
    with closing(AnswerStore(folder / "b.sqlite", BATCH)) as store:
        there = store.answered("ann")
    lost = set(folder.with_name("acknowledged").read_text().split()) - there
    return [sorted(there), sorted(lost), (folder / "b.csv").read_text().count("\n")]
