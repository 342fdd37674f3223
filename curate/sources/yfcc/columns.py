"""The 23 text columns of YFCC100M records → the table's columns, checked and decoded, whole columns at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.curate.core.parsing import degrees, integers, local_seconds, plus_decode
from driftline.curate.metadata.columns import LONGEST_RAW
from driftline.curate.metadata.schema import SOURCE, records_with

# Names as in the SQLite form, in the order of the parts of 2014.
NAMES = (
    "photoid", "uid", "unickname", "datetaken", "dateuploaded", "capturedevice", "title", "description", "usertags",
    "machinetags", "longitude", "latitude", "accuracy", "pageurl", "downloadurl", "licensename", "licenseurl",
    "serverid", "farmid", "secret", "secretoriginal", "ext", "marker",
)  # fmt: skip
USED = tuple(name for name in NAMES if name not in (
    "machinetags", "accuracy", "serverid", "farmid", "secret", "secretoriginal", "ext",
))  # fmt: skip


def records(
    columns: dict[str, pa.Array], rows: np.ndarray, raw: Callable[[int], str], earlier: Sequence[dict[str, object]] = ()
) -> pa.RecordBatch:
    """columns: USED names → (N,) strings, "" = missing. rows: (N,) row numbers. raw(i): text of record i.

    earlier: records without 23 columns (row, fault, raw), which are put in their places. Free text is decoded; tags are
    not, because they must be split at commas first. A record has the first fault that applies.
    """
    n = len(rows)
    id_, uploaded, marker = columns["photoid"], columns["dateuploaded"], columns["marker"]
    seconds = integers(uploaded)
    checks = (
        ("bad_id", pc.invert(pc.match_substring_regex(id_, r"^[0-9]{1,90}$"))),
        ("bad_upload_time", pc.and_(pc.is_null(seconds), pc.not_equal(uploaded, ""))),
        ("bad_marker", pc.invert(pc.is_in(marker, pa.array(["0", "1"])))),
    )
    faults: dict[int, tuple[str, str]] = {}
    for name, mask in checks:
        for i in np.flatnonzero(mask.to_numpy(zero_copy_only=False).astype(bool)).tolist():
            faults.setdefault(i, (name, raw(i)[:LONGEST_RAW]))

    def missing(values: pa.Array) -> pa.Array:
        return pc.if_else(pc.equal(values, ""), None, values)

    decoded: dict[str, pa.Array] = {
        "id": id_,
        "row": pa.array(rows, pa.int64()),
        "url": missing(columns["downloadurl"]),
        "uploaded": seconds,
        "taken": local_seconds(columns["datetaken"]),
        "user": missing(columns["uid"]),
        "nickname": missing(plus_decode(columns["unickname"])),
        "title": missing(plus_decode(columns["title"])),
        "description": missing(plus_decode(columns["description"])),
        "tags": missing(columns["usertags"]),
        "camera": missing(plus_decode(columns["capturedevice"])),
        "licence": missing(columns["licensename"]),
        "licence_url": missing(columns["licenseurl"]),
        "page_url": missing(columns["pageurl"]),
        "media": pc.if_else(pc.equal(marker, "0"), "photo", "video"),
        "longitude": degrees(columns["longitude"]),
        "latitude": degrees(columns["latitude"]),
    }
    batch = records_with(decoded, faults, n)
    if not earlier:
        return batch
    faulty = pa.Table.from_pylist(list(earlier), schema=SOURCE)
    whole = pa.concat_tables([pa.Table.from_batches([batch]), faulty]).sort_by("row")
    return whole.combine_chunks().to_batches()[0]
