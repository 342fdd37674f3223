"""People alone against people and judges: how many questions, and how precise are the accepted labels?

    python examples/people_and_judges.py [--usda DIR] [--world RUN] [--seeds N]

usda: the 6,562 dated watercolours of DATA/usda with MobileNet vectors and the museum's labels, in six
periods. Candidates are what a search might find: four of five show the fruit. One judge is simulated (right on 95 %,
but on 75 % in the oldest period), the other one is the real student on the real vectors. world: a finished `driftline
demo`, with its real candidates and vectors. Answers of people are simulated in both: 3 for each image, 3 % wrong.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from driftline.curate.core.parsing import rows_of
from driftline.curate.core.seeding import rng_for
from driftline.curate.retrieval.settings import BACKGROUND
from driftline.curate.retrieval.vector_store import vectors_of
from driftline.curate.validation.answers.answers import ANSWERS
from driftline.curate.validation.answers.verdicts import tally
from driftline.curate.validation.asking.batches import NONE
from driftline.curate.validation.judging.opinions import opinion, table_of
from driftline.curate.validation.judging.panel import Panel
from driftline.curate.validation.settings import ValidationSettings

ERROR = 0.03  # of one answer of a person
EDGES = (1904, 1908, 1911, 1913, 1918)  # of the periods of USDA's pictures
Truth = Mapping[str, frozenset[str]]


def people(ids: list[str], truth: Truth, names: list[str], workers: int) -> pa.Table:
    """Their answers, the same for an image whenever it is asked."""
    rows = []
    for id_ in ids:
        rng = rng_for(0, "people", id_)
        for worker in range(workers):
            wrong = rng.random() < ERROR
            said = [names[int(rng.integers(len(names)))]] if wrong else sorted(truth[id_]) or [NONE]
            rows.append(
                {"item": id_, "id": id_, "worker": f"w{worker}", "labels": said, "sensitive": False, "fault": None}
            )
    return pa.Table.from_pylist(rows, schema=ANSWERS)


def precision(verdicts: pa.Table, truth: Truth) -> tuple[float, int]:
    """(share of the accepted labels that are true, their number)."""
    kept = [(i, c) for i, c, v in rows_of(verdicts, "id", "concept", "verdict") if v == "kept"]
    right = [truth[i] == (frozenset() if c == BACKGROUND else {c}) for i, c in kept]
    return float(np.mean(right)), len(kept)


def compare(items: list[dict[str, Any]], truth: Truth, panel: Panel) -> dict[str, Any]:
    """Both ways on the same candidates."""
    settings, names = panel.settings, [*panel.concepts, NONE]
    ids = sorted({item["id"] for item in items})
    alone, kept_alone = precision(tally(items, people(ids, truth, names, 3), ValidationSettings()), truth)
    routes = panel.routes(items)
    seen = {i for i, route in routes.items() if route.to in ("people", "audit")}
    audited = {i for i, route in routes.items() if route.to == "audit"}
    for _ in range(settings.rounds):
        answers = people(sorted(seen), truth, names, settings.workers)
        doubtful, more = panel.again(items, answers, seen, audited)
        if not doubtful and not more:
            break
        audited |= {item["id"] for item in more}
        seen |= {item["id"] for item in [*doubtful, *more]}
    answers = people(sorted(seen), truth, names, settings.workers)
    final = panel.final_routes(items, answers, seen, audited)
    together, kept = precision(panel.verdicts(items, answers, seen, final), truth)
    cells = [row for row in panel.guarantee(items, answers, seen, audited, final) if row["unseen"]]
    return {
        "images": len(ids),
        "questions_alone": 3 * len(ids),
        "questions": settings.workers * len(seen),
        "share": round(settings.workers * len(seen) / (3 * len(ids)), 3),
        "precision_alone": round(alone, 4),
        "precision": round(together, 4),
        "kept_alone": kept_alone,
        "kept": kept,
        "caught": [[row["judge"], row["bucket"]] for row in final[1] if row["worse"]],
        "half_width": round(float(np.mean([row["half_width"] for row in cells])), 3) if cells else None,
    }


def usda(folder: Path, seed: int = 0) -> tuple[list[dict[str, Any]], Truth, Panel]:
    """Candidates of the museum's pictures. seed: of the candidates and of the simulated judge."""
    data = np.load(folder / "usda_mnv1_embeddings_u8.npz")
    labels, years = data["label"].astype(str), data["year"]
    vectors: npt.NDArray[Any] = data["embedding_u8"].astype(np.float32) * float(data["scale"])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    names = sorted(set(labels.tolist()))
    rng = rng_for(seed, "usda")
    truth = {f"{i:05d}": frozenset({label}) for i, label in enumerate(labels.tolist())}
    items, rows = [], []
    for i, id_ in enumerate(truth):
        bucket = int(np.searchsorted(EDGES, years[i], side="right"))
        concept = labels[i] if rng.random() < 0.8 else names[int(rng.integers(len(names)))]
        items.append({"id": id_, "bucket": bucket, "concept": str(concept)})
        right = rng.random() < (0.75 if bucket == 0 else 0.95)
        said = str(labels[i]) if right else names[int(rng.integers(len(names)))]
        rows.append(opinion(id_, bucket, "simulated", [said], confidence=0.97))
    settings = ValidationSettings.model_validate(
        {
            "skip_people": "confident",
            "judges": [{"name": "simulated", "url": "http://x", "model": "m"}, {"name": "student", "kind": "student"}],
            "audit_share": 0.2,
            "rounds": 4,
        }
    )
    return items, truth, Panel(settings, tuple(names), table_of(rows), lambda ids: vectors[[int(i) for i in ids]], 0)


def world(run: Path, seed: int = 0) -> tuple[list[dict[str, Any]], Truth, Panel]:
    """Candidates of a finished `driftline demo`. seed: of the simulated judge."""
    stages = run / "stages"
    table = pq.read_table(stages / "07_ask" / "items.parquet", columns=["id", "bucket", "concept"])
    items: list[dict[str, Any]] = table.to_pylist()
    names = sorted({item["concept"] for item in items} - {BACKGROUND})
    shown = json.loads((run / "world" / "truth.json").read_text())
    truth = {i: frozenset(set(things) & set(names)) for i, things in shown.items()}
    bucket = {item["id"]: item["bucket"] for item in items}
    oldest, rng = min(bucket.values()), rng_for(seed, "world")
    rows = []
    for id_ in sorted(bucket):
        right = rng.random() < (0.75 if bucket[id_] == oldest else 0.95)
        said = sorted(truth[id_]) or [NONE]
        said = said if right else [names[int(rng.integers(len(names)))]]
        rows.append(opinion(id_, bucket[id_], "simulated", said, confidence=0.97))
    settings = ValidationSettings.model_validate(
        {
            "skip_people": "confident",
            "judges": [{"name": "simulated", "url": "http://x", "model": "m"}, {"name": "student", "kind": "student"}],
            "audit_share": 0.2,
            "rounds": 4,
        }
    )
    return (
        items,
        truth,
        Panel(settings, tuple(names), table_of(rows), lambda some: vectors_of(stages / "05_embed", some), 0),
    )


def main() -> None:
    """Print one JSON line for each collection and seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--usda", type=Path, default=Path("../shared/data/usda"))
    parser.add_argument("--world", type=Path)
    parser.add_argument("--seeds", type=int, default=1, help="how many simulated judges")
    given = parser.parse_args()
    for seed in range(given.seeds):
        if given.usda.is_dir():
            print(json.dumps({"collection": "usda", "seed": seed, **compare(*usda(given.usda, seed))}), flush=True)
        if given.world is not None:
            print(json.dumps({"collection": "world", "seed": seed, **compare(*world(given.world, seed))}), flush=True)


if __name__ == "__main__":
    main()
