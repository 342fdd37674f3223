"""What a release says of a photo's owner: what attribution needs, and what its publisher asks for besides."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from driftline.curate.core.outside.secrets import without_secrets
from driftline.curate.metadata.schema import replaced

TO_CUT = r"[?#]|//[^/]*@"  # addresses with something that may not be published


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
