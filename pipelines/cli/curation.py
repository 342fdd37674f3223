"""`driftline browse`, `annotate`, `batch`, `release`, `audit`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from driftline.curate.core.errors import BadConfig
from driftline.pipelines.cli.common import (
    RunFolder,
    Sets,
    command,
    context_of_last,
    counts_text,
    next_step,
    option,
    say_address,
    several,
    show,
)
from driftline.pipelines.cli.listing import named
from driftline.pipelines.cli.out import guarded_out
from driftline.pipelines.cli.publishing import check_target, publish

curation_app = typer.Typer()

Out = Annotated[Path, option("--out", "DIR", "Folder; each format gets a subfolder.")]
Port = Annotated[int, option("--port", None, "0: any free one.", min=0, max=65535)]
Host = Annotated[str, option("--host", "NAME", "Also accept requests to this name or address, from elsewhere.")]
Open = Annotated[bool, option("--open", None, "Open the page in the browser.")]


@command(curation_app, "browse", "driftline browse photos2024 --open", panel="Build")
def browse(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A run folder or a release.")],
    port: Port = 8764,
    open_page: Open = False,
) -> None:
    """Look at all photos over time in a browser; try prompts.

    Also dropped ones, with the reason. Filters with counts, a timeline, "more like this", each photo's history, and
    lists to save. Prompts: the photos that they retrieve in each time bucket, marks of right and wrong ones, and
    prompts saved for the next run.
    """
    from driftline.pipelines.browse.opening import open_collection
    from driftline.pipelines.browse.server import application
    from driftline.pipelines.web.local_server import serve

    collection = open_collection(path)
    serve(lambda taken: application(collection, taken, ahead=True), port, say_address(open_page))


@command(curation_app, "annotate", "driftline annotate photos2024 --open", panel="Label")
def annotate(
    directory: RunFolder,
    port: Port = 8766,
    export: Annotated[bool, option("--export", None, "Write the answers so far into DIR/answers and exit.")] = False,
    host: Host = "127.0.0.1",
    open_page: Open = False,
    sets: Sets = None,
) -> None:
    """Label images in a browser, with the page of crowd workers.

    Each annotator enters a name; the page can be used with the keyboard alone. driftline run continues with the
    answers.
    """
    from driftline.pipelines.annotation.batches import export_all
    from driftline.pipelines.annotation.server import application
    from driftline.pipelines.web.local_server import serve

    context = context_of_last(directory, sets, True)
    if export:
        n, path = export_all(context), context.root / context.config.validation.answers
        text = "no answers yet\n" + next_step("annotate", directory)
        if n:
            text = f"{n:,} answers in {path}\n{next_step('run', directory)}"
        show({"answers": n, "out": str(path)}, text)
        return
    waiting = list[str]()

    def say(url: str) -> None:
        say_address(open_page)(url)
        print(*waiting, sep="\n", file=sys.stderr)

    serve(lambda taken: application(context, taken, host, waiting.append), port, say, host)


@command(curation_app, "batch", "driftline batch photos2024 --format turkle --out for-turkle", panel="Label")
def batch(
    directory: RunFolder,
    formats: Annotated[list[str], named("--format", "platforms", "Platforms")],
    out: Out,
    images: Annotated[
        str | None,
        option(
            "--image-base-url", "URL", "Where the images are: https://…, s3://bucket/prefix (signed URLs) or inline."
        ),
    ] = None,
    hours: Annotated[
        float, option("--hours", None, "s3: for how long the signed URLs are valid.", min=0, max=168)
    ] = 72.0,
    profile: Annotated[str | None, option("--profile", "NAME", "s3: AWS profile.")] = None,
    endpoint: Annotated[str | None, option("--endpoint", "URL", "s3: a compatible server.")] = None,
    predictions: Annotated[
        bool, option("--predictions", None, "label-studio: show annotators the answers of judges.")
    ] = False,
    sets: Sets = None,
) -> None:
    """Write the open batch as files for a platform or tool."""
    from driftline.curate.core.outside.s3 import S3
    from driftline.pipelines.annotation.batches import write_batches

    guarded_out(out)
    rules = S3(profile=profile, endpoint=endpoint)
    context = context_of_last(directory, sets, True)
    counts = write_batches(
        context, several(formats), out, images, hours, rules, predictions=predictions
    )  # fmt: skip
    notes = [path.read_text() for name in counts if (path := out / name / "README.txt").is_file()]
    show({"out": str(out), "batches": counts}, "\n".join([counts_text(counts, out), *notes]).rstrip())


@command(
    curation_app,
    "release",
    "driftline release photos2024 --format webdataset,clear --out exports",
    panel="Release",
    needs={"--dry-run --public --token-file --endpoint --profile": "--to"},
)
def release(
    directory: Annotated[Path, typer.Argument(metavar="RELEASE", help="A release, or the run that published it.")],
    formats: Annotated[list[str], named("--format", "exports", "Formats")],
    out: Out,
    strict: Annotated[
        bool, option("--strict", None, "Fail if the data card lacks a section that people must write.")
    ] = False,
    to: Annotated[
        str | None, option("--to", "TARGET:PLACE", "Publish what is exported: hf:USER/NAME, s3:BUCKET/PREFIX.")
    ] = None,
    dry_run: Annotated[bool, option("--dry-run", None, "--to: show files and sizes, send nothing.")] = False,
    public: Annotated[bool, option("--public", None, "--to: everybody may read it (default: only you).")] = False,
    token_file: Annotated[
        Path | None, option("--token-file", "FILE", "--to: the access token (default: HF_TOKEN).")
    ] = None,
    endpoint: Annotated[str | None, option("--endpoint", "URL", "--to: a compatible server.")] = None,
    profile: Annotated[str | None, option("--profile", "NAME", "--to s3: AWS profile.")] = None,
) -> None:
    """Export a release in common formats; publish it with --to.

    After a checksum test. An upload continues where it stopped; a version becomes visible at its end, and never
    changes.
    """
    from driftline.curate.core.outputs import refill_all
    from driftline.curate.export import EXPORTS
    from driftline.curate.release import Release
    from driftline.curate.release.card_sections import missing_sections

    names = several(formats)
    check_target(to, names)
    guarded_out(out)
    exporters = {name: EXPORTS.resolve(name) for name in names}
    opened = Release.open(directory)
    opened.verify()
    if strict and (missing := missing_sections(opened.facts["provenance"]["judgement"])):
        raise BadConfig(
            f"The data card of {opened.name} lacks the sections {', '.join(missing)}.",
            "Expected each as a paragraph that begins with its name in bold.",
            "Write them into the file that release.judgement names, and publish again.",
        )
    filled = refill_all({out / name: partial(export, opened) for name, export in exporters.items()})
    counts = {place.name: count for place, count in filled.items()}
    document, text = {"out": str(out), "release": opened.name, "exports": counts}, counts_text(counts, out)
    if without := sum(count["images"] - count["with_url"] for count in counts.values() if "with_url" in count):
        why = "they are local files, or their address has a query and release.columns lacks url"
        print(f"Warning: {without:,} photos have no address, so nobody can fetch them: {why}.", file=sys.stderr)
    if to is not None:
        from driftline.curate.publishing.plan import Settings

        sent = publish(out / next(iter(exporters)), to, dry_run, Settings(public, token_file, endpoint, profile))
        document, text = {**document, "published": sent[0]}, f"{text}\n{sent[1]}"
    show(document, text)


@command(curation_app, "audit", "driftline audit photos2024 --out audit", panel="Release")
def audit(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A release, a run that published one, or a stream.")],
    out: Annotated[Path | None, option("--out", "DIR", "Folder for audit.html and audit.json.")] = None,
    bits: Annotated[
        int, option("--copy-bits", "N", "Near copies: hash bits (of 64) that may differ.", min=0, max=16)
    ] = 4,
) -> None:
    """Audit a release or a stream.

    Class balance, near-duplicates across splits and buckets, uploaders in both splits, labels to check, drift, label
    correlation and the shift S that it suggests.
    """
    from driftline.curate.core.atomic_io import write_json, write_text
    from driftline.pipelines.reporting.audit import audit as findings_of
    from driftline.pipelines.reporting.audit_page import lines, page, pictures

    if out is not None:
        guarded_out(out, "audit")
    findings = findings_of(path, bits)
    if out is not None:
        write_json(out / "audit.json", findings)
        write_text(out / "audit.html", page(findings, pictures(path, findings)))
    place = {} if out is None else {"out": str(out)}
    show(place | findings, "\n".join(lines(findings)))
