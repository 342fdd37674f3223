"""`driftline stream from-clear` and the other importers: data sets with dates that people already have → streams."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from driftline.pipelines.cli.common import Json, command
from driftline.pipelines.cli.stream_from import Out, Published, Seed, Size, TieSeed, published_facts, save, tell

if TYPE_CHECKING:
    from driftline.stream_builder.stream import Stream

import_app = typer.Typer()

Period = Annotated[
    str, typer.Option("--period", help="A step per year, month or day, or a number of steps of about equal size.")
]
TestShare = Annotated[float, typer.Option("--test-share", help="Share of test samples, if the data has no split.")]
Files = Annotated[str | None, typer.Option("--files", help="Column of file names.")]


def written(stream: Stream, out: Path, published: str | None, as_json: bool, protocol: str = "clear-iid") -> None:
    """Save an imported stream and tell the user, with its licence and what to cite."""
    tell(as_json, [save(stream, out, published_facts(published))], protocol)
    if not as_json:
        for name in ("licence", "cite"):
            if name in stream.facts:
                typer.echo(f"{name}: {stream.facts[name]}")


@command(import_app, "from-clear", "driftline stream from-clear clear10 --features moco_b0 --out clear10-moco")
def from_clear(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="The unpacked download, old or new layout.")],
    out: Out,
    features: Annotated[
        str, typer.Option("--features", help="images:SIZE (decoded on access), or published features: moco_b0, …")
    ] = "images:224",
    split: Annotated[int, typer.Option("--split", min=0, help="Which of the old layout's five splits.")] = 0,
    first_bucket: Annotated[
        Literal["auto", "prior", "step"],
        typer.Option(
            "--first-bucket", help="prior: bucket 0 has no labels, for pre-training; auto: so if all 11 exist."
        ),
    ] = "auto",
    seed: TieSeed = 0,
    published: Published = None,
    as_json: Json = False,
) -> None:
    """Read CLEAR-10 or CLEAR-100 as they are published.

    Refuses half a download, files of another version, photos in the wrong bucket and pickles with code.
    """
    from driftline.stream_builder.importers.clear import from_clear as read

    written(read(path, features, split, first_bucket, seed), out, published, as_json)


@command(import_app, "from-folder-by-time", "driftline stream from-folder-by-time album --out by-year")
def from_folder_by_time(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="Class folders of dated photos.")],
    out: Out,
    size: Size = 224,
    period: Period = "year",
    test_share: TestShare = 0.3,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Read class folders of dated photos.

    Dates are in EXIF, in files beside the photos, or in their names."""
    from driftline.stream_builder.importers.folder_by_time import from_folder_by_time as read

    written(read(path, size, period, test_share, seed), out, None, as_json)


@command(import_app, "from-hub", "driftline stream from-hub USER/NAME --time year --label model --out S")
def from_hub(
    path: Annotated[Path, typer.Argument(metavar="PATH|USER/NAME", help="A local copy, or a name on the Hub.")],
    out: Out,
    time: Annotated[str, typer.Option("--time", help="Column of dates, years, ISO 8601 or seconds since 1970.")],
    label: Annotated[str, typer.Option("--label", help="Column of labels.")],
    x: Annotated[str | None, typer.Option("--x", help="Column of images or texts (default: found).")] = None,
    config: Annotated[str | None, typer.Option("--config", help="A configuration of the data set.")] = None,
    time_unit: Annotated[str, typer.Option("--time-unit", help="Of numbers: s, ms, us, ns, or auto.")] = "auto",
    size: Size = 224,
    period: Period = "year",
    test_share: TestShare = 0.3,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Read a Hugging Face data set, shard by shard.

    Images or texts with a date and a label column; from a local copy, or from the Hub (HF_TOKEN for private ones).
    """
    import shutil

    from driftline.stream_builder.importers.hub import from_hub as read

    work = out.parent / f".partial-{out.name}-shards"  # beside the stream: its files become hard links
    try:
        stream = read(
            path, time, label, x, config, time_unit,
            size=size, period=period, test_share=test_share, seed=seed, work=work,
        )  # fmt: skip
        written(stream, out, None, as_json)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@command(import_app, "from-tic", "driftline stream from-tic year2uids.json --table mine.parquet --out S")
def from_tic(
    path: Annotated[Path, typer.Argument(metavar="LISTS", help="…_year2uids.json or .pkl, or a folder of YEAR.npy.")],
    out: Out,
    table: Annotated[Path, typer.Option("--table", help="CSV or Parquet with uid, label and file names.")],
    uid: Annotated[str | None, typer.Option("--uid", help="Column of uids.")] = None,
    label: Annotated[str | None, typer.Option("--label", help="Column of labels.")] = None,
    files: Files = None,
    features: Annotated[Path | None, typer.Option("--features", help="A .npy file, rows as in the table.")] = None,
    root: Annotated[Path | None, typer.Option("--root", help="Folder of the images (default: the table's).")] = None,
    size: Size = 224,
    period: Period = "year",
    test_share: TestShare = 0.3,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Join TiC's lists of uids by year to a table.

    Also lists by month; the table has images or features."""
    from driftline.stream_builder.importers.tic import from_tic as read

    stream = read(
        path, table, uid, label, files, features,
        root=root, size=size, period=period, test_share=test_share, seed=seed,
    )  # fmt: skip
    written(stream, out, None, as_json)


@command(import_app, "from-wilds", "driftline stream from-wilds fmow_v1.1 --out fmow")
def from_wilds(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="An unpacked WILDS data set of images.")],
    out: Out,
    time: Annotated[str | None, typer.Option("--time", help="Column of times.")] = None,
    label: Annotated[str | None, typer.Option("--label", help="Column of labels.")] = None,
    files: Files = None,
    group: Annotated[str | None, typer.Option("--group", help="Column of groups (default: sequences).")] = None,
    size: Size = 224,
    period: Period = "year",
    test_share: TestShare = 0.3,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Read a WILDS data set of images: FMoW, iWildCam.

    Any other with a time column, too."""
    from driftline.stream_builder.importers.wilds import from_wilds as read

    stream = read(path, time, label, files, group, size, period=period, test_share=test_share, seed=seed)
    written(stream, out, None, as_json)


@command(import_app, "from-wild-time", "driftline stream from-wild-time yearbook.pkl --out yearbook")
def from_wild_time(
    path: Annotated[Path, typer.Argument(metavar="FILE.pkl", help="yearbook, fmow, huffpost or arxiv.")],
    out: Out,
    root: Annotated[Path | None, typer.Option("--root", help="Folder of FMoW's images.")] = None,
    size: Size = 224,
    seed: TieSeed = 0,
    as_json: Json = False,
) -> None:
    """Read a pickled data set of Wild-Time safely.

    Code in it is never run."""
    from driftline.stream_builder.importers.wild_time import from_wild_time as read

    written(read(path, root, size, seed), out, None, as_json)
