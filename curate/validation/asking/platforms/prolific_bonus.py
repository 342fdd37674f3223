"""Bonuses by Prolific's API: each line of a file is paid in the study of its submission, once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from driftline.curate.core.errors import BadConfig, BadInput, Unfinished
from driftline.curate.core.outside.tables import csv_rows
from driftline.curate.validation.asking.platforms.prolific_api import KNOWN, Journal, Service, published, submissions


@KNOWN
def bonus(service: Service, studies: Sequence[Journal], path: Path, max_usd: float | None) -> dict[str, Any]:
    """Pay the bonuses of a CSV with the columns SubmissionId and Amount, once for each file's content.

    Raises BadInput for a submission of none of the studies, BadConfig above `max_usd`, Unfinished if a crash left open
    whether bonuses were paid: they would be paid twice.
    """
    rows = [(row["SubmissionId"].strip(), row["Amount"].strip())
            for _, row in csv_rows(path, ["SubmissionId", "Amount"], "Expected SubmissionId and Amount.")]  # fmt: skip
    study_of = {one["id"]: journal for journal in studies for one in submissions(service, journal)}
    if strange := [id_ for id_, _ in rows if id_ not in study_of]:
        raise BadInput(
            f"{path} names {len(strange):,} submissions that no study of this run has, {strange[0]!r} the first.",
            "Expected SubmissionId, the AssignmentId of a results file.",
            "Correct the file.",
        )
    due, before = [], []
    for journal in studies:
        text = "\n".join(f"{id_},{amount}" for id_, amount in rows if study_of[id_] is journal)
        if (step := f"bonus {text}") in journal.done:
            before.append(journal.done[step])
        elif step in journal.begun:
            raise Unfinished(
                "The last command stopped while it asked Prolific to pay these bonuses.",
                "A second request would pay them a second time.",
                "Look at the study's payments, and pay what is missing there.",
            )
        elif text:
            body = {"study_id": published(journal), "csv_bonuses": text}
            due.append((journal, step, service.call("POST", "/submissions/bonus-payments/", body)))
    total = sum(order["total_amount"] for *_, order in due) / 100
    if due and (max_usd is None or total > max_usd):
        raise BadConfig(f"The bonuses cost ${total:,.2f} with fees; --max-usd is {max_usd}.", "Expected more.")
    paid = []
    for journal, step, order in due:
        journal.begin(step)
        service.call("POST", f"/bulk-bonus-payments/{order['id']}/pay/")
        lines = step.count("\n") + 1
        paid.append(journal.end(step, {"bonuses": lines, "cost_usd": order["total_amount"] / 100}))
    summary = {key: sum(one[key] for one in paid or before) for key in ("bonuses", "cost_usd")}
    return summary | ({} if due else {"paid_before": True})
