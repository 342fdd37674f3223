"""Packed images → a release: metadata, features, card, Croissant, attribution, changes, and last the checksums."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from driftline.curate.core.atomic_io import csv_text, sha256_file, write_array, write_json, write_parquet, write_text
from driftline.curate.core.errors import without_secrets
from driftline.curate.foreign.escaping import no_formula
from driftline.curate.images.near_duplicates import copy_report
from driftline.curate.metadata.schema import replaced
from driftline.curate.release.changes import changes_markdown, withdrawn_csv
from driftline.curate.release.croissant import croissant_tars
from driftline.curate.release.data_card import card
from driftline.curate.release.format import FORMAT, METADATA
from driftline.curate.release.identity import FILE as MANIFEST
from driftline.curate.release.identity import bucket_identities, unlabelled_of
from driftline.curate.release.licences import NOT_STATED, licence_list
from driftline.curate.release.packing import Packed
from driftline.curate.release.selection import represented
from driftline.curate.release.settings import ReleaseSettings

TO_CUT = r"[?#]|//[^/]*@"  # addresses with something that may not be published
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def write_release(
    packed: Packed,
    vectors: Mapping[str, npt.NDArray[np.float16]],
    buckets: Sequence[Mapping[str, Any]],
    classes: Sequence[str],
    splits: Mapping[str, Sequence[str]],
    provenance: Mapping[str, Any],
    out: Path,
    settings: ReleaseSettings,
    copies: npt.NDArray[np.int64] | None = None,
    changes: Mapping[str, Any] | None = None,
    withdrawn: Sequence[tuple[str, str, str]] = (),
    unlabelled: tuple[int, Mapping[str, int], Packed] | None = None,
) -> dict[str, Any]:
    """Write all files of a release except the tars in `out/shards`; returns the content of `release.json`.

    packed: its N rows have the known columns of METADATA. vectors: name → (N, D) float16, in the order of the rows, as
    are `splits` and `copies` (groups of near copies; None: not searched). changes: from `changes_since`, if there is a
    previous release. withdrawn: rows of WITHDRAWN.csv. unlabelled: number of
    images in `unlabelled.parquet`, reason → photos that are not there because of the tests, and what tars in
    `out/unlabelled` hold. SHA256SUMS is written last.
    """
    rows, further = packed.rows, Packed([], {}) if unlabelled is None else unlabelled[2]
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in METADATA]
    table = for_credit(pa.Table.from_arrays(columns, schema=METADATA), settings.columns)
    for name, sides in splits.items():
        table = table.append_column(name, pa.array(sides, pa.string()))
    write_parquet(out / "metadata.parquet", table)
    for name, matrix in vectors.items():
        write_array(out / "features" / f"{name}.npy", matrix)
    classes_in: dict[int, Counter[str]] = {b["index"]: Counter() for b in buckets}
    for row in rows:
        classes_in[row["bucket"]][row["class"]] += 1
    shown = {"id": [r["id"] for r in rows], "bucket": [r["bucket"] for r in rows], "class": [r["class"] for r in rows]}
    facts = {
        "format": FORMAT,
        "name": settings.name,
        "version": settings.version,
        "images": len(rows),
        "classes": list(classes),
        "buckets": [dict(b) for b in buckets],
        "per_class": {str(b["index"]): dict(sorted(classes_in[b["index"]].items())) for b in buckets},
        "splits": list(splits),
        "test_images": {name: list(sides).count("test") for name, sides in splits.items()},
        "represented": represented(
            [{"bucket": r["bucket"], "concept": r["class"]} for r in rows],
            [row.get("group") or row["id"] for row in rows],
            splits,
            settings.test_share,
        ),
        "features": list(vectors),
        "scores": score_quantiles(rows),
        "near_copies": None if copies is None else copy_report(copies, shown | dict(splits)),
        "licences": dict(sorted(Counter(r.get("licence") or NOT_STATED for r in rows).items())),
        "licence_list": licence_list((r.get("licence"), r.get("licence_url")) for r in rows),
        "file_changes": dict(sorted(Counter(row["changes"] for row in [*rows, *further.rows]).items())),
        "answers": answers_given(rows),
        "changes": changes,
        "withdrawn": len(withdrawn),
        "unlabelled": None if unlabelled is None else unlabelled[0],
        "unlabelled_left_out": {} if unlabelled is None else dict(sorted(unlabelled[1].items())),
        "provenance": dict(provenance),
    }
    write_json(out / "release.json", facts)
    write_json(out / MANIFEST, bucket_identities(facts, table, vectors, unlabelled_of(out, held=True)))
    write_text(out / "ATTRIBUTION.csv", attribution([*rows, *further.rows]))
    write_text(out / "WITHDRAWN.csv", withdrawn_csv(withdrawn))
    if changes is not None:
        write_text(out / "CHANGES.md", changes_markdown(changes, settings.version))
    tars = {f"shards/{name}": digest for name, digest in packed.sums.items()}
    write_croissant(out, facts, table, tars)
    write_text(out / "README.md", card(facts))
    seal(out, tars | {f"unlabelled/{name}": digest for name, digest in further.sums.items()})
    return facts


def write_croissant(out: Path, facts: Mapping[str, Any], table: pa.Table, tars: Mapping[str, str]) -> None:
    """Write croissant.json of a release in tars. table: metadata.parquet. tars: path → SHA-256."""
    kinds = {field.name: str(field.type) for field in table.schema}
    metadata = out / "metadata.parquet"
    sizes = [(name, digest, (out / name).stat().st_size) for name, digest in tars.items()]
    place = sha256_file(metadata), metadata.stat().st_size
    extensions = sorted({member.rpartition(".")[2] for member in table["member"].to_pylist()})
    write_json(out / "croissant.json", croissant_tars(facts, kinds, place, sizes, extensions))


def score_quantiles(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Class → QUANTILES of the retrieval scores of its images."""
    scores: dict[str, list[float]] = {}
    for row in rows:
        if row.get("score") is not None:
            scores.setdefault(row["class"], []).append(row["score"])
    return {name: [round(float(q), 4) for q in np.quantile(scores[name], QUANTILES)] for name in sorted(scores)}


def attribution(rows: Sequence[Mapping[str, Any]]) -> str:
    """The text of ATTRIBUTION.csv: author, source, licence and changes of each image, as Creative Commons licences
    require.

    Cells that a spreadsheet would run as a formula begin with an apostrophe.
    """
    columns = ("id", "title", "creator", "page_url", "licence", "licence_url", "sha256", "changes")
    return csv_text(columns, ([no_formula(row.get(c) or "") for c in columns] for row in rows))


def answers_given(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Who answered ("people", "judges") → answers an image → images; empty if nobody was asked."""
    counts = {who: Counter(row[who] for row in rows if row.get(who) is not None) for who in ("people", "judges")}
    return {who: {str(n): of[n] for n in sorted(of)} for who, of in counts.items() if any(of)}


def seal(folder: Path, computed: Mapping[str, str] | None = None) -> None:
    """Write SHA256SUMS of every file in `folder`. computed: name → checksum that need not be computed again."""
    names = sorted(
        p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and p.name != "SHA256SUMS"
    )
    sums = ((name, (computed or {}).get(name) or sha256_file(folder / name)) for name in names)
    write_text(folder / "SHA256SUMS", "".join(f"{digest}  {name}\n" for name, digest in sums))


def for_credit(table: pa.Table, asked: Collection[str]) -> pa.Table:
    """A table with the columns user, url, page_url and licence_url as it is published; tokens of addresses are cut.

    asked: of "user" and "url"; without it the uploader's id is null, and so is an address with a query.
    """
    if "user" not in asked:
        table = replaced(table, "user", pa.nulls(len(table), pa.string()))
    for name in ("url", "page_url", "licence_url"):
        if pc.any(pc.match_substring_regex(table[name], TO_CUT)).as_py():
            cut = [None if text is None else without_secrets(text) for text in table[name].to_pylist()]
            if name == "url" and "url" not in asked:
                cut = [None if text is None or "?" in text else text for text in cut]
            table = replaced(table, name, pa.array(cut, pa.string()))
    return table
