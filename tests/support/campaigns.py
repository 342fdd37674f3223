"""Simulated campaigns of labels with a known truth: ambiguous and sensitive photos, spammers, judges that lean and
drift.

    python tests/support/campaigns.py 500
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from driftline.curate.core.seeding import rng_for
from driftline.curate.validation.answers.answers import ANSWERS
from driftline.curate.validation.judging.opinions import opinion, table_of
from driftline.curate.validation.judging.panel import Panel
from driftline.curate.validation.judging.report import people_would
from driftline.curate.validation.judging.settings import JudgeSettings
from driftline.curate.validation.settings import ValidationSettings

SETS = (["bus"], ["car"], ["none"])


def answers_table(rows: Sequence[tuple[str, str, Sequence[str]]], sensitive: Sequence[bool] | None = None) -> pa.Table:
    """(id, worker, labels) → table of ANSWERS."""
    flags = [False] * len(rows) if sensitive is None else sensitive
    return pa.Table.from_pylist(
        [
            {"item": id_, "id": id_, "worker": who, "labels": list(said), "sensitive": flag, "fault": None}
            for (id_, who, said), flag in zip(rows, flags, strict=True)
        ],
        schema=ANSWERS,
    )


class Campaign:
    """One campaign: what every person would answer to every image, what judges say, and how the run ends."""

    def __init__(self, seed: int, images: int = 240, ambiguous: float = 0.2, **settings: Any) -> None:
        rng = rng_for(seed, "campaign")
        self.items = [{"id": f"p{i:04d}", "bucket": i % 2, "concept": "bus"} for i in range(images)]
        ids = [item["id"] for item in self.items]
        truth = np.where(rng.random(images) < 0.85, 0, 1)
        unclear, shocking = rng.random(images) < ambiguous, rng.random(images) < 0.05
        rows, flags = [], []
        for i, id_ in enumerate(ids):
            for who in rng.choice(10, 3, replace=False).tolist():
                guess = unclear[i] or who < 1 or rng.random() < 0.06  # one of ten people is a spammer
                rows.append((id_, f"w{who}", SETS[int(rng.integers(3)) if guess else truth[i]]))
                flags.append(bool(shocking[i] and rng.random() < 0.7))
        self.everything = answers_table(rows, flags)
        opinions = []
        for i, item in enumerate(self.items):
            leans = truth[i] if rng.random() < 0.9 else 0  # says "bus" where in doubt
            drifts = truth[i] if rng.random() < (0.8 if item["bucket"] == 0 else 0.95) else 1 - truth[i]
            for judge, said in (("lean", leans), ("drift", drifts)):
                opinions.append(opinion(ids[i], int(item["bucket"]), judge, SETS[int(said)], confidence=0.9))
        judges = [JudgeSettings(name=name, kind="margin") for name in ("lean", "drift")]
        values = {"skip_confidence": 0.7, "audit_share": 0.3, "rounds": 3, **settings}
        rules = ValidationSettings.model_validate({"skip_people": "confident", "judges": judges, **values})
        self.panel = Panel(rules, ("bus", "car"), table_of(opinions), lambda some: np.zeros((len(some), 1)), seed)
        self.would = people_would(self.items, self.everything, rules)

    def answers(self, ids: set[str]) -> pa.Table:
        """What people answer to some images."""
        return self.everything.filter(pa.array([id_ in ids for id_ in self.everything["id"].to_pylist()], pa.bool_()))

    def run(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """(rows of the guarantee, the same with `true_precision` and `true_recall`); (table of the judges)."""
        panel, routes = self.panel, self.panel.routes(self.items)
        seen = {i for i, one in routes.items() if one.to in ("people", "audit")}
        audited = {i for i, one in routes.items() if one.to == "audit"}
        for _ in range(panel.settings.rounds - 1):
            doubtful, more = panel.again(self.items, self.answers(seen), seen, audited)
            if not doubtful and not more:
                break
            audited |= {item["id"] for item in more}
            seen |= {item["id"] for item in [*doubtful, *more]}
        answers = self.answers(seen)
        final = panel.final_routes(self.items, answers, seen, audited)
        verdicts = panel.verdicts(self.items, answers, seen, final)
        kept = {
            id_
            for id_, v in zip(verdicts["id"].to_pylist(), verdicts["verdict"].to_pylist(), strict=True)
            if v == "kept"
        }
        rows = panel.guarantee(self.items, answers, seen, audited, final)
        for row in rows:
            cell = [i["id"] for i in self.items if i["bucket"] == row["bucket"]]
            labels = [id_ for id_ in cell if id_ in kept]
            right = [id_ for id_ in labels if id_ in seen or self.would[id_, "bus"] == "kept"]
            lost = [i for i in cell if i not in kept and i not in seen and self.would[i, "bus"] == "kept"]
            row["true_precision"] = len(right) / len(labels) if labels else None
            row["true_recall"] = len(right) / (len(right) + len(lost)) if right or lost else None
        return rows, final[1]


def coverage(campaigns: int, **settings: Any) -> tuple[int, int, float]:
    """(cells with labels that nobody saw, those whose precision is at least the bound, mean true precision)."""
    rows = [row for seed in range(campaigns) for row in Campaign(seed, **settings).run()[0] if row["unseen"]]
    held = sum(row["true_precision"] >= row["precision_low"] - 1e-9 for row in rows)
    return len(rows), held, float(np.mean([row["true_precision"] for row in rows]))


if __name__ == "__main__":
    print(coverage(int(sys.argv[1])))
