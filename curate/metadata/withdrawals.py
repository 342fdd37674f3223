"""Photos that their owners withdrew: lists beside a run and beside a store, which every later command obeys."""

import hashlib
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

from driftline.curate.core.atomic_io import csv_text, sweep_file, write_text
from driftline.curate.core.errors import BadInput
from driftline.curate.foreign.escaping import no_formula
from driftline.curate.foreign.http import one_address

NAME = "withdrawals.csv"
PUBLISHED = ("salt", "digest", "since")  # columns of WITHDRAWN.csv
ROUNDS = 2000  # a millisecond: an owner checks one id at once, and who tries all numbers of Flickr needs years


class Withdrawal(NamedTuple):
    """One row of a list."""

    id: str
    """of the photo; "" in the list of a store, which runs with other ids share"""
    since: str
    """day on which it was withdrawn"""
    reason: str
    """in words, or "" """
    release: str
    """version of the run's release that held it; "": none"""
    address: str
    """digest of the photo's URL; "" without one"""


def address_digest(url: str) -> str:
    """32 hexadecimal digits for a URL in one form: a list names no address."""
    return hashlib.sha256((one_address(url) or url).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def withdrawals(path: Path) -> list[Withdrawal]:
    """The rows of a list with at least the column id; empty without the file. Raises BadInput."""
    if not path.is_file():
        return []
    from driftline.curate.foreign.delimited import csv_rows  # it loads Arrow

    rows = csv_rows(path, ["id"], "Expected one withdrawn photo a row.", "Correct the file.")
    return [Withdrawal(*(row.get(name, "").strip() for name in Withdrawal._fields)) for _, row in rows]


def withdraw(path: Path, photos: Sequence[Withdrawal]) -> list[Withdrawal]:
    """Add photos to a list, once each; returns those that are new."""
    sweep_file(path)
    there = withdrawals(path)
    keys = {(one.id, one.address) for one in there}
    new = [one for one in photos if (one.id, one.address) not in keys]
    if new:
        added = [one._replace(reason=no_formula(one.reason)) for one in new]
        write_text(path, csv_text(Withdrawal._fields, [*there, *added]))
    return new


def withdrawn_ids(path: Path) -> list[str]:
    """Ids of a list. Raises BadInput, also for a file that is not there."""
    if not path.is_file():
        raise BadInput(f"There is no file {path}.", "Expected a CSV file with a column id.", "Check the key withdrawn.")
    return [one.id for one in withdrawals(path) if one.id]


def today() -> str:
    """As in the column since."""
    return date.today().isoformat()


def public_digest(id_: str, salt: str) -> str:
    """Of an id, for lists that are published: it tells whether an id is in the list, and no id.

    >>> public_digest("6985418911", "photos")[:8]
    '0d3606b9'
    """
    return hashlib.pbkdf2_hmac("sha256", id_.encode(), salt.encode(), ROUNDS).hex()[:32]


def listed(ids: Iterable[str], rows: Iterable[tuple[str, str]]) -> list[str]:
    """Those of `ids` that a published list has. rows: (salt, digest)."""
    by_salt: dict[str, set[str]] = {}
    for salt, digest in rows:
        by_salt.setdefault(salt, set()).add(digest)
    return [id_ for id_ in ids if any(public_digest(id_, salt) in digests for salt, digests in by_salt.items())]


def listed_withdrawals(release: Path) -> list[tuple[str, str, str]]:
    """(salt, digest, since version) of each row of a release's WITHDRAWN.csv; empty without the file."""
    path = release / "WITHDRAWN.csv"
    if not path.is_file():
        return []
    from driftline.curate.foreign.delimited import csv_rows  # it loads Arrow

    rows = csv_rows(path, PUBLISHED, "Expected the list of a release.")
    return [(row["salt"], row["digest"], row["since"]) for _, row in rows]
