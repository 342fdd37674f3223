"""24: a plan prices what a run then asks, and addresses are no photos until they gave an image."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.console import answer
from support.living import LOOSE, Town, context, counted
from support.living import answer as people_answer
from support.vision_server import vision_server

from driftline.curate.core.atomic_io import read_json, write_text
from driftline.curate.core.errors import Unconfirmed
from driftline.curate.validation.asking.batches import estimate
from driftline.pipelines.annotation.batches import open_batch
from driftline.pipelines.commands.build import plan_text as text
from driftline.pipelines.forecast import forecast
from driftline.pipelines.run.living import grow
from driftline.pipelines.run.runner import plan, run
from driftline.pipelines.stages.base import Context
from driftline.pipelines.stages.state import folder_of

CROWD = ("store.use=false", "validation.method=crowd")
JUDGE = 'validation.judges=[{"name": "m", "kind": "clip", "margin": 0.0}]'
SKIP = (JUDGE, "validation.skip_people=agreed", "validation.audit_share=0.1")


@pytest.fixture(scope="module")
def retrieved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run before `ask`, with gold questions; not to be changed by tests but for its batches."""
    many = Town(tmp_path_factory.mktemp("many"), 240)
    out = many.run(tmp_path_factory.mktemp("plan") / "run", 240, LOOSE)
    config = (out / "driftline.yaml").read_text()
    config = config.replace("per_class: 4\n  depth: 20", "per_class: 16\n  depth: 60")
    write_text(out / "driftline.yaml", config.replace("workers: 2", "workers: 3"))
    with counted(many):
        run(context(out), until="retrieve")
    candidates = pq.read_table(folder_of(out, "retrieve") / "candidates.parquet").to_pylist()
    sure = [c for c in candidates if c["fate"] == "kept"][:20] + [c for c in candidates if c["fate"] == "surplus"][:20]
    lines = {c["id"]: c["concept"] for c in sure}
    write_text(out / "gold.csv", "id,labels\n" + "".join(f"{id_},{label}\n" for id_, label in lines.items()))
    return out


@pytest.fixture
def folder(retrieved: Path) -> Iterator[Path]:
    yield retrieved
    for name in ("batches", "stages/07_ask", "stages/08_tally"):
        shutil.rmtree(retrieved / name, ignore_errors=True)


def planned(here: Context) -> dict[str, Any]:
    return forecast(here, plan(here, until="tally"))["questions"]


def really(here: Context) -> tuple[int, int, float]:
    """Images, gold questions that are no candidates, and US dollars of the batch that the stage writes."""
    run(here, until="ask")
    facts = read_json(folder_of(here.root, "ask") / "batch.json")
    items = set(pq.read_table(folder_of(here.root, "ask") / "items.parquet")["id"].to_pylist())
    gold = {facts["items"][item] for item in facts["gold"]}
    return len(facts["items"]), len(gold - items), facts["estimate_usd"]


class TestMoney:
    @pytest.mark.parametrize(
        "changes",
        [
            (),
            ("validation.gold=gold.csv", "validation.gold_share=0.2"),
            SKIP,
            (*SKIP, "validation.gold=gold.csv", "validation.gold_share=0.5"),
        ],
        ids=["people", "gold", "skip", "skip and gold"],
    )
    def test_after_retrieval_a_plan_is_what_the_stage_asks(self, folder: Path, changes: tuple[str, ...]) -> None:
        here = context(folder, *CROWD, *changes)
        asked = planned(here)
        images, gold, usd = really(here)
        assert (asked["images"], asked["usd"], asked["at_most"]) == (images, usd, False)
        assert asked["gold"] >= gold
        waiting = planned(here)
        assert (waiting["images"], waiting["usd"]) == (images, usd), "nobody has answered yet"

    @pytest.mark.parametrize("changes", [(), SKIP])
    def test_before_retrieval_it_is_the_most_and_says_why(self, folder: Path, changes: tuple[str, ...]) -> None:
        here = context(folder, *CROWD, *changes, "validation.gold=gold.csv")
        before = forecast(here, plan(here, "retrieve", "tally"))["questions"]
        assert before["at_most"]
        assert "candidates" in before["known_by"]
        _, _, usd = really(here)
        assert usd <= before["usd"]

    def test_a_judge_that_was_not_asked_makes_it_the_most_and_its_answers_make_it_exact(self, folder: Path) -> None:
        sees = {"labels": ["none"], "sensitive": False}
        with vision_server(sees=lambda _: sees) as vision:
            judge = json.dumps([{"name": "vlm", "url": vision.url, "model": "vision-1"}])
            here = context(folder, *CROWD, *SKIP, f"validation.judges={judge}")
            before = planned(here)
            assert not vision.bodies
            images, _, usd = really(here)
            assert (before["at_most"], before["usd"] > usd) == (True, True)
            shutil.rmtree(folder_of(folder, "ask"))
            asked = vision.bodies[:]
            after = planned(here)
            assert vision.bodies == asked
        assert (after["images"], after["usd"], after["at_most"]) == (images, usd, False)

    def test_every_command_says_the_same(self, folder: Path) -> None:
        here = context(folder, *CROWD, *SKIP)
        plans = plan(here, until="tally")
        asked = forecast(here, plans)["questions"]
        options = [f"--set={change}" for change in (*CROWD, *SKIP)]
        assert answer("plan", str(folder), "--until", "tally", *options, "--json")["questions"] == asked
        assert f"${asked['usd']:,.2f} for paid workers" in text(plans, forecast(here, plans))
        with pytest.raises(Unconfirmed, match=rf"^{asked['images']:,} images .* cost about \${asked['usd']:,.2f}\."):
            grow(here, until="tally", cost=asked["usd"] - 0.01)


class TestAddresses:
    def test_they_are_no_photos_until_they_gave_an_image(self, town: Town, tmp_path: Path) -> None:
        root = town.run(tmp_path / "run", 60, LOOSE)
        here = context(root)
        plans = plan(here)
        before = forecast(here, plans)
        rows = before["photos"]["addresses"]
        assert (before["photos"]["expected"], before["photos"]["at_most"]) == (rows, True)
        assert f"photos     at most {rows} ({rows} URLs" in text(plans, before)
        with counted(town):
            run(here, until="fetch")
        counts = {e["stage"]: e["counts"] for e in answer("status", str(root), "--json")["stages"]}
        images = counts["fetch"]["kept"]
        assert images < rows == counts["fetch"]["read"]
        assert forecast(here, plan(here))["photos"]["expected"] == images, "the stage fetch"
        other = context(root, "fetch.threads=3", "fetch.shard_size=7")
        photos = forecast(other, plan(other))["photos"]
        assert (photos["addresses"], photos["expected"], photos["at_most"]) == (rows, images, False)
        assert f"{rows} URLs with a stored answer" in photos["share_known_by"]

    def test_answers_that_the_store_has_are_not_paid_again(self, town: Town, tmp_path: Path) -> None:
        root = town.run(tmp_path / "run", 60, LOOSE)
        here = context(root)
        with counted(town):
            run(here, until="ask")
        people_answer(here, town, "first")
        run(here, until="tally")
        more = context(root, "retrieve.per_class=6")
        run(more, until="retrieve")
        asked = planned(more)
        run(more, until="tally")
        rest = open_batch(more).facts
        assert 0 < asked["images"] == len(rest["items"])
        assert asked["usd"] == rest["estimate_usd"] == estimate(len(rest["items"]), more.config.validation)
