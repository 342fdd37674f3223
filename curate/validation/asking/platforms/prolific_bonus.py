"""Bonuses by Prolific's API: each line of a file is paid in the study of its submission, once.

To pay is not idempotent ("Pay bonuses" of the document that `prolific_service` names): a second request for the same
bonuses pays them again. So the journal has each request before it is sent, and what became of one that was perhaps
carried out is read from the `bonus_payments` of its submissions.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from driftline.curate.core.errors import BadConfig, BadInput, DriftlineError, Unfinished
from driftline.curate.core.outside.tables import csv_rows
from driftline.curate.validation.asking.platforms.prolific_api import KNOWN, Journal, published, submissions
from driftline.curate.validation.asking.platforms.prolific_service import Open, Service

STEP = "bonus "  # begins the journal's steps, each of which names its lines
PAID_AT_ONCE = 200  # "We recommend a maximum of 200 participant or submission IDs per request"
DAY = 86_400.0  # bonuses are paid "in the following minutes"; one that Prolific does not show a day later is not


@KNOWN
def bonus(service: Service, studies: Sequence[Journal], path: Path, max_usd: float | None) -> dict[str, Any]:
    """Pay the bonuses of a CSV with the columns SubmissionId and Amount; a line that was paid before is left out.

    Returns how many were paid and what they cost, and `paid_before` if there are such lines. Raises BadInput for a line
    that is no bonus of one of the studies, BadConfig above `max_usd`, Unfinished while it is open whether the last
    command's bonuses were paid.
    """
    lines = _lines(path)
    study_of = {one["id"]: journal for journal in studies for one in submissions(service, journal)}
    if strange := [line for line in lines if line.split(",")[0] not in study_of]:
        raise BadInput(
            f"{path} names {len(strange):,} submissions that no study of this run has, {strange[0].split(',')[0]!r} "
            "the first.",
            "Expected SubmissionId, the AssignmentId of a results file.",
            "Correct the file.",
        )
    due, before = [], 0
    for journal in studies:
        _settle(service, journal)
        paid = {line for step in journal.done if step.startswith(STEP) for line in _lines_of(step)}
        own = [line for line in lines if study_of[line.split(",")[0]] is journal]
        new = [line for line in own if line not in paid]
        before += len(own) - len(new)
        for start in range(0, len(new), PAID_AT_ONCE):
            text = "\n".join(new[start : start + PAID_AT_ONCE])
            body = {"study_id": published(journal), "csv_bonuses": text}
            order = service.call("POST", "/submissions/bonus-payments/", body)
            due.append((journal, STEP + text, str(order["id"]), float(order["total_amount"])))
    total = sum(cents for *_, cents in due) / 100
    if due and (max_usd is None or not total <= max_usd):
        raise BadConfig(f"The bonuses cost ${total:,.2f} with fees; --max-usd is {max_usd}.", "Expected more.")
    for journal, step, order, cents in due:
        journal.begin(step)
        try:
            service.call("POST", f"/bulk-bonus-payments/{order}/pay/")
        except Open:
            raise
        except DriftlineError:
            journal.refuse(step)
            raise
        journal.end(step, {"bonuses": len(_lines_of(step)), "cost_usd": cents / 100})
    summary = {"bonuses": sum(len(_lines_of(step)) for _, step, *_ in due), "cost_usd": total}
    return summary | ({"paid_before": before} if before else {})


def _lines(path: Path) -> list[str]:
    """The lines of a file as Prolific takes them, `submission,1.00`. Raises BadInput for one that is none."""
    expected = "Expected SubmissionId, and Amount as 1.50, in the study's currency."
    lines = dict[str, None]()
    for number, row in csv_rows(path, ["SubmissionId", "Amount"], expected):
        id_, amount = row["SubmissionId"].strip(), row["Amount"].strip()
        if not re.fullmatch(r"[\w-]+", id_, re.ASCII) or not re.fullmatch(r"(?a)\d{1,6}(\.\d{1,2})?", amount):
            raise BadInput(f"{path}, line {number}: {id_!r}, {amount!r}.", expected, "Correct the file.")
        if not float(amount) or _line(id_, amount) in lines:
            what = "twice the same bonus" if float(amount) else "no money"
            raise BadInput(f"{path}, line {number}: {what} for {id_!r}.", expected, "Correct the file.")
        lines[_line(id_, amount)] = None
    return list(lines)


def _line(submission: str, amount: str) -> str:
    return f"{submission},{float(amount):.2f}"


def _lines_of(step: str) -> list[str]:
    """The lines that a step of the journal pays; amounts as of today, whatever an earlier version wrote."""
    pairs = (line.partition(",") for line in step.removeprefix(STEP).split("\n"))
    return [_line(submission, amount) for submission, _, amount in pairs]


def _settle(service: Service, journal: Journal) -> None:
    """Find out what became of requests that were perhaps carried out: bonuses that Prolific shows are paid, those that
    it does not show a day later are not. Raises Unfinished before that."""
    for step in [s for s in journal.begun if s.startswith(STEP) and s not in journal.done]:
        lines = _lines_of(step)
        arrived = [line for line in lines if _is_shown(service, line)]
        if len(arrived) < len(lines) and time.time() < (end := journal.begun[step] + DAY):
            raise Unfinished(
                f"The last command stopped while it asked Prolific to pay {len(lines):,} bonuses; Prolific shows "
                f"{len(arrived):,} of them.",
                "It pays them minutes after a request, and a second request would pay them a second time.",
                "The same command asks again what was paid, and pays what is missing after "
                f"{datetime.fromtimestamp(end, UTC):%d %B, %H:%M} UTC.",
            )
        if arrived:
            journal.end(STEP + "\n".join(arrived), {"bonuses": len(arrived)})
        if step not in journal.done:
            journal.refuse(step)


def _is_shown(service: Service, line: str) -> bool:
    """Whether Prolific shows a bonus of this amount for the submission."""
    submission, _, amount = line.partition(",")
    shown = service.call("GET", f"/submissions/{submission}/").get("bonus_payments") or []
    return round(100 * float(amount)) in [round(cents) for cents in shown]
