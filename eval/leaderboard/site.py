"""The leaderboard as a static site: all tables, a lite track, ties, cost, dates, and the submissions to download."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from driftline.curate.core.atomic_io import write_bytes, write_text
from driftline.eval.leaderboard.board import ORIGIN, OWN_CODE, UNVERIFIED, Table, tables_of
from driftline.eval.leaderboard.submission import opened, runs_of, with_records
from driftline.eval.reporting.compared import facts_of, letters
from driftline.eval.reporting.pages import slug
from driftline.eval.reporting.text import spread
from driftline.eval.rows import digest, grouped
from driftline.eval.scoring.aggregate import summary
from driftline.eval.scoring.ranking import bound
from driftline.eval.scoring.sums import Resampling, clusters_of
from driftline.stream_builder.stream import Stream

if TYPE_CHECKING:
    from driftline.eval.leaderboard.verification import Verdict

LITE_MINUTES = 10  # all runs of a table of the lite track together
FEW = 300  # replicates of the tests of differences


def write_site(
    paths: Sequence[Path], verdicts: Sequence[Verdict], streams: Sequence[Path], out: Path
) -> dict[str, int]:
    """Write index.html, lite.html and submissions/ from verified submissions; returns counts for the user.

    verdicts: of the files in `paths`, which `board` accepts. streams: give dates and encoders. Learners are compared
    over all submissions.
    """
    files = {}
    for path, verdict in zip(paths, verdicts, strict=True):
        name = slug("", verdict.name, verdict.sha256[:12]).removesuffix(".html") + ".zip"
        write_bytes(out / "submissions" / name, path.read_bytes())
        files[verdict.sha256] = f"submissions/{name}"
    ties = ties_of(paths)
    about = {stream.sha256: _about(stream) for stream in map(Stream.load, streams)}
    tables = _shown(tables_of(verdicts), files, ties, about)
    notes = ((UNVERIFIED, any(v.unverified for v in verdicts)), (OWN_CODE, any(v.code for v in verdicts)))
    notices = [text.replace("*", "") for text, is_true in notes if is_true]
    listed = [
        {"name": v.name, "path": files[v.sha256], "sha256": v.sha256, "runs": len(v.again) + len(v.not_again)}
        for v in verdicts
    ]
    common: dict[str, Any] = {"origin": ORIGIN.replace("`", "").replace("*", ""), "notices": notices, "files": listed}
    common |= {"minutes": LITE_MINUTES}
    for page, title, lite in (("index", "Leaderboard", False), ("lite", "Leaderboard: lite track", True)):
        chosen = [table for table in tables if table["lite"] or not lite]
        write_text(out / f"{page}.html", _rendered(tables=chosen, title=title, lite=lite, **common))
    return {"tables": len(tables), "lite": sum(t["lite"] for t in tables), "submissions": len(listed)}


def ties_of(paths: Sequence[Path]) -> dict[str, str]:
    """Digest of a run → letters of its learner's group of ties, over several submissions."""
    runs = []
    for path in paths:
        members, _ = opened(path)
        runs += [with_records(run, members, number) for number, run in enumerate(runs_of(members))]
    ties: dict[str, str] = {}
    for (sha, protocol, name), group in grouped(runs).items():
        document, clusters = summary(group, name, sha, protocol), clusters_of(group, None)
        compared = letters(document | {"compared": facts_of(group, document, Resampling(FEW, groups=clusters))})
        for position, text in compared.items():
            ties |= dict.fromkeys(document["results"][position]["runs"], text)
    digests = {digest(run) for run in runs}
    return {key: text for key, text in ties.items() if key in digests}


def _about(stream: Stream) -> str:
    """Dates of a stream's samples, and its encoder."""
    times = [split.time for step in stream.steps for split in step.splits.values() if split.time is not None]
    parts = []
    if any(len(time) for time in times):
        first, last = (np.datetime64(int(end), "s").astype("datetime64[D]") for end in (
            min(int(t.min()) for t in times if len(t)), max(int(t.max()) for t in times if len(t))))  # fmt: skip
        parts.append(f"Samples from {first} to {last}.")
    encoder = stream.facts.get("encoder") or stream.facts.get("features")
    if encoder:
        cutoff = stream.facts.get("encoder_cutoff", "unknown")
        parts.append(f"Encoder: {encoder}; newest data that it saw: {cutoff}.")
    return " ".join(parts)


def _shown(
    tables: Sequence[Table], files: Mapping[str, str], ties: Mapping[str, str], about: Mapping[str, str]
) -> list[dict[str, Any]]:
    """What the template needs of each table; the lite track first."""
    every = []
    for table in tables:
        rows = []
        for row in table.rows:
            result, place = row.place.result, row.place
            values = [(spread(score, result), place.best and score == table.primary) for score in table.scores]
            tie = next((ties[run] for run in result["runs"] if run in ties), "")
            seconds = f"{result['seconds'] / max(1, len(result['seeds'])):.3g}"
            rows.append(
                {"of": row, "values": values, "tie": tie, "seconds": seconds, "file": files[row.verdict.sha256]}
            )
        settings = ", ".join(f"{key}={value!r}" for key, value in table.settings.items())
        stream = f"{about.get(table.sha256, '')} Stream {table.sha256[:12]}; settings: {settings or 'none'}."
        every.append({
            "of": table, "rows": rows, "about": f"{stream} {table.code}",
            "anchor": slug(table.protocol, table.stream, table.sha256[:8]).removesuffix(".html"),
            "ties": any(row["tie"] for row in rows),
            "bounds": ", ".join(row.place.name for row in table.rows if bound(row.place.result)),
            "lite": sum(row.place.result["seconds"] for row in table.rows) <= 60 * LITE_MINUTES,
        })  # fmt: skip
    return sorted(every, key=lambda one: not one["lite"])


def _rendered(**values: Any) -> str:
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loader = ChoiceLoader([PackageLoader("driftline.eval.leaderboard"), PackageLoader("driftline.eval.reporting")])
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("site.html.j2").render(**values)
