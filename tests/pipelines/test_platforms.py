"""A batch on the platforms: the files of Turkle, MTurk's requester pages and Prolific, and the way back."""

import base64
import csv
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.console import inside
from support.turkle_server import Worker, api, turkle

from driftline.curate.core.atomic_io import read_json
from driftline.curate.core.errors import BadConfig, UnknownName
from driftline.curate.core.run_log import RunLog
from driftline.curate.release import Release
from driftline.curate.retrieval.settings import Concept
from driftline.curate.validation.asking.platforms import prolific
from driftline.pipelines.annotation.batches import open_batch, write_batches
from driftline.pipelines.config.loader import load
from driftline.pipelines.run.runner import run
from driftline.pipelines.stages.base import Context
from driftline.pipelines.stages.state import folder_of

SKIP = ("store", "07_ask", "08_tally", "09_publish", "answers", "runs", "report", "stream", "world", "audit")


def waiting(journey: Path, out: Path, *changes: str) -> Context:
    """A run with other settings that waits for answers."""
    shutil.copytree(journey, out, ignore=shutil.ignore_patterns(*SKIP))
    (out / "world").symlink_to(journey / "world")
    made = Context(out, load(out / "driftline.yaml", changes), RunLog(quiet=True))
    run(made, until="ask")
    return made


@pytest.fixture(scope="module")
def small(journey: Path, tmp_path_factory: pytest.TempPathFactory) -> Context:
    """A batch of few images: two candidates a concept, one of the background for each, in one bucket."""
    few = ("retrieve.per_class=2", "retrieve.background_share=0.5", f"buckets.unlabelled={list(range(10))}",
           "release.per_class=2", "release.short=fewer", "release.splits=1")  # fmt: skip
    return waiting(journey, tmp_path_factory.mktemp("platforms") / "run", *few, "validation.workers=2")


def truth_of(context: Context) -> dict[str, str]:
    """item → what its image was asked as."""
    items = pq.read_table(folder_of(context.root, "ask") / "items.parquet")
    expected = dict(zip(items["id"].to_pylist(), items["concept"].to_pylist(), strict=True))
    return {
        item: "none" if expected[id_] == "background" else expected[id_]
        for item, id_ in open_batch(context).facts["items"].items()
    }


@pytest.mark.proof("server")
def test_a_batch_goes_through_a_real_turkle_into_a_release(small: Context, tmp_path: Path) -> None:
    counts = write_batches(small, ["turkle"], tmp_path / "out", None)
    truth = truth_of(small)
    two = min(item for item, concept in truth.items() if concept == "bus")  # of this image, workers tick two boxes
    assert counts["turkle"] == {"images": len(truth), "answers": 2 * len(truth)}
    template, rows = ((tmp_path / "out" / "turkle" / name).read_text() for name in ("template.html", "batch.csv"))
    common = {"name": "ours", "assignments_per_task": 2, "login_required": True}
    site = tmp_path / "site"
    site.mkdir()
    with turkle(site, ["ann", "bob"]) as address, api(address) as admin:
        ours = common | {"filename": "template.html", "html_template": template}
        project = admin.post("/projects/", json=ours).raise_for_status().json()["id"]
        uploaded = common | {"filename": "batch.csv", "csv_text": rows, "published": True, "project": project}
        batch = admin.post("/batches/", json=uploaded).raise_for_status().json()["id"]
        for name in ("ann", "bob"):
            worker = Worker(address, name)
            while (task := worker.next_task(batch)) is not None:
                place, page = task
                assert page.count("<form") == 1, "no form inside Turkle's own"
                shown = re.search(r'/([0-9a-f]{16})\.\w+" alt=', page)
                assert shown is not None
                worker.answer(place, page, [truth[shown[1]]] + (["car"] if shown[1] == two else []))
        done = admin.get(f"/batches/{batch}/progress/").json()
        assert done["total_finished_tasks"] == len(truth)
        results = admin.get(f"/batches/{batch}/results/").raise_for_status().content
    (small.root / "answers").mkdir(exist_ok=True)
    (small.root / "answers" / "turkle.csv").write_bytes(results)
    run(small)
    verdicts = pq.read_table(folder_of(small.root, "tally") / "labels.parquet").to_pylist()
    outcome = {row["id"]: row["decision"] for row in verdicts}
    ids = open_batch(small).facts["items"]
    assert outcome == {ids[item]: "several_concepts" if item == two else "kept" for item in truth}
    release = Release.open(small.root)
    release.verify()
    assert release.table["class"].to_pylist().count("bus") == 1
    answers = pq.read_table(folder_of(small.root, "tally") / "answers.parquet")
    assert set(answers["fault"].to_pylist()) == {None}
    assert len(set(answers["worker"].to_pylist())) == 2


class TestFiles:
    def test_mturk_says_that_the_service_is_closed(self, small: Context, tmp_path: Path) -> None:
        printed = inside("batch", small.root, "--format", "mturk,turkle", "--out", tmp_path / "out").stdout
        assert "Amazon Mechanical Turk closed on 30 September 2026" in printed
        assert (tmp_path / "out" / "mturk" / "README.txt").read_text() in printed
        assert not (tmp_path / "out" / "turkle" / "README.txt").exists()

    def test_prolific_gets_the_question_as_data(self, small: Context, tmp_path: Path) -> None:
        write_batches(small, ["prolific"], tmp_path, None)
        with (tmp_path / "prolific" / "dataset.csv").open(newline="") as file:
            assert set(next(csv.DictReader(file))) == {"item", "image_url"}
        labels, sensitive = read_json(tmp_path / "prolific" / "instructions.json")
        assert [o["value"] for o in labels["options"]][-1] == "none"
        assert sensitive["answer_limit"] == 1
        bus = Concept(name="bus", prompts=("bus",), option="A bus or coach")
        prolific({"batch": "b", "workers": 3}, {}, [bus], tmp_path)
        assert read_json(tmp_path / "instructions.json")[0]["options"][0] == {"label": "A bus or coach", "value": "bus"}

    def test_small_images_can_be_part_of_their_addresses(self, small: Context, tmp_path: Path) -> None:
        write_batches(small, ["mturk"], tmp_path, "inline")
        images = open_batch(small).images()
        with (tmp_path / "mturk" / "batch.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                assert base64.b64decode(row["image_url"].partition(",")[2]) == images[row["item"]].read_bytes()

    @pytest.mark.parametrize("images", ["ftp://x/y", "https:///no-host"])
    def test_an_impossible_address_is_refused(self, small: Context, tmp_path: Path, images: str) -> None:
        with pytest.raises(BadConfig, match=f"--image-base-url is '{images}'"):
            write_batches(small, ["mturk"], tmp_path, images)

    def test_an_unknown_platform_is_refused_before_anything_is_written(self, small: Context, tmp_path: Path) -> None:
        with pytest.raises(UnknownName, match="Unknown platform 'figure8'.*Available: .*mturk"):
            write_batches(small, ["mturk", "figure8"], tmp_path / "x", None)
        assert not (tmp_path / "x").exists()
