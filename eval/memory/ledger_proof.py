"""What is checked without a ledger or with a part of it: that one correction is included, and who signed its head."""

from __future__ import annotations

import base64
import json
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from driftline.curate.core.atomic_io import check_format, read_json
from driftline.curate.core.errors import BadConfig, BadInput, IntegrityError, MissingFile
from driftline.eval.memory import merkle
from driftline.eval.memory.correction_ledger import LEAF, NAMES, Verdict, entries, unpacked, verify

FORMAT = 1  # of proofs and signatures
SIGNED = ("entries", "head", "root")


def prove(path: Path, number: int, count: int | None = None) -> dict[str, Any]:
    """Proof, with its content, that an entry is among the first `count` entries (default: all).

    Raises BadInput for an entry that is not among them, and as `verify`.
    """
    n = verify(path).entries
    count = n if count is None else count
    if not 0 <= number < count <= n:
        raise BadInput(f"Entry {number} is not among the first {count} entries of {path}.", f"It has {n} entries.")
    entry = next(islice(entries(path), number, None))
    way = merkle.proof((entry.leaf for entry in islice(entries(path), count)), number, count)
    content = None if entry.payload is None else base64.b64encode(entry.payload).decode()
    proof = {"format": FORMAT, "entry": number, "entries": count, "leaf": entry.leaf.hex(), "content": content}
    return proof | {"path": [node.hex() for node in way]}


def check_proof(path: Path, root: str) -> dict[str, Any]:
    """What a proof says, once it leads to a root that is stored elsewhere: entry, entries, kind, and the facts (None if
    the content was erased).

    Raises BadInput for a file that is no proof, IntegrityError for a proof that does not lead to the root.
    """
    proof = _document(path, "proof")
    try:
        number, n, leaf = int(proof["entry"]), int(proof["entries"]), bytes.fromhex(proof["leaf"])
        way, expected = [bytes.fromhex(node) for node in proof["path"]], bytes.fromhex(root)
        content = None if proof["content"] is None else base64.b64decode(proof["content"], validate=True)
        kind, length, digest = LEAF.unpack(leaf) if len(leaf) == LEAF.size else (b"", 0, b"")
        name = NAMES[kind]
    except (KeyError, TypeError, ValueError, OverflowError):
        expected_form = "Expected the output of driftline ledger prove, and 64 hexadecimal digits."
        raise BadInput(f"{path} or the root {root!r} is damaged.", expected_form) from None
    if not merkle.included(leaf, number, n, way, expected):
        raise IntegrityError(f"{path} does not lead to the root {root}: it does not prove entry {number} of {n}.")
    if content is not None and (len(content) != length or merkle.sha(content) != digest):
        raise IntegrityError(f"{path} proves entry {number}, but its content is not that of the entry.")
    facts = None if content is None else unpacked(content, f"Entry {number} in {path}")[0]
    return {"entry": number, "entries": n, "kind": name, "facts": facts}


def sign(path: Path, key: Path) -> dict[str, Any]:
    """Signature over a ledger's count, head and root. key: an Ed25519 private key (PEM, PKCS 8, no password)."""
    private = _key(key, "private")
    verdict = verify(path).plain()
    signed = {name: verdict[name] for name in SIGNED}
    return {"format": FORMAT, **signed, "signature": private.sign(_message(signed)).hex()}


def check_signature(path: Path, signature: Path, key: Path) -> Verdict:
    """Verify a ledger and that its first entries are those that were signed. key: the public key (PEM).

    Raises BadInput for a file that is no signature or key, IntegrityError for another ledger or another key.
    """
    public = _key(key, "public")
    from cryptography.exceptions import InvalidSignature

    document = _document(signature, "signature")
    try:
        signed, bytes_signed = {name: document[name] for name in SIGNED}, bytes.fromhex(document["signature"])
    except (KeyError, TypeError, ValueError):
        raise BadInput(f"{signature} is damaged.", "Expected the output of driftline ledger prove --key.") from None
    try:
        public.verify(bytes_signed, _message(signed))
    except InvalidSignature:
        problem = f"{signature} was not made with the private key of {key}, or was changed."
        raise IntegrityError(problem, "Expected a valid Ed25519 signature.") from None
    return verify(path, signed["head"])


def _document(path: Path, kind: str) -> dict[str, Any]:
    """JSON of this module's format. Raises MissingFile, BadInput."""
    document = read_json(path)
    if not isinstance(document, dict):
        raise BadInput(f"{path} is no {kind} of a ledger.", "Expected a JSON object.")
    check_format(path, document.get("format"), FORMAT, "Make it with driftline ledger prove.")
    return document


def _message(signed: dict[str, Any]) -> bytes:
    return b"driftline ledger signature\n" + json.dumps(signed, sort_keys=True).encode()


def _key(path: Path, name: Literal["private", "public"]) -> Any:
    """An Ed25519 key. Raises BadConfig without the library, MissingFile, BadInput."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        way_out = "Install the extra: pip install 'driftline[sign]'."
        raise BadConfig("cryptography is not installed.", "", way_out) from None
    key: object = None
    try:
        data = path.read_bytes()
        public = name == "public"
        key = serialization.load_pem_public_key(data) if public else serialization.load_pem_private_key(data, None)
    except FileNotFoundError:
        raise MissingFile(f"There is no key {path}.", f"Expected an Ed25519 {name} key (PEM).") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        pass
    if not isinstance(key, ed25519.Ed25519PublicKey if name == "public" else ed25519.Ed25519PrivateKey):
        raise BadInput(f"{path} is no Ed25519 {name} key.", "Expected a PEM file without a password.")
    return key
