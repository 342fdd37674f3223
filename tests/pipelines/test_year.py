"""An album that grows for a year: twelve months, two annotators, a kill a month, and a release each time."""

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.console import document, inside
from support.living import context, grow_killed

from driftline.curate.core.seeding import rng_for
from driftline.curate.metadata.columns import safe_id
from driftline.curate.release import Release
from driftline.curate.validation.asking.batches import NONE
from driftline.pipelines.annotation.server import answer_store_of
from driftline.pipelines.demo.draw import photo
from driftline.pipelines.stages import STAGES
from driftline.pipelines.stages.state import folder_of

pytestmark = pytest.mark.proof("journey")

CONFIG = """
collection: {{source: folder, path: photos, dates: [path]}}
filter: {{upload_after_capture: false}}
buckets: {{kind: calendar, unit: month, unlabelled: []}}
embed: {{model: driftline-photo-world}}
retrieve:
  per_class: {per_class}
  depth: 20
  background_share: 0
  short: fewer
  concepts: [car, bus, camera]
validation: {{method: crowd, workers: 2, agree: 2, platform: turkle}}
release: {{per_class: 6, splits: 1, short: fewer, own: true, ids: path, version: {version}{after}}}
"""
MONTHS = {  # month → how many photos show what; the rest of the year's things have none
    1: {"car": 3, "bus": 3}, 2: {"car": 3, "bus": 2, "camera": 2}, 3: {"car": 4}, 4: {"car": 2, "camera": 3},
    5: {"car": 2, "bus": 2, "camera": 2}, 6: {"bus": 3, "lamp": 2}, 7: {"car": 3, "bus": 2}, 8: {"car": 1},
    9: {"lamp": 3}, 10: {"car": 2, "bus": 2, "camera": 2}, 11: {"camera": 4}, 12: {"car": 3, "bus": 3, "camera": 1},
}  # fmt: skip
WITHDRAWN = (4, 7, 11)  # months in which a photo of the last release is withdrawn
WIDER = 6  # from this month on more candidates are asked about, in every bucket
PEOPLE = ("Zoë O'Neill", "bob")


class Year:
    """The run, its photos, and what people typed."""

    def __init__(self, folder: Path) -> None:
        self.root, self.releases = folder / "run", folder / "releases"
        self.truth: dict[str, str] = {}
        self.typed: Counter[tuple[str, str]] = Counter()

    def arrive(self, month: int, things: Mapping[str, int]) -> None:
        """The photos of a month, without their label in the name."""
        names = [thing for thing, n in things.items() for _ in range(n)]
        for i, thing in enumerate(names):
            path = self.root / "photos" / f"2019-{month:02d}" / f"2019-{month:02d}-{i + 1:02d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            photo([thing], 0.3, rng_for(0, "year", month, i)).save(path)
            self.truth[safe_id(path.relative_to(self.root / "photos").as_posix())] = thing

    def configure(self, month: int) -> None:
        """The settings of a month: it names the release before."""
        after = f", previous: ../releases/{month - 1}" if month > 1 else ""
        text = CONFIG.format(per_class=2 if month < WIDER else 3, version=f"1.{month}.0", after=after)
        (self.root / "driftline.yaml").write_text(text)

    def answer(self) -> int:
        """Both people answer all that the page asks; returns how many answers."""
        store = answer_store_of(context(self.root))
        before = self.typed.total()
        for who in PEOPLE:
            while coming := store.following(who, 1):
                id_ = store.batch["items"][coming[0]]
                thing = self.truth[id_]
                store.answer(who, coming[0], [thing if thing in store.batch["concepts"] else NONE], False, 3)
                self.typed[who, id_] += 1
        store.close()
        return self.typed.total() - before

    def release(self, month: int) -> Release:
        return Release.open(self.releases / f"{month}")

    def ids(self, month: int) -> list[str]:
        ids: list[str] = self.release(month).table["id"].to_pylist()
        return ids


def test_a_year_of_an_album_gives_twelve_releases_and_loses_no_answer(tmp_path: Path) -> None:
    year = Year(tmp_path)
    gone: set[str] = set()
    stages = list(STAGES)
    for month, things in MONTHS.items():
        year.arrive(month, things)
        if month in WITHDRAWN:
            gone.add(id_ := year.ids(month - 1)[month])
            assert document("withdraw", year.root, id_)["withdrawn"] == [id_]
        year.configure(month)
        planned = document("grow", year.root, "--dry-run")
        deadly = stages[month % len(stages)]
        with_answers = deadly in ("tally", "publish")
        if not with_answers:
            grow_killed(year.root, deadly)
        grown = inside("grow", year.root, "--json")
        assert grown.returncode == 3, grown.stderr
        summary = json.loads(grown.stdout)
        rows = summary["rows"]
        assert rows["now"] - rows["before"] == sum(things.values()), "as if nothing had been killed"
        months = [f"2019-{m:02d}" for m in range(1, month + 1)]
        assert [bucket["name"] for bucket in planned["buckets"]] == summary["buckets"]["now"] == months
        assert 0 < year.answer() <= planned["questions"]["answers"]
        if with_answers:
            grow_killed(year.root, deadly)
        assert document("grow", year.root)["state"] == "done"
        assert {stage["state"] for stage in document("status", year.root)["stages"]} == {"done"}
        shutil.copytree(folder_of(year.root, "publish") / "release", year.releases / f"{month}")
        year.release(month).verify()
        assert gone.isdisjoint(year.ids(month))
        if month > 1:
            assert {*year.ids(month - 1)} - gone <= {*year.ids(month)}

    assert set(year.typed.values()) == {1}, "asked twice"
    last = year.release(12)
    assert last.facts["answers"]["people"] == {f"{len(PEOPLE)}": len(last.table)}
    answered = {id_ for _, id_ in year.typed} - gone
    assert {id_ for id_ in answered if year.truth[id_] != "lamp"} >= {*year.ids(12)}
    answers = pq.read_table(folder_of(year.root, "tally") / "answers.parquet")
    assert answers["fault"].null_count == len(answers)
    assert Counter(answers["id"].to_pylist()) == Counter(id_ for _, id_ in year.typed if id_ not in gone)
    texts = [path.read_text(encoding="utf-8") for path in (year.root / "answers").iterdir()]
    assert sum(text.count("Submitted") for text in texts) == year.typed.total(), "those about withdrawn photos, too"
    assert set(document("status", year.root)["withdrawn"]) == gone
