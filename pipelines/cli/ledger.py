"""`driftline ledger …`: verify and export records of corrections, and erase from them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.common import Json, command, show

ledger_app = typer.Typer(no_args_is_help=True, help="Check records of corrections.", rich_markup_mode=None)
LedgerFile = Annotated[Path, typer.Argument(metavar="FILE", help="A ledger.")]


@command(ledger_app, "verify", "driftline ledger verify ledgers/substrate-seed0.ledger")
def verify(
    path: LedgerFile,
    head: Annotated[str | None, typer.Option("--head", help="The head hash that was noted elsewhere.")] = None,
    as_json: Json = False,
) -> None:
    """Check every byte; name the entry that was changed."""
    from eval.memory.correction_ledger import verify as check

    verdict = check(path, head)
    text = f"{path} holds: {verdict.entries} entries, {len(verdict.erased)} erased"
    show(as_json, verdict.plain(), f"{text}\nhead {verdict.head}\nroot {verdict.root}")


@command(ledger_app, "export", "driftline ledger export ledgers/substrate-seed0.ledger --out corrections.jsonl")
def export(
    path: LedgerFile,
    out: Annotated[Path | None, typer.Option("--out", help="A file (default: standard output).")] = None,
) -> None:
    """Write the entries as JSONL."""
    from curate.core.atomic_io import write_text
    from eval.memory.correction_ledger import lines

    text = "".join(f"{line}\n" for line in lines(path))
    if out is None:
        sys.stdout.write(text)
    else:
        write_text(out, text)
        print(f"{out}: {text.count(chr(10))} entries")


@command(ledger_app, "erase", "driftline ledger erase ledgers/substrate-seed0.ledger 3")
def erase(
    path: LedgerFile,
    number: Annotated[int, typer.Argument(metavar="N", help="Number of the entry, from 0.")],
    as_json: Json = False,
) -> None:
    """Replace the content of an entry by a tombstone.

    The hash chain still holds.
    """
    from eval.memory.correction_ledger import erase as erase_entry

    verdict = erase_entry(path, number)
    text = f"{path}: entry {number} is erased; {verdict.entries} entries, head {verdict.head}"
    show(as_json, verdict.plain(), text)
