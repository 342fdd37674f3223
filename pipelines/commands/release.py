"""`driftline export`, `audit`, `compare`: what is done with a release, or a stream."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline.curate.core.errors import BadConfig, DriftlineError
from driftline.pipelines.actions.action import Answer, Shown, action
from driftline.pipelines.actions.common import admit, counts_text, guarded_out
from driftline.pipelines.actions.listing import completion
from driftline.pipelines.kinds import Names, Place, StreamPlaces, kind_of, path_of, several, streams_of

if TYPE_CHECKING:
    from driftline.curate.release import Release

NO_UPLOADERS = "Uploaders are not known here: p and intervals count every sample alone. Give --stream."


def _formats(incomplete: str) -> list[str]:
    return sorted({*completion("exports")(incomplete), *completion("stream-exports")(incomplete)})


@action(
    "driftline export photos2024 --format webdataset,clear --out exports", "Release", completes={"format": _formats},
    needs={"--dry-run --public --token-file --endpoint --profile": "--to"},
)  # fmt: skip
def export(
    path: Place, *, format: Names, out: Place, strict: bool = False, to: str | None = None, dry_run: bool = False,
    public: bool = False, token_file: Place | None = None, endpoint: str | None = None, profile: str | None = None,
) -> Shown[Answer]:  # fmt: skip
    """Export a release or a stream in common formats.

    A release after a checksum test; --to uploads it. An upload continues where it stopped; a version becomes visible at
    its end, and never changes.

    path PATH: A release, the run that published it, or a stream.
    format NAME: Formats (driftline list exports, stream-exports), or package.module:name.
    out DIR: Folder; each format gets a subfolder.
    strict: Fail if the data card of a release lacks a section that people must write.
    to TARGET:PLACE: Upload what is exported: hf:USER/NAME, s3:BUCKET/PREFIX.
    dry_run: --to: show files and sizes, send nothing.
    public: --to: everybody may read it (default: only you).
    token_file FILE: --to: the access token (default: HF_TOKEN).
    endpoint URL: --to: a compatible server.
    profile NAME: --to s3: AWS profile.
    """
    from driftline.curate import export as of_release
    from driftline.curate.core.outputs import refill_all
    from driftline.curate.release import Release
    from driftline.pipelines.run.run_folder import open_published
    from driftline.stream_builder import export as of_stream
    from driftline.stream_builder.stream import Stream

    names, source, place = several(format), path_of(path), path_of(out)
    if not names:
        raise BadConfig("--format is empty.", "Expected a name.")
    guarded_out(place)
    opened = open_published(source)
    is_stream = isinstance(opened, Stream)
    if is_stream and (to or strict):
        raise BadConfig(f"--to or --strict was given, and {source} is a stream.", "Expected a release.")
    _check_target(to, names)
    exporters = {name: (of_stream if is_stream else of_release).EXPORTS.resolve(name) for name in names}
    if isinstance(opened, Release):
        _check_release(opened, strict)
    filled = refill_all({place / name: partial(exporter, opened) for name, exporter in exporters.items()})
    counts = {folder.name: count for folder, count in filled.items()}
    kind = "stream" if is_stream else "release"
    document, text = {"out": str(place), kind: opened.name, "exports": counts}, counts_text(counts, place)
    if without := sum(count["images"] - count["with_url"] for count in counts.values() if "with_url" in count):
        why = "they are local files, or their URL has a query and release.columns lacks url"
        print(f"Warning: {without:,} photos have no URL, so they cannot be downloaded: {why}.", file=sys.stderr)
    if to is not None:
        from driftline.curate.publishing import Settings

        settings = Settings(public, None if token_file is None else path_of(token_file), endpoint, profile)
        sent = _publish(place / names[0], to, dry_run, settings)
        document, text = {**document, "published": sent[0]}, f"{text}\n{sent[1]}"
    return Shown(document, text)


def _check_target(to: str | None, formats: list[str]) -> None:
    """Raise BadConfig, before any work, unless --to names a target and one format is exported."""
    from driftline.curate.publishing import PUBLISHERS

    if to is None:
        return
    kind, colon, _ = to.partition(":")
    if not colon:
        raise BadConfig(f"--to is {to!r}.", f"Expected TARGET:PLACE; targets: {', '.join(PUBLISHERS)}.")
    PUBLISHERS.entry(kind)
    if len(formats) != 1:
        raise BadConfig(f"--to was given with {len(formats)} formats.", "Expected one: what is exported is published.")


def _publish(folder: Path, to: str, dry_run: bool, settings: Any) -> tuple[dict[str, Any], str]:
    """Publish an exported folder, or only show what would be sent; (for --json, for people)."""
    from driftline.curate.publishing import PUBLISHERS, plan_of, table

    kind, _, place = to.partition(":")
    plan = plan_of(folder)
    if dry_run:
        visible = "public" if settings.public else "private"
        text = f"{table(plan)}\nNothing was sent: a dry run. Without --dry-run, they go to {to}, {visible}."
        return {"to": to, "dry_run": True, "files": plan.files, "bytes": plan.size}, text
    done = PUBLISHERS[kind](plan, place, settings)
    visible = "public" if done.public else "private: only you see it"
    text = f"{done.address}: {done.sent:,} files sent, {done.removed:,} of the last version removed; {visible}."
    return {"to": to, **asdict(done)}, f"{text} {done.note}".strip()


def _check_release(release: Release, strict: bool) -> None:
    """Test its bytes. Raises BadConfig for a card with gaps where that is asked for."""
    from driftline.curate.release.data_card import missing_sections

    release.verify()
    if strict and (missing := missing_sections(release.facts["provenance"]["judgement"])):
        raise BadConfig(
            f"The data card of {release.name} lacks the sections {', '.join(missing)}.",
            "Expected each as a paragraph that begins with its name in bold.",
            "Write them into the file that release.judgement names, and publish again.",
        )


@action("driftline audit photos2024 --out audit", "Release")
def audit(path: Place, *, out: Place | None = None, copy_bits: int = 4) -> Shown[Answer]:
    """Audit a release or a stream.

    Class balance, near-duplicates across splits and buckets, uploaders in both splits, drift, label correlation and the
    lookahead S that it suggests.

    path PATH: A release, a run that published one, or a stream.
    out DIR: Folder for audit.html and audit.json.
    copy_bits N: Near-duplicates: hash bits (of 64) that may differ.
    """
    from driftline.curate.core.atomic_io import write_json, write_text
    from driftline.pipelines.reporting.audit import audit
    from driftline.pipelines.reporting.audit_page import lines, page, pictures

    place, document = None if out is None else guarded_out(path_of(out), "audit"), {}
    findings = audit(path_of(path), copy_bits)
    if place is not None:
        write_json(place / "audit.json", findings)
        write_text(place / "audit.html", page(findings, pictures(path_of(path), findings)))
        document = {"out": str(place)}
    return Shown(document | findings, "\n".join(lines(findings)))


@action("driftline compare photos-v1 photos-v2", "Release")
def compare(
    a: Place, b: Place, *, out: Place | None = None, stream: StreamPlaces = (), title: str = "", plugin: Names = ()
) -> Shown[Answer]:
    """Compare two versions of a release, or two sets of runs.

    Releases: shows for each bucket which scores on A and B may be compared, and why not the others; exit code 1 if none
    may. Results: shows which learners score higher in B than in A, and which do not differ, on the seeds that both
    have, and which settings differ; writes a report of both.

    a A: A result folder of driftline eval, or a release.
    b B: Results on the same streams, or another version.
    out DIR: Results: folder for the page (default: comparison).
    title TEXT: Results: title of the pages.
    """
    first, second = path_of(a), path_of(b)
    if (of_release := [kind_of(path) in ("release", "run") for path in (first, second)]) == [True, True]:
        if out is not None or stream or title or plugin:
            options_given = "--out, --stream, --title or --plugin was given for releases."
            raise BadConfig(options_given, "Expected them with result folders only.")
        return _compared_releases(first, second)
    if any(of_release):
        release, other = (first, second) if of_release[0] else (second, first)
        expected = "Expected two releases, or two result folders."
        raise BadConfig(f"{release} is a release, and {other} is none.", expected)
    from driftline.eval.reporting.two_runs import two_runs, what_differs

    place = guarded_out(path_of(out or "comparison"), "report")
    admit(several(plugin))
    page, differences = two_runs([first, second], place, streams_of(stream), title)
    lines = [", ".join(filter(None, (f"  {e['learner']}: {_shares(e)}", what_differs(e)))) for e in differences]
    lines += [NO_UPLOADERS] if any(e["uploaders"] == "not known" for e in differences) else []
    document = {"out": str(place), "report": str(page), "differences": differences}
    return Shown(document, "\n".join([*lines, f"report: {page}"]))


def _compared_releases(first: Path, second: Path) -> Shown[Answer]:
    from driftline.curate.release import Release
    from driftline.curate.release.changes import compare_releases, comparison_text

    comparison = compare_releases(Release.open(first), Release.open(second))
    problem = DriftlineError("No score on A may be compared with one on B.", "", "The reasons are above.")
    may = comparison["comparable"]
    return Shown(comparison, comparison_text(comparison), problem=None if may else problem)


def _shares(entry: dict[str, Any]) -> str:
    """A, B and the p of one learner."""
    from driftline.eval.reporting.text import p_text

    values = ["–" if entry[side] is None else f"{100 * entry[side]:.1f}" for side in ("a", "b")]
    return f"{entry['score']} {values[0]} → {values[1]}, {p_text(entry['p'])}"
