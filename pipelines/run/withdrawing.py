"""Photos that their owners withdrew leave a run: the lists beside it and beside its store name them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from driftline.curate.core.run_log import RunLog
from driftline.curate.metadata.released_ids import released_ids
from driftline.curate.metadata.withdrawals import NAME, Withdrawal, address_digest, today, withdraw
from driftline.curate.release.format import Release
from driftline.pipelines.config.loader import load
from driftline.pipelines.reporting.trace import history
from driftline.pipelines.run.kept import keep_what_stays
from driftline.pipelines.run.stage import Context
from driftline.pipelines.run.state import folder_of, kept_changes


def withdraw_photos(root: Path, photos: Sequence[str], reason: str = "") -> dict[str, Any]:
    """Withdraw photos of a run. photos: ids, paths, file names or URLs. Raises UnknownName before anything is written.

    Returns {"out": the run's list, "withdrawn": ids, "already": ids, "release": the version that holds one, or None}.
    """
    release = folder_of(root, "publish") / "release"
    opened = Release.open(release) if (release / "release.json").is_file() else None
    released = set() if opened is None else set(opened.table["id"].to_pylist())
    rows, names = [], released_ids(root)
    for photo in photos:
        whole = history(root, photo)
        url = next((event["url"] for event in whole["events"] if event.get("url")), None)
        in_release = opened is not None and {whole["id"], names.get(whole["id"])} & released
        version = opened.facts["version"] if opened is not None and in_release else ""
        digest = "" if url is None else address_digest(url)
        rows.append(Withdrawal(whole["id"], today(), " ".join(reason.split()), version, digest))
    changes = kept_changes(root)
    config = load(root / "driftline.yaml", changes)
    keep_what_stays(Context(root, config, RunLog(None, quiet=True), changes=tuple(changes)))
    new = {one.id for one in withdraw(root / NAME, rows)}
    settings = config.store
    if settings.use and (with_address := [one._replace(id="", release="", reason="") for one in rows if one.address]):
        withdraw(settings.folder(root) / NAME, with_address)
    ids = [one.id for one in rows]
    return {
        "out": str(root / NAME),
        "withdrawn": [id_ for id_ in ids if id_ in new],
        "already": [id_ for id_ in ids if id_ not in new],
        "release": next((one.release for one in rows if one.release), None),
    }
