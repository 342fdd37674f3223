"""`driftline ledger …`: check, print and erase from records of corrections."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.common import Json, command

ledger_app = typer.Typer(no_args_is_help=True, help="Check records of corrections.", rich_markup_mode=None)
Place = Annotated[Path, typer.Argument(metavar="FILE", help="A ledger.")]


@command(ledger_app, "verify", "driftline ledger verify ledgers/substrate-seed0.ledger")
def verify(
    path: Place,
    head: Annotated[str | None, typer.Option("--head", help="The head as it was noted elsewhere.")] = None,
    as_json: Json = False,
) -> None:
    """Check every byte; says which entry was changed."""
    from eval.memory.correction_ledger import verify as check

    verdict = check(path, head)
    if as_json:
        print(json.dumps(verdict.plain()))
        return
    print(f"{path} holds: {verdict.entries} entries, {len(verdict.erased)} erased")
    print(f"head {verdict.head}\nroot {verdict.root}")


@command(ledger_app, "export", "driftline ledger export ledgers/substrate-seed0.ledger --out corrections.jsonl")
def export(
    path: Place, out: Annotated[Path | None, typer.Option("--out", help="A file; without it, standard output.")] = None
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
def erase(path: Place, number: Annotated[int, typer.Argument(metavar="N", help="The entry, from 0.")]) -> None:
    """Take what an entry holds out of the file and put a tombstone; the chain still holds."""
    from eval.memory.correction_ledger import erase as take_out

    verdict = take_out(path, number)
    print(f"{path}: entry {number} is erased; {verdict.entries} entries, head {verdict.head}")
