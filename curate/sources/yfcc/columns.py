"""The 23 text columns of YFCC100M records → the table's columns, checked and decoded, whole columns at a time."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.curate.core.parsing import degrees, integers, local_seconds, plus_decode
from driftline.curate.metadata.columns import FLICKR_BEGAN, LONGEST_RAW
from driftline.curate.metadata.schema import records_with

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
    columns: dict[str, pa.Array], first: int, raw: Callable[[int], str], faults: dict[int, tuple[str, str]]
) -> pa.RecordBatch:
    """columns: USED names → (N,) strings, "" = missing. first: number of the first row. raw(i): text of record i.

    faults: reason and raw text of records without 23 columns, which are null; further ones are added. Free text is
    decoded; tags are not, because they must be split at commas first. A record has the first fault that applies.
    """
    n = len(columns["photoid"])
    id_, uploaded, marker = columns["photoid"], columns["dateuploaded"], columns["marker"]
    seconds = integers(uploaded)
    checks = (
        ("bad_id", pc.invert(pc.match_substring_regex(id_, r"^[0-9]{1,90}$"))),
        ("bad_upload_time", pc.and_(pc.is_null(seconds), pc.not_equal(uploaded, ""))),
        ("bad_marker", pc.invert(pc.is_in(marker, pa.array(["0", "1"])))),
    )
    for name, mask in checks:
        for i in np.flatnonzero(mask.to_numpy(zero_copy_only=False).astype(bool)).tolist():
            if i not in faults:
                faults[i] = (name, raw(i)[:LONGEST_RAW])

    def missing(values: pa.Array) -> pa.Array:
        return pc.if_else(pc.equal(values, ""), None, values)

    decoded: dict[str, pa.Array] = {
        "id": id_,
        "row": pa.array(np.arange(first, first + n)),
        "url": missing(columns["downloadurl"]),
        "uploaded": pc.if_else(pc.and_(pc.less(seconds, FLICKR_BEGAN), pc.not_equal(seconds, 0)), None, seconds),
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
    return records_with(decoded, faults, n)
