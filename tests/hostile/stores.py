"""Further readers of bytes from outside: the SQLite files of a store and of local answers, the list of a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
from hostile.readers import reader
from support.faults import picture

from driftline.curate.core.atomic_io import sha256_bytes, sha256_file, write_array
from driftline.curate.images.shards import shard_path, write_tar
from driftline.curate.retrieval.settings import Concept
from driftline.curate.store.answers import Answers, options_of
from driftline.curate.store.database import Place, open_store, register_run, remember_part, reuse_part
from driftline.curate.store.photos import Asked, history, images_of, keep_misses, keep_shard, outcomes
from driftline.curate.store.upkeep import remove, unneeded, verify
from driftline.curate.store.vectors import Look, keep_vectors, looks, read_vectors

PHOTOS = [picture(seed=i) for i in range(3)]
DIGESTS = [sha256_bytes(photo) for photo in PHOTOS]
URLS = [f"http://h/{i}.jpg" for i in range(4)]
KEY = b"k" * 32
CONCEPTS = (Concept(name="car", prompts=("a car",)),)
LINE = ("answers.csv, line 2", {"WorkerId": "W", "AssignmentId": "A", "WorkTimeInSeconds": "7", "Input.batch": "b1",
                                "Input.item": "i1", "Answer.labels": "car"})  # fmt: skip


def answers(folder: Path) -> Answers:
    return Answers(
        Place(folder / "store"),
        folder / "batches",
        options_of(CONCEPTS),
        lambda ids: dict.fromkeys(ids, DIGESTS[0]),
        "key",
    )


def store(folder: Path) -> None:
    """Photos, a miss, vectors, a finished part, answers."""
    tar, npy = shard_path(folder, 0), folder / "v.npy"
    write_tar(tar, [(f"{i}.jpg", photo) for i, photo in enumerate(PHOTOS)])
    write_array(npy, np.eye(3, 4, dtype=np.float16))
    rows = [{"member": f"{i}.jpg", "sha256": digest, "bytes": len(photo), "width": 20, "height": 16}
            for i, (digest, photo) in enumerate(zip(DIGESTS, PHOTOS, strict=True))]  # fmt: skip
    with open_store(folder / "store") as opened:
        asked = [Asked(url, b"r" * 8, digest, source_sha256=digest) for url, digest in zip(URLS, DIGESTS, strict=False)]
        keep_shard(opened, tar, sha256_file(tar), pa.Table.from_pylist(rows), asked, {DIGESTS[0]: 10**9})
        keep_misses(opened, [Asked(URLS[3], b"r" * 8, None, "http_404", "gone")])
        keep_vectors(opened, "e", npy, {digest: Look(None, 1 << 63, "", i) for i, digest in enumerate(DIGESTS)})
        remember_part(opened, KEY, folder, [tar.name, npy.name])
        register_run(opened, Path("/nowhere"))
    facts = {"batch": "b1", "items": {"i1": "p1"}, "concepts": ["car"], "per_worker": 9}
    answers(folder).take_batch(facts)
    answers(folder).take_lines({"b1": [LINE]})
    for path in (tar, npy):
        path.unlink()


@reader(store)
def store_of_photos(folder: Path) -> None:
    """All that commands do with a store; last they delete what is not needed."""
    place = Place(folder / "store")
    with open_store(place.folder) as opened:
        verify(opened)
        for url, outcome in outcomes(opened, URLS).items():
            assert history(opened, url)
            assert outcome.suffix.isalnum() or not outcome.suffix
        list(images_of(opened, DIGESTS))
        read_vectors(opened, [look for look in looks(opened, "e", DIGESTS).values() if look.fault is None])
    shutil.rmtree(folder / "out", ignore_errors=True)
    reuse_part(place, KEY, folder / "out")
    answers(folder).uncounted({"b1": [LINE]}, ["p1"])
    answers(folder).earlier({"batch": "b2", "items": {"i9": "p1"}})
    with open_store(place.folder) as opened:
        keep_misses(opened, [Asked(URLS[0], b"r" * 8, None, "http_404", "gone")])
        remove(opened, unneeded(opened, DIGESTS[:1]))


def local_answers(folder: Path) -> None:
    from driftline.pipelines.annotation.answer_store import AnswerStore

    batch = {"batch": "b1", "items": {"i1": "p1", "i2": "p2"}, "concepts": ["car"], "workers": 2, "per_worker": 9}
    opened = AnswerStore(folder / "b1.sqlite", batch)
    opened._database.execute("INSERT INTO answers VALUES ('ann', 'i1', '[\"car\"]', 0, 3, 1, 'p', 0)")
    opened._database.execute("PRAGMA journal_mode = DELETE")
    opened.close()


@reader(local_answers)
def answers_in_sqlite(folder: Path) -> None:
    import sqlite3

    from driftline.pipelines.annotation.answer_store import AnswerStore, unstored

    opened = AnswerStore(folder / "b1.sqlite")
    try:
        opened.export(folder / "b1.csv")
    except sqlite3.Error as error:  # as those who call it do
        raise unstored(folder / "b1.sqlite", error) from None
    finally:
        opened.close()
