"""`driftline stream from-clear` and the other importers: data sets with dates that people already have → streams."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from pipelines.cli.common import Json, command
from pipelines.cli.stream_from import Out, Published, published_facts, save, tell

import_app = typer.Typer()


def written(stream: Any, out: Path, published: str | None, as_json: bool, protocol: str = "clear-iid") -> None:
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
    bucket_0: Annotated[
        Literal["auto", "prior", "step"],
        typer.Option("--bucket-0", help="prior: without labels, for pre-training; auto: so if all 11 buckets exist."),
    ] = "auto",
    published: Published = None,
    as_json: Json = False,
) -> None:
    """Read CLEAR-10 or CLEAR-100 as their authors publish them.

    Refuses half a download, files of another version, photos in the wrong bucket and pickles with code.
    """
    from stream_builder.importers.clear import from_clear as read

    written(read(path, features, split, bucket_0), out, published, as_json)
