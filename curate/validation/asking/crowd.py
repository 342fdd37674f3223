"""A crowd that answers about the candidates of a run, with its batches, round by round.

Classes with too few accepted images get further candidates, until they are full or no candidates remain.
"""

import math
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from driftline.curate.core.atomic_io import csv_text, write_parquet, write_secret
from driftline.curate.core.errors import Waiting
from driftline.curate.core.parsing import rows_of
from driftline.curate.core.run_log import RunLog
from driftline.curate.retrieval.settings import BACKGROUND
from driftline.curate.validation.answers.answers import ANSWERS, Line, of_people, people_of, read_answers, uncounted
from driftline.curate.validation.answers.stored import Standing, StoredAnswers, merged
from driftline.curate.validation.answers.verdicts import agreement, suggested_rejections, tally
from driftline.curate.validation.asking.batches import read_batch
from driftline.curate.validation.judges import Alone
from driftline.curate.validation.settings import ValidationSettings

LEAST_RATE = 0.1  # limits the number of candidates for a class that was rarely accepted
REJECTIONS = "suggested_rejections.csv"
Cell = tuple[int, str]  # bucket, concept
Items = list[dict[str, Any]]  # id, bucket, concept, score of each image that is asked
WriteBatch = Callable[[Items, Path, set[str], str], dict[str, Any]]  # items, folder, earlier ids, batch before → facts


def round_folder(root: Path, number: int) -> Path:
    """Folder of the batch of a later round in a run folder (that of the first round is the ask stage's)."""
    return root / "batches" / f"round_{number:02d}"


@dataclass(frozen=True)
class Crowd:
    """Workers' answers to the batches of a run."""

    root: Path
    """run folder"""
    first: Path
    """folder of the first round's batch"""
    settings: ValidationSettings
    key: str
    """text for the keyed hash of worker ids"""
    lines: Mapping[str, Sequence[Line]]
    """batch → the lines of all results files that name it"""
    write_batch: WriteBatch
    """writes the batch of a later round"""
    run_log: RunLog
    stored: StoredAnswers
    """answers to all batches of this run, and of others that use its store"""
    batches: dict[str, dict[str, Any]] = field(default_factory=dict)
    """name → facts, of every round so far"""
    answers: list[pa.Table] = field(default_factory=list)
    """valid answers of every round so far"""
    judged: pa.Table = field(default_factory=ANSWERS.empty_table)
    """answers of judges"""
    alone: Alone = field(default_factory=Alone)
    """what judges decide without people"""
    seen: set[str] = field(default_factory=set)
    """ids that people were asked"""
    standing: Standing = field(default_factory=Standing)
    """verdicts whose answers were deleted"""

    def answered(self, items: Items, number: int) -> bool:
        """Whether round `number` has its answers. False: it has none, and `accept_incomplete` continues without them.

        Writes the round's batch if it does not exist. Raises Waiting while answers are missing.
        """
        folder, batch = self._batch(items, number)
        self.batches[batch["batch"]] = batch
        lines = self.lines.get(batch["batch"], [])
        earlier = self.stored.earlier(batch)
        incomplete = self.settings.accept_incomplete
        before = len(earlier) or any(map(self.standing.covers, items))
        if number > 1 and not lines and not before and incomplete:
            del self.batches[batch["batch"]]
            shutil.rmtree(folder)
            return False
        table = merged(read_answers(lines, batch, self.key), earlier)
        valid, needed = people_of(table), self.settings.workers
        short = sorted({i["id"] for i in items if valid[i["id"]] < needed and not self.standing.covers(i)})
        place = self.root / self.settings.answers
        if not (lines or before) or (short and not incomplete):
            self._say_uncounted()
            if reasons := uncounted(lines, batch, self.key):
                self.run_log.say(f"tally: {reasons}")
        if not lines and (not before or (short and not incomplete)):
            which = f"{len(short):,} images wait" if number == 1 else f"Round {number}: {len(short):,} images wait"
            if before:
                folder = self._rest([i for i in items if i["id"] in set(short)], number, batch["batch"])
                answered = len({i["id"] for i in items}) - len(short)
                which = f"{answered:,} images have their answers from before; {len(short):,} wait"
            raise Waiting(
                f"{which} for answers: driftline annotate {self.root}; or publish batch.csv and page.html of {folder}, "
                f"put the results CSV into {place}, and run again."
            )
        if short and not incomplete:
            raise Waiting(
                f"{len(short):,} images have fewer than {self.settings.workers} valid answers (first: {short[0]}). Add "
                f"their results to {place}, or continue without them: --set validation.accept_incomplete=true."
            )
        self.answers.append(table)
        self.seen.update(item["id"] for item in self._open(items))
        return True

    def _open(self, items: Items) -> Items:
        """The items whose verdict does not stand, or is decided by enough new answers."""
        if not self.standing.rows:
            return items
        valid = people_of(pa.concat_tables(self.answers))
        return [i for i in items if valid[i["id"]] >= self.settings.workers or not self.standing.covers(i)]

    def known(self, items: Items) -> Items:
        """Those of the items that people answered before, for other settings or photos."""
        ids = {item["id"]: item["id"] for item in items}
        earlier = self.stored.earlier({"batch": "", "items": ids})
        valid = people_of(earlier)
        return [i for i in items if valid[i["id"]] >= self.settings.workers or self.standing.covers(i)]

    def _rest(self, items: Items, number: int, before: str) -> Path:
        """Folder of the batch with those images of the first round that nobody answered before."""
        if number > 1:
            return round_folder(self.root, number)
        folder, facts = self._written(items, 1, before, set())
        self.stored.take_batch(facts)
        return folder

    def _say_uncounted(self) -> None:
        """Say how many lines of the results files do not count for what is asked now, and why."""
        asked = {id_ for batch in self.batches.values() for id_ in batch["items"].values()}
        for why, n in self.stored.uncounted(self.lines, asked).items():
            self.run_log.say(f"tally: {n:,} answers do not count: {why}")

    def _batch(self, items: Items, number: int) -> tuple[Path, dict[str, Any]]:
        """Folder and facts of a round's batch."""
        if number == 1:
            return self.first, read_batch(self.first)
        earlier = {id_ for b in self.batches.values() for id_ in b["items"].values()}
        return self._written(items, number, list(self.batches)[-1], earlier)

    def _written(self, items: Items, number: int, before: str, earlier: set[str]) -> tuple[Path, dict[str, Any]]:
        """Folder and facts of a later batch; written again unless it asks for these items on the same page."""
        folder = round_folder(self.root, number)
        if (folder / "batch.json").is_file():
            facts = read_batch(folder)
            same_page = (folder / "page.html").read_bytes() == (self.first / "page.html").read_bytes()
            ids = {item["id"] for item in items}
            if same_page and facts["after"] == before and ids <= set(facts["items"].values()):
                return folder, facts
        for stale in sorted(folder.parent.glob("round_*")):
            if stale.name >= folder.name:
                shutil.rmtree(stale)
        facts = self.write_batch(items, folder, earlier, before)
        what = "new images" if number == 1 else f"round {number}"
        self.run_log.say(f"tally: the batch of {what} is in {folder}, about ${facts['estimate_usd']:,.2f}")
        return folder, facts

    def verdicts(self, asked: Items) -> pa.Table:
        """Verdicts of everything asked, from all answers so far."""
        everything = [asked_columns(i) for i in asked]
        items, decided = self._open(everything), {i: at for i, at in self.alone.decided.items() if i not in self.seen}
        return self.standing.merged(everything, tally(items, self._everyone(), self.settings, decided))

    def _everyone(self) -> pa.Table:
        """All answers that count for this run, also those of judges."""
        return pa.concat_tables([*self.answers, self.judged])

    def _judged(self, asked: Items, verdicts: pa.Table) -> dict[str, Any]:
        """What the data card says of judges, and how often each agrees with the others."""
        answers = self._everyone()
        workers = {row["worker"]: row["agreement"] for row in agreement(answers).get("workers", [])}
        accepted = verdicts.filter(pc.equal(verdicts["decision"], "kept"))["id"].to_pylist()
        seen = self.seen | self.standing.answered()
        audit = self.alone.audit(self._open([asked_columns(i) for i in asked]), of_people(answers), self.settings)
        if not audit["images"] and self.standing.deleted:
            audit = self.standing.deleted[-1]["agreement"].get("judged", {}).get("audit", audit)
        if audit["images"]:
            self.run_log.say(
                f"tally: people confirm {audit['confirmed']:,} of {audit['images']:,} audited images that judges accept"
            )
        return {
            "judges": [judge.name for judge in self.settings.judges],
            "agreement": {name: workers.get(name) for name in sorted(set(self.judged["worker"].to_pylist()))},
            "kept_labels": len(accepted),
            "unseen_labels": len([id_ for id_ in accepted if id_ not in seen]),
            "audit": audit,
        }

    def write(self, out: Path, asked: Items, verdicts: pa.Table) -> None:
        """Write the answers, their agreement and suggested rejections."""
        self._say_uncounted()
        answers = pa.concat_tables(self.answers) if self.answers else ANSWERS.empty_table()
        gold = {
            b["items"][item]: frozenset(labels) for b in self.batches.values() for item, labels in b["gold"].items()
        }
        report = agreement(of_people(answers), gold)
        if self.settings.judges:
            report["judged"] = self._judged(asked, verdicts)
        if self.standing.deleted:
            report["deleted"] = self.standing.deleted
            decided = {item["id"] for item in self._open(asked)}
            stands = [item for item in asked if item["id"] not in decided]
            write_parquet(out / "standing.parquet", self.standing.people(stands))
        write_secret(out / "answers.parquet", answers)
        write_secret(out / "agreement.json", report)
        if rejections := suggested_rejections(answers, report):
            text = csv_text(("AssignmentId", "Reject"), rejections, end="\r\n")
            write_secret(out / REJECTIONS, text)


def asked_columns(item: Mapping[str, Any]) -> dict[str, Any]:
    """What verdicts are of."""
    return {name: item[name] for name in ("id", "bucket", "concept")}


def short_cells(
    verdicts: pa.Table,
    wanted: Mapping[str, int],
    buckets: Iterable[int],
    empty: Mapping[Cell, int] = MappingProxyType({}),
) -> dict[Cell, tuple[int, float]]:
    """Cells with fewer accepted images than `wanted` for the class → (number missing, share accepted so far).

    verdicts: table of VERDICTS. An image accepted for two concepts counts for neither, because it is not published.
    empty: places of withdrawn photos, which stay empty.
    """
    asked: Counter[Cell] = Counter(rows_of(verdicts, "bucket", "concept"))
    accepted = list(rows_of(verdicts.filter(pc.equal(verdicts["decision"], "kept")), "id", "bucket", "concept"))
    times = Counter(id_ for id_, *_ in accepted)
    counts = Counter((bucket, concept) for id_, bucket, concept in accepted if times[id_] == 1)
    return {
        (b, c): (n - counts[b, c] - empty.get((b, c), 0), counts[b, c] / max(1, asked[b, c]))
        for b in buckets
        for c, n in wanted.items()
        if counts[b, c] + empty.get((b, c), 0) < n
    }


def next_candidates(
    candidates: pa.Table, asked: set[str], short: Mapping[Cell, tuple[int, float]]
) -> list[dict[str, Any]]:
    """The next candidates of every short cell; their number follows from the share accepted so far.

    candidates: `candidates.parquet` of retrieve. A concept continues in its list after the images that were asked
    (`surplus`, which passed the same rules), the background with its `reserve`. No image is asked twice. Rows: id,
    bucket, concept, score.
    """
    unused = candidates.filter(pc.is_in(candidates["fate"], value_set=pa.array(["surplus", "reserve"])))
    lists: dict[Cell, list[tuple[int, str, float]]] = defaultdict(list)
    for row in unused.to_pylist():
        cell = (row["bucket"], row["concept"])
        if cell in short and (row["fate"] == "reserve") == (row["concept"] == BACKGROUND):
            lists[cell].append((row["rank"], row["id"], row["score"]))
    taken = set(asked)
    rows: list[dict[str, Any]] = []
    for cell in sorted(short):
        missing, rate = short[cell]
        wanted = math.ceil(missing / max(rate, LEAST_RATE))
        for _, id_, score in sorted(lists[cell]):
            if wanted == 0:
                break
            if id_ not in taken:
                taken.add(id_)
                rows.append({"id": id_, "bucket": cell[0], "concept": cell[1], "score": score})
                wanted -= 1
    return rows
