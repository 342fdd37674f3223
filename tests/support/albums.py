"""Small albums drawn by different rules from the real pictures of ../shared/data, taken from `init` to a report."""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from support.console import document, inside

from driftline.curate.core.atomic_io import csv_text, write_text
from driftline.curate.metadata.columns import safe_id
from driftline.curate.validation.asking.batches import NONE
from driftline.pipelines.annotation.batches import open_batch
from driftline.pipelines.cli.common import context_of_last

LEARNERS = {  # protocol → options
    "clear-iid": ("--learners=nearest-mean",),
    "clear-streaming": ("--learners=nearest-mean",),
    "near-future": ("--learners=nearest-mean", "--set=batch=2"),
    "ocrr": ("--learners=nearest-mean", "--set=held_out=1"),
    "seq-to-final": ("--learners=sft", "--set=val_share=0.3", "--set=epochs=1", "--set=fits=1"),
}
QUICK = ("embed.model=driftline-photo-world", "embed.weights=null")


@dataclass(frozen=True)
class Picture:
    """A picture as its source has it."""

    archive: Path
    member: str
    """name in the archive"""
    label: str
    """"" if nobody knows"""
    year: str
    """four digits, "" if it is not known"""
    month: str
    """two digits, or "" """

    @property
    def file(self) -> str:
        return self.member.rpartition("/")[2]


@dataclass(frozen=True)
class Album:
    """A rule."""

    source: str
    """folder of ../shared/data"""
    take: Callable[[list[Picture]], Sequence[Picture]]
    """all pictures → those of the album"""
    place: Callable[[Picture], str] = lambda p: f"{p.year or 'undated'}/{p.file}"
    """a picture's path in the album"""
    concepts: Sequence[str] = ("apples", "pears")
    sets: Sequence[str] = ()
    """further --set"""
    model: Sequence[str] = QUICK


@cache
def pictures(shared: Path, source: str) -> list[Picture]:
    """All of a source, in its own order."""

    def rows(name: str) -> list[dict[str, str]]:
        return list(csv.DictReader((shared / source / name).open(encoding="utf-8")))

    def in_archive(name: str) -> tuple[Path, set[str]]:
        path = shared / source / name
        with zipfile.ZipFile(path) as archive:
            return path, set(archive.namelist())

    if source == "usda":
        zipped, names = in_archive("usda_pomological.zip")
        table = [(f"images/{r['filename']}", r["label"], r["year"][:4], "") for r in rows("usda_metadata.csv")]
    elif source == "fsac":
        zipped, names = in_archive("fsac_thumbs.zip")
        table = [
            (f"images/{r['filename']}", r["state"], r["year"][:4], f"{int(r['month']):02d}" if r["month"] else "")
            for r in rows("fsac_metadata.csv")
        ]
    elif source == "coco":
        zipped, names = in_archive("coco_subset_256.zip")
        table = [
            (f"images/{r['filename']}", r["coco_categories"].partition(";")[0], *r["est_upload_month"].split("-")[:2])
            for r in rows("coco_subset.csv")
        ]
    else:
        zipped, names = in_archive({"camtrap": "camtrapR_pictures.zip", "exif": "exif_samples.zip"}[source])
        of_species = (name.split("/") for name in sorted(names))
        table = [
            ("/".join(parts), parts[2] if len(parts) == 4 and parts[0] == "sample_images_species_dir" else "", "", "")
            for parts in of_species
        ]
    return [Picture(zipped, *row) for row in table if row[0] in names and not row[0].endswith("/")]


def lay(album: Album, shared: Path, folder: Path) -> dict[str, str]:
    """Write the album's photos into a folder; returns id → label."""
    truth = {}
    for picture in album.take(pictures(shared, album.source)):
        place = folder / album.place(picture)
        place.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(picture.archive) as archive:
            place.write_bytes(archive.read(picture.member))
        truth[safe_id(album.place(picture))] = picture.label
    return truth


@dataclass
class Outcome:
    """How far an album came."""

    photos: int
    """in the folder"""
    ended: str = "report"
    """or the command that refused it"""
    sentence: str = ""
    """of that command"""
    planned: str = ""
    """what `plan` printed"""
    images: int = 0
    """in the release"""
    scores: dict[str, str] = field(default_factory=dict)
    """protocol → "", or why it has none"""


def journey(album: Album, shared: Path, here: Path, protocols: Sequence[str] = tuple(LEARNERS)) -> Outcome:
    """init, plan, run, answers, run, stream, eval, report in `here`. Raises AssertionError for a traceback and for what
    is no number."""
    truth = lay(album, shared, here / "photos")
    outcome, root = Outcome(len(truth)), here / "mine"

    def call(*words: object) -> tuple[int, str]:
        done = inside(*words)
        said = done.stdout + done.stderr
        assert not {"Traceback", "NaN", "nan", "crashed:"} & set(said.split()), f"{words}\n{said}"
        return done.returncode, said

    def refused(command: str, said: str) -> Outcome:
        outcome.ended, outcome.sentence = command, sentence(said)
        return outcome

    concepts = f"retrieve.concepts=[{', '.join(album.concepts)}]"
    sets = [f"--set={s}" for s in ("collection.path=../photos", concepts, *album.model, *album.sets)]
    assert call("init", root, "--preset", "folder", *sets)[0] == 0
    code, outcome.planned = call("plan", root)
    if code:
        return refused("plan", outcome.planned)
    code, said = call("run", root)
    if code == 3:
        answer(root, truth)
        code, said = call("run", root)
    if code:
        return refused("run", said)
    outcome.images = document("status", root)["stages"][-1]["counts"]["kept"]
    assert call("stream", "from-release", root, "--out", here / "stream")[0] == 0
    for protocol in protocols:
        # twice the same: among several, one that the stream is not made for is a named skip, which the report has
        words = ("--protocol", f"{protocol},{protocol}", "--seeds=0", *LEARNERS[protocol], "--out", here / "runs")
        code, said = call("eval", here / "stream", *words)
        outcome.scores[protocol] = said.strip().rpartition("finished. ")[2] if code else ""
    code, said = call("report", here / "runs", "--run", root, "--stream", here / "stream", "--out", here / "report")
    assert code == 0, said
    return outcome


def sentence(said: str) -> str:
    """The error that a command ended with."""
    return said.strip().rpartition("driftline: ")[2]


def answer(root: Path, truth: Mapping[str, str]) -> None:
    """Answer the open batch of a run as the labels say."""
    batch = open_batch(context_of_last(root, None, True))
    header = ("Input.batch", "Input.item", "Answer.labels")
    names = set(batch.facts["concepts"])
    rows = [
        (batch.facts["batch"], item, label if (label := truth[id_]) in names else NONE)
        for item, id_ in batch.facts["items"].items()
    ]
    write_text(root / "answers" / "by-hand.csv", csv_text(header, rows))


def first(n: int, **of: str | Sequence[str]) -> Callable[[list[Picture]], list[Picture]]:
    """The first n pictures whose fields have these values."""

    def take(all_: list[Picture]) -> list[Picture]:
        good = (p for p in all_ if all(getattr(p, k) in ([v] if isinstance(v, str) else v) for k, v in of.items()))
        return list(good)[:n]

    return take


def each(n: int, *fields: str, **of: str | Sequence[str]) -> Callable[[list[Picture]], list[Picture]]:
    """The first n pictures of each combination of `fields`, among those whose fields have these values."""

    def take(all_: list[Picture]) -> list[Picture]:
        count: dict[tuple[str, ...], int] = {}
        chosen = []
        for p in first(len(all_), **of)(all_):
            key = tuple(getattr(p, f) for f in fields)
            count[key] = count.get(key, 0) + 1
            if count[key] <= n:
                chosen.append(p)
        return chosen

    return take


def dated(picture: Picture) -> str:
    """A flat album, the year in each name."""
    return f"{picture.year}-05-01_{picture.file}"


def by_label(picture: Picture) -> str:
    """A folder for each label."""
    return f"{picture.label}/{dated(picture)}"


FRUIT = ("apples", "pears", "cherries")
TEN = tuple(str(year) for year in range(1905, 1915))
OWN = ("collection.label=parent", "validation.method=catalogue", "retrieve.overlap=allow")
STATES = ("California", "Texas", "Nebraska")
SPECIES = ("PBE", "TRA", "MNE", "EGY", "VTA")
DAYS = ("buckets.unit=day",)
ALBUMS = {
    # in the suite
    "one photo": Album("usda", first(1, label="apples", year="1909")),
    "seven photos, flat": Album("usda", first(7, label=FRUIT, year=TEN), dated),
    "undated": Album("usda", first(12, label=FRUIT, year=TEN), lambda p: p.file),
    "one day": Album("usda", first(20, label=FRUIT), lambda p: f"2001-05-01_{p.file}"),
    "one class": Album("usda", first(30, label="apples", year=TEN)),
    "gaps": Album("usda", each(4, "label", "year", label=("apples", "pears"), year=("1890", "1909", "1935"))),
    "nobody's concepts": Album("usda", first(30, label="apples", year=TEN), concepts=("bicycle", "dog", "computer")),
    "own labels": Album("usda", each(2, "label", "year", label=FRUIT, year=TEN[:4]), by_label, FRUIT, OWN),
    "own labels, other concepts": Album("usda", each(2, "year", label="apples", year=TEN), by_label, ("dog",), OWN),
    "own labels, a class vanishes": Album(
        "usda",
        lambda all_: [
            p
            for p in each(2, "label", "year", label=FRUIT, year=TEN[:5])(all_)
            if p.label != "pears" or not "1905" < p.year < "1908"
        ],
        by_label,
        FRUIT,
        OWN,
    ),
    "no model": Album("usda", first(9, label=FRUIT, year=TEN), model=()),
    "camera trap, days": Album(
        "camtrap", lambda all_: [p for p in all_ if p.label], lambda p: p.member, SPECIES[:2], DAYS
    ),
    # by hand
    "two photos": Album("usda", each(1, "label", label=FRUIT[:2], year="1909")),
    "two years, two photos": Album("usda", each(1, "year", label="apples", year=("1909", "1911"))),
    "three photos of a class": Album("usda", first(3, label="apples", year="1909"), by_label, ("apples",), OWN),
    "own labels, one photo": Album("usda", first(1, label="apples", year=TEN), by_label, ("apples",), OWN),
    "own labels, one class": Album("usda", each(5, "year", label="apples", year=TEN), by_label, ("apples",), OWN),
    "own labels, one year": Album("usda", each(10, "label", label=FRUIT, year="1909"), by_label, FRUIT, OWN),
    "own labels, one concept": Album("usda", each(4, "label", "year", label=FRUIT, year=TEN), by_label, FRUIT[:1], OWN),
    "own labels, no background": Album(
        "usda",
        each(4, "label", "year", label=FRUIT, year=TEN),
        by_label,
        FRUIT,
        (*OWN, "retrieve.background_share=0"),
    ),
    "own labels, small per_class": Album(
        "usda", each(8, "label", "year", label=FRUIT, year=TEN), by_label, FRUIT, (*OWN, "retrieve.per_class=10")
    ),
    "own labels, nearest only": Album(
        "usda", each(6, "label", "year", label=FRUIT, year=TEN), by_label, FRUIT, OWN[:2]
    ),
    "own labels, short: fail": Album(
        "usda", each(4, "label", "year", label=FRUIT, year=TEN), by_label, FRUIT, (*OWN, "release.short=fail")
    ),
    "own labels, reopen": Album(
        "usda", each(4, "label", "year", label=FRUIT, year=TEN), by_label, FRUIT, (*OWN, "release.short=reopen")
    ),
    "retrieve.short: fail": Album("usda", first(30, label=FRUIT, year=TEN), sets=("retrieve.short=fail",)),
    "reopen": Album("usda", each(8, "year", label=FRUIT, year=TEN), sets=("release.short=reopen",)),
    "one year": Album("usda", first(40, label=FRUIT, year="1909")),
    "rare classes": Album("usda", each(8, "year", label=FRUIT, year=TEN)),
    "all years": Album("usda", each(2, "year", label=FRUIT)),
    "decades": Album("usda", each(2, "year", label=FRUIT), sets=("buckets.unit=decade",)),
    "equal buckets": Album("usda", each(3, "year", label=FRUIT), sets=("buckets={kind: equal, count: 5}",)),
    "more equal buckets than photos": Album(
        "usda", first(4, label=FRUIT, year=TEN), sets=("buckets={kind: equal, count: 5}",)
    ),
    "cuts with an empty bucket": Album(
        "usda",
        each(6, "label", "year", label=FRUIT, year=("1905", "1910")),
        by_label,
        FRUIT,
        (*OWN, "buckets={kind: cuts, cuts: [1907-01-01, 1908-01-01], unlabelled: []}"),
    ),
    "spans outside the photos": Album(
        "usda",
        first(20, label=FRUIT, year=TEN),
        sets=("buckets={kind: spans, spans: [[2001-01-01, 2002-01-01]], unlabelled: []}",),
    ),
    "nested, months": Album(
        "fsac",
        first(80, year=("1941", "1942")),
        lambda p: f"{p.year}/{p.month or '01'}/{p.label or 'unknown'}/{p.file}",
        STATES,
        ("buckets.unit=month",),
    ),
    "states, own labels": Album(
        "fsac",
        first(200, label=STATES),
        lambda p: f"{p.year or '1940'}-{p.month or '01'}-01/{p.label}/{p.file}",
        STATES,
        OWN,
    ),
    "modern photos": Album(
        "coco", first(60), lambda p: f"{p.year}/{p.month}/{p.file}", ("person", "dog", "car"), ("buckets.unit=year",)
    ),
    "modern photos, the preset's concepts": Album(
        "coco", first(80), lambda p: f"{p.year}/{p.month}/{p.file}", ("bicycle", "dog", "computer")
    ),
    "camera trap, one year": Album(
        "camtrap", lambda all_: [p for p in all_ if p.label], lambda p: p.member, SPECIES[:2]
    ),
    "cameras of all kinds": Album("exif", lambda all_: all_, lambda p: p.member, ("dog", "car")),
}
