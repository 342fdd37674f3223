"""`driftline reproduce`: a paper's tables and figures, ours beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from driftline.pipelines.cli.common import (
    Device,
    Workers,
    command,
    executor_of,
    log_of,
    option,
    show,
)
from driftline.pipelines.cli.out import guarded_out
from driftline.pipelines.kinds import several

reproduce_app = typer.Typer()


@command(
    reproduce_app,
    "reproduce",
    "driftline reproduce seq-to-final --data data --only table-2 --quick --out ours",
    panel="Evaluate",
)
def reproduce(
    paper: Annotated[
        Literal["clear", "near-future", "seq-to-final", "ocrr"], typer.Argument(metavar="PAPER", help="The paper.")
    ],
    data: Annotated[Path, option("--data", "DIR", "Folder with the data sets; --plan names its files.")],
    out: Annotated[Path, option("--out", "DIR", "Folder for page, table, figures, streams and rows.")],
    only: Annotated[
        list[str] | None, option("--only", "ITEM,…", "Tables and figures, as in table-2,figure-16.")
    ] = None,
    quick: Annotated[bool, option("--quick", None, "A reduced version, at most ten minutes on two cores.")] = False,
    plan: Annotated[bool, option("--plan", None, "Only list the items, their data and their cost.")] = False,
    seeds: Annotated[str | None, option("--seeds", "N-N", "As in 0-4 (default: as many as the paper has).")] = None,
    device: Annotated[Device, option("--device", None, "For learners with a network.")] = "auto",
    workers: Workers = "auto",
) -> None:
    """Repeat a paper's tables and figures.

    The page has the paper's value, ours, and whether they agree. A stopped run continues; finished runs are not
    repeated.
    """
    from driftline.eval.experiment.settings import seeds_of
    from driftline.eval.training.sgd_learner import place
    from driftline.pipelines.reproduce.run import Work, chosen, paper_named, written
    from driftline.pipelines.reproduce.run import plan as planned

    listed = paper_named(paper)
    items = chosen(listed, several(only))
    if plan:
        document = planned(listed, items, data)
        show(document, "\n\n".join(map(_text, document["items"])))
        return
    numbers = seeds_of(seeds) if seeds else ()
    guarded_out(out, "reproduction")
    run_log = log_of(out / "log.jsonl")
    work = Work(listed, data, out, quick, place(device), executor_of("local", workers), run_log, numbers)
    document = work.items(items)
    paths = written(document, out)
    counts: dict[str, int] = {}
    for row in document["rows"]:
        counts[row["verdict"]] = counts.get(row["verdict"], 0) + 1
    lines = [", ".join(f"{n} {verdict}" for verdict, n in counts.items()), *map(str, paths)]
    show(document, "\n".join(filter(None, lines)))


def _text(item: dict[str, object]) -> str:
    """An item of a plan."""
    needs: list[dict[str, object]] = item["needs"]  # type: ignore[assignment]
    lines = [f"{item['item']}: {item['title']}", f"  cost: {item['cost']}; {item['evaluations']} evaluations"]
    for need in needs:
        state = "there" if need["there"] else f"missing, from {need['from']}"
        lines.append(f"  needs {need['path']}: {need['what']} ({state})")
    return "\n".join([*lines, *([f"  {item['because']}"] if item["because"] else [])])
