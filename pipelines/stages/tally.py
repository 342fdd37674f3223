"""tally: answers → verdicts; where too few were accepted, the next candidates are asked, if that is wanted."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from curate.core.atomic_io import csv_text, read_json, write_json, write_parquet, write_text
from curate.core.errors import Waiting
from curate.retrieval.candidates import BACKGROUND
from curate.validation.answers import ANSWERS, Line, read_answers, read_lines, refuse_foreign
from curate.validation.batches import read_batch
from curate.validation.rounds import describe_short, next_candidates, short_cells
from curate.validation.verdicts import TallyRules, agreement, suggested_rejections, tally, verdicts_from_labels
from pipelines.stage import Counts, Records, Stage, parts_of
from pipelines.stages.ask import ITEMS, batch_of
from pipelines.stages.retrieve import concepts_of, labelled_buckets

Items = list[dict[str, Any]]


def round_folder(root: Path, number: int) -> Path:
    """Where the batch of the second round and of later ones lies (that of the first: in the ask stage)."""
    return root / "batches" / f"round_{number:02d}"


@dataclass(frozen=True)
class Tally(Stage):
    """Import the answers and judge every image; waits while answers are missing."""

    name: ClassVar[str] = "tally"
    records: ClassVar[Records] = (("answers.parquet", ""), ("verdicts.parquet", "verdict"))
    needs: ClassVar[tuple[str, ...]] = ("filter", "fetch", "bucket", "embed", "retrieve", "ask")
    hint: ClassVar[str] = "Every image was judged against: look at stages/08_tally/verdicts.parquet."

    def settings(self) -> Any:
        """The validation section, labels where a catalogue answers, and what makes a class full."""
        config = self.context.config
        keys = {
            "method", "workers", "agree", "rule", "sensitive_drop", "sensitive_hold", "accept_incomplete", "aggregate",
            "confidence", "rounds",
        }  # fmt: skip
        return [
            config.seed,
            config.validation.model_dump(include=keys),
            [c.label for c in concepts_of(config)],
            self._wanted() if config.release.short == "reopen" else None,
        ]

    def outside(self) -> list[Path]:
        """The answer files."""
        if self.context.config.validation.method == "catalogue":
            return []
        folder = self.context.root / self.context.config.validation.answers
        return sorted(folder.glob("*.csv")) if folder.is_dir() else []

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """answers/*.csv → answers, asked, verdicts.parquet. Raises Waiting while answers are missing."""
        config = self.context.config
        desk = self._catalogue(inputs) if config.validation.method == "catalogue" else self._crowd(inputs)
        items: Items = pq.read_table(inputs["ask"] / "items.parquet").to_pylist()
        asked: Items = []
        number, verdicts = 1, pa.Table.from_pylist([])
        while items and desk.answered(items, number):
            asked += [item | {"round": number} for item in items]
            verdicts = desk.judge(asked)
            items = self._more(inputs, asked, verdicts, number) if config.release.short == "reopen" else []
            number += 1
        desk.finish(out)
        write_parquet(out / "asked.parquet", pa.Table.from_pylist(asked, ITEMS.append(pa.field("round", pa.int32()))))
        write_parquet(out / "verdicts.parquet", verdicts)
        outcome = Counter(verdicts["verdict"].to_pylist())
        kept = outcome.pop("kept", 0)
        return Counts(len(asked), kept, outcome)

    def _wanted(self) -> dict[str, int]:
        release, concepts = self.context.config.release, concepts_of(self.context.config)
        wanted = {c.name: release.per_class for c in concepts}
        if self.context.config.retrieve.background:
            wanted[BACKGROUND] = release.background or release.per_class
        return wanted

    def _more(self, inputs: Mapping[str, Path], asked: Items, verdicts: pa.Table, number: int) -> Items:
        """What the next round asks: nothing when all is full, there are no candidates, or the rounds are used up."""
        config = self.context.config
        buckets = labelled_buckets(config, read_json(inputs["bucket"] / "buckets.json"))
        short = short_cells(verdicts, self._wanted(), [b["index"] for b in buckets])
        if not short:
            return []
        candidates = pq.read_table(inputs["retrieve"] / "candidates.parquet")
        found = next_candidates(candidates, {item["id"] for item in asked}, short)
        because = "" if found else "; no candidates are left"
        if number >= config.validation.rounds:
            found, because = [], f"; validation.rounds is {number}"
        self.context.run_log.say(
            f"tally: after round {number} {len(short)} classes of buckets are short, e.g. {describe_short(short)[0]}"
            + (f"; {len(found):,} further candidates are asked" if found else because)
        )
        return found

    def _catalogue(self, inputs: Mapping[str, Path]) -> _Catalogue:
        table = pq.read_table(parts_of(inputs["filter"]), columns=["id", "label"])
        known = dict(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))
        return _Catalogue(known, {c.name: c.label for c in concepts_of(self.context.config)})

    def _crowd(self, inputs: Mapping[str, Path]) -> _Crowd:
        return _Crowd(self, inputs, read_lines(self.outside()), {}, [])


@dataclass(frozen=True)
class _Catalogue:
    """The source's own labels answer at once."""

    known: dict[str, str | None]
    labels: dict[str, str]

    def answered(self, items: Items, number: int) -> bool:
        """Always."""
        return True

    def judge(self, asked: Items) -> pa.Table:
        """Verdicts of everything asked."""
        return verdicts_from_labels([_plain(i) for i in asked], self.known, self.labels)

    def finish(self, out: Path) -> None:
        """Nobody answered: nothing to write."""


@dataclass(frozen=True)
class _Crowd:
    """People's answers. lines: of all results files, by batch. batches: facts of every round so far, by name."""

    stage: Tally
    inputs: Mapping[str, Path]
    lines: dict[str, list[Line]]
    batches: dict[str, dict[str, Any]]
    answers: list[pa.Table]

    def answered(self, items: Items, number: int) -> bool:
        """Whether round `number` is answered; writes its batch and raises Waiting where it is not. False: the round has
        no answers, and `accept_incomplete` says to go on without."""
        context, section = self.stage.context, self.stage.context.config.validation
        folder, batch = self._batch(items, number)
        self.batches[batch["batch"]] = batch
        mine = self.lines.get(batch["batch"], [])
        if number > 1 and not mine and section.accept_incomplete:
            del self.batches[batch["batch"]]
            shutil.rmtree(folder)
            return False
        table = read_answers(mine, batch, f"driftline:{context.config.seed}")
        given = Counter(
            i for i, f in zip(table["id"].to_pylist(), table["fault"].to_pylist(), strict=True) if f is None
        )
        short = sorted({i["id"] for i in items if given[i["id"]] < section.workers})
        place = context.root / section.answers
        if not mine or (short and not section.accept_incomplete):
            refuse_foreign(self.lines, list(self.batches))
        if not mine:
            which = "" if number == 1 else f"Round {number}: "
            raise Waiting(
                f"{which}{len({i['id'] for i in items}):,} images wait for answers: driftline annotate {context.root}; "
                f"or publish batch.csv and page.html of {folder}, put the results CSV into {place}, and run again."
            )
        if short and not section.accept_incomplete:
            raise Waiting(
                f"{len(short):,} images have fewer than {section.workers} valid answers (first: {short[0]}). "
                f"Add their results to {place}, or go on without them: --set validation.accept_incomplete=true."
            )
        self.answers.append(table)
        return True

    def _batch(self, items: Items, number: int) -> tuple[Path, dict[str, Any]]:
        """Folder and facts of a round's batch; made anew unless it is there as these items want it."""
        context = self.stage.context
        if number == 1:
            return self.inputs["ask"], read_batch(self.inputs["ask"])
        folder = round_folder(context.root, number)
        before = list(self.batches)[-1]
        earlier = {id_ for b in self.batches.values() for id_ in b["items"].values()}
        if (folder / "batch.json").is_file():
            facts = read_batch(folder)
            wanted = {item["id"] for item in items}
            same = (folder / "page.html").read_bytes() == (self.inputs["ask"] / "page.html").read_bytes()
            if same and facts["after"] == before and wanted <= set(facts["items"].values()):
                return folder, facts
        for stale in sorted(folder.parent.glob("round_*")):
            if stale.name >= folder.name:
                shutil.rmtree(stale)
        facts = batch_of(context, items, self.inputs, folder, earlier, before)
        context.run_log.say(f"tally: the batch of round {number} lies in {folder}, about ${facts['estimate_usd']:,.2f}")
        return folder, facts

    def judge(self, asked: Items) -> pa.Table:
        """Verdicts of everything asked, from all answers so far."""
        s = self.stage.context.config.validation
        rules = TallyRules(
            s.workers, s.agree, s.rule, s.sensitive_drop, s.sensitive_hold, s.aggregate, s.confidence
        )  # fmt: skip
        return tally([_plain(i) for i in asked], pa.concat_tables(self.answers), rules)

    def finish(self, out: Path) -> None:
        """Write the answers, what they say of each other and of the workers. Raises BadInput for foreign answers."""
        refuse_foreign(self.lines, list(self.batches))
        answers = pa.concat_tables(self.answers) if self.answers else ANSWERS.empty_table()
        gold = {
            b["items"][item]: frozenset(labels) for b in self.batches.values() for item, labels in b["gold"].items()
        }
        told = agreement(answers, gold)
        write_parquet(out / "answers.parquet", answers)
        write_json(out / "agreement.json", told)
        if rejections := suggested_rejections(answers, told):
            write_text(out / "suggested_rejections.csv", csv_text(("AssignmentId", "Reject"), rejections, end="\r\n"))


def _plain(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item[name] for name in ("id", "bucket", "concept")}
