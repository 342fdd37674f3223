"""`driftline ledger …`: verify, export, prove and erase records of corrections."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from driftline.curate.core.errors import BadConfig
from driftline.pipelines.cli.common import Json, command, group_app, option, show
from driftline.pipelines.cli.out import guarded_out

BOOK = "substrate.ledger"
ledger_app = group_app("Check, export and prove records of corrections.", f"driftline ledger verify {BOOK}")
LedgerFile = Annotated[Path, typer.Argument(metavar="LEDGER", help="A ledger.")]
Out = Annotated[Path | None, option("--out", "FILE", "Default: standard output.")]
ENDINGS = (".jsonl", ".json", ".sig")


@command(
    ledger_app,
    "verify",
    f"driftline ledger verify {BOOK}",
    needs={"--signature": "--public-key", "--public-key": "--signature"},
)
def verify(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A ledger, or the proof of an entry.")],
    head: Annotated[str | None, option("--head", "HASH", "Ledger: the head that was noted elsewhere.")] = None,
    signature: Annotated[
        Path | None, option("--signature", "FILE", "Ledger: its signature, by ledger prove --key.")
    ] = None,
    public_key: Annotated[
        Path | None, option("--public-key", "FILE", "The signer's public key (Ed25519, PEM).")
    ] = None,
    root: Annotated[
        str | None, option("--root", "HASH", "Proof: the Merkle root that was noted, as in run.json.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check every byte of a ledger, or a proof without the ledger.

    The file says what it is. The entry that was changed is named.
    """
    from driftline.eval.memory.correction_ledger import verify as check
    from driftline.eval.memory.ledger_proof import check_proof, check_signature

    is_proof = path.is_file() and path.read_bytes()[:1] == b"{"
    if is_proof != (root is not None) or (head is not None and (is_proof or signature is not None)):
        kind = "proof" if is_proof else "ledger"
        expected = "Expected --root for a proof; --head, or --signature with --public-key, for a ledger."
        raise BadConfig(f"{path} is a {kind}, and the options are of something else.", expected)
    if root is not None:
        proof = check_proof(path, root)
        content = "erased" if proof["facts"] is None else json.dumps(proof["facts"], sort_keys=True)
        return show(as_json, proof, f"entry {proof['entry']} of {proof['entries']} is included: {content}")
    signed = None if signature is None or public_key is None else check_signature(path, signature, public_key)
    verdict = signed or check(path, head)
    text = f"{path} holds: {verdict.entries} entries, {len(verdict.erased)} erased"
    if verdict.noted is not None:
        by = "it was signed" if signed else "its head was noted"
        text += f"\nadded after {by}: {verdict.entries - verdict.noted}"
    show(as_json, verdict.plain(), f"{text}\nhead {verdict.head}\nroot {verdict.root}")


@command(ledger_app, "export", f"driftline ledger export {BOOK} --out corrections.jsonl")
def export(path: LedgerFile, out: Out = None, as_json: Json = False) -> None:
    """Write the entries as JSONL."""
    from driftline.curate.core.atomic_io import writing
    from driftline.eval.memory.correction_ledger import lines

    if out is None and as_json:
        show(True, {"entries": [json.loads(line) for line in lines(path)]}, "")
    elif out is None:
        sys.stdout.writelines(f"{line}\n" for line in lines(path))
    else:
        with writing(guarded_out(out, suffixes=ENDINGS), "w") as file:
            count = sum(1 for line in lines(path) if file.write(f"{line}\n"))
        show(as_json, {"out": str(out), "entries": count}, f"{out}: {count} entries")


@command(ledger_app, "prove", f"driftline ledger prove {BOOK} 3 --out entry3.json")
def prove(
    path: LedgerFile,
    number: Annotated[int | None, typer.Argument(metavar="N", help="Number of an entry, from 0.")] = None,
    count: Annotated[
        int | None, option("--entries", None, "Entries when the root was noted (default: all).", min=1)
    ] = None,
    key: Annotated[
        Path | None, option("--key", "FILE", "Instead of N: a private key (Ed25519, PEM, no password).")
    ] = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Write a proof that one entry is included, or with --key a signature.

    A proof has the entry's content: who has the Merkle root checks it with driftline ledger verify, without the ledger.
    A signature is over the head and the number of entries.
    """
    from driftline.curate.core.atomic_io import write_json
    from driftline.eval.memory import ledger_proof

    if out is not None:
        guarded_out(out, suffixes=ENDINGS)
    if number is not None and key is None:
        document = ledger_proof.prove(path, number, count)
    elif key is not None and number is None and count is None:
        document = ledger_proof.sign(path, key)
    else:
        raise BadConfig("N and --key are both given, or neither is.", "Expected the number of an entry, or a key.")
    if out is None:
        return show(True, document, "")
    write_json(out, document)
    show(as_json, {"out": str(out)}, str(out))


@command(ledger_app, "erase", f"driftline ledger erase {BOOK} 3")
def erase(
    path: LedgerFile,
    number: Annotated[int, typer.Argument(metavar="N", help="Number of the entry, from 0.")],
    as_json: Json = False,
) -> None:
    """Replace the content of an entry by a tombstone.

    The hash chain still holds.
    """
    from driftline.eval.memory.correction_ledger import erase as erase_entry

    verdict = erase_entry(path, number)
    text = f"{path}: entry {number} is erased; {verdict.entries} entries, head {verdict.head}"
    show(as_json, verdict.plain(), text)
