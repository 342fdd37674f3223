"""A run with judges: people are asked less, nothing is paid twice, and the card says what people confirmed."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.annotated import answer
from support.helpers import album, photo_config
from support.living import context as context_of
from support.vision_server import vision_server

from driftline.curate.core.atomic_io import read_json
from driftline.curate.release.packing import FetchedImages
from driftline.pipelines.annotation.batches import questions
from driftline.pipelines.run.runner import run
from driftline.pipelines.stages.state import folder_of


@pytest.mark.proof("journey")
def test_a_judge_decides_what_an_audit_confirms_and_no_image_is_paid_twice(tmp_path: Path) -> None:
    root = tmp_path / "run"
    album(root / "photos", 6)
    text = photo_config("  per_class: 5").replace("{method: catalogue}", "{method: crowd, workers: 2, agree: 2}")
    (root / "driftline.yaml").write_text(text)
    run(context_of(root), until="retrieve")
    members = folder_of(root, "bucket") / "members.parquet"
    ids = pq.read_table(members)["id"].to_pylist()
    images = FetchedImages.open(folder_of(root, "fetch"), members, ids)
    labels = {images.plain(id_)[0]: next(thing for thing in ("car", "bus") if thing in id_) for id_ in ids}
    with vision_server(sees=lambda image: {"labels": [labels[image]], "sensitive": False}) as vision:
        judges = [{"name": "vlm", "url": vision.url, "model": "vision-1"}]
        alone = f"validation.judges={json.dumps(judges)}", "validation.skip_people=agreed", "validation.audit_share=0.4"
        before = questions(context_of(root, *alone))
        assert before is not None
        assert (before["word"], vision.bodies) == ("at most", []), "a plan asks no judge"
        assert any("because" in entry for entry in run(context_of(root, *alone)))
        everything = set(pq.read_table(folder_of(root, "ask") / "items.parquet")["id"].to_pylist())
        assert len(vision.bodies) == len(everything)
        asked = answer(root, *alone)
        assert 0.3 * len(everything) < asked < 0.7 * len(everything)
        assert not any("because" in entry for entry in run(context_of(root, *alone)))
        run(context_of(root, *alone, "validation.audit_share=0.5"))
        assert len(vision.bodies) == len(everything), "the store keeps what it said"
    facts = read_json(folder_of(root, "publish") / "release" / "release.json")["provenance"]["agreement"]["judged"]
    assert (facts["judges"], facts["agreement"].keys()) == (["vlm"], {"judge:vlm"})
    assert 0 < facts["unseen_labels"] < facts["kept_labels"]
    card = (folder_of(root, "publish") / "release" / "README.md").read_text()
    assert f"No person saw {facts['unseen_labels']:,} of the {facts['kept_labels']:,} accepted labels; of " in card
    assert "(95 %, Clopper–Pearson)" in card
