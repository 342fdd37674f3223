"""tally: answers → verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq

from curate.ground.errors import Waiting
from curate.ground.files import write_json, write_parquet
from curate.validation.answers import read_answers
from curate.validation.batches import read_batch
from curate.validation.tally import TallyRules, agreement, from_catalogue, tally
from pipelines.stage import Counts, Stage
from pipelines.stages.retrieve import concepts_of


@dataclass(frozen=True)
class Tally(Stage):
    """Import the answers and judge every image; waits while answers are missing."""

    name: ClassVar[str] = "tally"
    needs: ClassVar[tuple[str, ...]] = ("filter", "ask")
    hint: ClassVar[str] = "Every image was judged against: look at stages/08_tally/verdicts.parquet."

    def settings(self) -> Any:
        """The validation section, and labels where a catalogue answers."""
        config = self.context.config
        keys = {
            "method", "workers", "agree", "rule", "sensitive_drop", "sensitive_hold", "accept_incomplete", "aggregate",
            "confidence",
        }  # fmt: skip
        return [
            config.seed,
            config.validation.model_dump(include=keys),
            [c.label for c in concepts_of(config)],
        ]

    def outside(self) -> list[Path]:
        """The answer files."""
        if self.context.config.validation.method == "catalogue":
            return []
        folder = self.context.root / self.context.config.validation.answers
        return sorted(folder.glob("*.csv")) if folder.is_dir() else []

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """answers/*.csv → answers.parquet, verdicts.parquet. Raises Waiting while answers are missing."""
        config = self.context.config
        items = pq.read_table(inputs["ask"] / "items.parquet", columns=["id", "bucket", "concept"]).to_pylist()
        section = config.validation
        if section.method == "catalogue":
            table = pq.read_table(sorted((inputs["filter"] / "table").glob("*.parquet")), columns=["id", "label"])
            known = dict(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))
            verdicts = from_catalogue(items, known, {c.name: c.label for c in concepts_of(config)})
        else:
            folder = self.context.root / section.answers
            files = self.outside()
            if not files:
                raise Waiting(
                    f"{len({i['id'] for i in items}):,} images wait for answers: publish batch.csv and page.html "
                    f"of {inputs['ask']}, put the results CSV into {folder}, and run again."
                )
            answers = read_answers(files, read_batch(inputs["ask"]), f"driftline:{config.seed}")
            given = Counter(
                i for i, f in zip(answers["id"].to_pylist(), answers["fault"].to_pylist(), strict=True) if f is None
            )
            short = sorted({i["id"] for i in items if given[i["id"]] < section.workers})
            if short and not section.accept_incomplete:
                raise Waiting(
                    f"{len(short):,} images have fewer than {section.workers} valid answers (first: {short[0]}). "
                    f"Add their results to {folder}, or go on without them: --set validation.accept_incomplete=true."
                )
            write_parquet(out / "answers.parquet", answers)
            write_json(out / "agreement.json", agreement(answers))
            rules = TallyRules(
                section.workers, section.agree, section.rule, section.sensitive_drop, section.sensitive_hold,
                section.aggregate, section.confidence,
            )  # fmt: skip
            verdicts = tally(items, answers, rules)
        write_parquet(out / "verdicts.parquet", verdicts)
        outcome = Counter(verdicts["verdict"].to_pylist())
        kept = outcome.pop("kept", 0)
        return Counts(len(items), kept, outcome)
