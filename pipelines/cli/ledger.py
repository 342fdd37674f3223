"""`driftline ledger …`: verify and export records of corrections, erase from them, and prove or sign what they hold."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from driftline.pipelines.cli.common import Json, command, show

ledger_app = typer.Typer(no_args_is_help=True, help="Check records of corrections.", rich_markup_mode=None)
LedgerFile = Annotated[Path, typer.Argument(metavar="FILE", help="A ledger.")]
Number = Annotated[int, typer.Argument(metavar="N", help="Number of the entry, from 0.")]
Out = Annotated[Path | None, typer.Option("--out", help="A file (default: standard output).")]
BOOK = "ledgers/substrate-mystream-oracle-seed0.ledger"


@command(ledger_app, "verify", f"driftline ledger verify {BOOK}")
def verify(
    path: LedgerFile,
    head: Annotated[str | None, typer.Option("--head", help="The head hash that was noted elsewhere.")] = None,
    signature: Annotated[Path | None, typer.Option("--signature", help="A signature of this ledger.")] = None,
    public: Annotated[Path | None, typer.Option("--public", help="The signer's public key (Ed25519, PEM).")] = None,
    as_json: Json = False,
) -> None:
    """Check every byte; name the entry that was changed."""
    from driftline.curate.core.errors import BadConfig
    from driftline.eval.memory.correction_ledger import verify as check
    from driftline.eval.memory.ledger_proof import check_signature

    if (signature is None) != (public is None) or (signature is not None and head is not None):
        raise BadConfig("--signature needs --public, and replaces --head.", "Expected both, or neither.")
    verdict = check(path, head) if signature is None or public is None else check_signature(path, signature, public)
    text = f"{path} holds: {verdict.entries} entries, {len(verdict.erased)} erased"
    if verdict.noted is not None:
        by = "it was signed" if signature else "its head was noted"
        text += f"\nadded after {by}: {verdict.entries - verdict.noted}"
    show(as_json, verdict.plain(), f"{text}\nhead {verdict.head}\nroot {verdict.root}")


@command(ledger_app, "export", f"driftline ledger export {BOOK} --out corrections.jsonl")
def export(path: LedgerFile, out: Out = None, as_json: Json = False) -> None:
    """Write the entries as JSONL."""
    from driftline.curate.core.atomic_io import writing
    from driftline.eval.memory.correction_ledger import lines

    if out is None and as_json:
        print(json.dumps([json.loads(line) for line in lines(path)]))
        return
    if out is None:
        sys.stdout.writelines(f"{line}\n" for line in lines(path))
        return
    with writing(out, "w") as file:
        count = sum(1 for line in lines(path) if file.write(f"{line}\n"))
    show(as_json, {"file": str(out), "entries": count}, f"{out}: {count} entries")


@command(ledger_app, "erase", f"driftline ledger erase {BOOK} 3")
def erase(path: LedgerFile, number: Number, as_json: Json = False) -> None:
    """Replace the content of an entry by a tombstone.

    The hash chain still holds.
    """
    from driftline.eval.memory.correction_ledger import erase as erase_entry

    verdict = erase_entry(path, number)
    text = f"{path}: entry {number} is erased; {verdict.entries} entries, head {verdict.head}"
    show(as_json, verdict.plain(), text)


@command(ledger_app, "proof", f"driftline ledger proof {BOOK} 3 --out entry3.json")
def proof(
    path: LedgerFile,
    number: Number,
    count: Annotated[int | None, typer.Option("--entries", help="Entries when the root was noted (all).")] = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Write a proof that one entry is included, with its content.

    Who has the Merkle root checks it with `driftline ledger included`, without the ledger.
    """
    from driftline.eval.memory.ledger_proof import prove

    _write(prove(path, number, count), out, as_json)


@command(ledger_app, "included", "driftline ledger included entry3.json --root 9f86d081884c7d65…")
def included(
    path: Annotated[Path, typer.Argument(metavar="PROOF", help="The output of driftline ledger proof.")],
    root: Annotated[str, typer.Option("--root", help="The Merkle root that was noted elsewhere, as in run.json.")],
    as_json: Json = False,
) -> None:
    """Check a proof of one entry against a root, without the ledger."""
    from driftline.eval.memory.ledger_proof import check_proof

    proof = check_proof(path, root)
    content = "erased" if proof["facts"] is None else json.dumps(proof["facts"], sort_keys=True)
    show(as_json, proof, f"entry {proof['entry']} of {proof['entries']} is included: {content}")


@command(ledger_app, "sign", f"driftline ledger sign {BOOK} --key key.pem --out substrate.sig")
def sign(
    path: LedgerFile,
    key: Annotated[Path, typer.Option("--key", help="A private key (Ed25519, PEM, without a password).")],
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Sign the head and the number of entries."""
    from driftline.eval.memory.ledger_proof import sign as signature

    _write(signature(path, key), out, as_json)


def _write(document: object, out: Path | None, as_json: bool) -> None:
    """JSON to a file or to standard output."""
    from driftline.curate.core.atomic_io import write_json

    if out is None:
        print(json.dumps(document))
    else:
        write_json(out, document)
        show(as_json, {"file": str(out)}, str(out))
