"""Charts as files: SVG, and PNG and PDF that vl-convert (resvg, svg2pdf) makes of it."""

from __future__ import annotations

from pathlib import Path

from driftline.curate.core.atomic_io import write_bytes
from driftline.curate.core.errors import BadConfig
from driftline.eval.plotting.charts import Picture, tag

KINDS = (".svg", ".pdf", ".png")
OF_NETWORKS = ("interpolation", "projection", "svcca", "adjacent")  # drawn by `finetuning.draw`, not from rows alone
INK, PAPER = "#14181a", "#ffffff"
SCALE = 2  # pixels of a PNG for one of the SVG


def save(picture: Picture, path: Path) -> Path:
    """Write a chart by the suffix of `path`. The same chart gives the same bytes as SVG and PNG; a PDF numbers its
    objects in any order. Raises BadConfig for another suffix."""
    return save_svg(standalone(picture.svg), path)


def save_svg(svg: str, path: Path) -> Path:
    """The same of a file of `standalone`."""
    if path.suffix not in KINDS:
        raise BadConfig(f"The file of a chart is {path.name!r}.", f"Expected a name that ends in {', '.join(KINDS)}.")
    write_bytes(path, encoded(svg, path.suffix))
    return path


def encoded(svg: str, kind: str) -> bytes:
    """The bytes of a file. kind: of `KINDS`."""
    if kind == ".svg":
        return svg.encode()
    import vl_convert

    return bytes(vl_convert.svg_to_png(svg, scale=SCALE) if kind == ".png" else vl_convert.svg_to_pdf(svg))


def standalone(svg: str) -> str:
    """A picture of a page as a file of its own: on white paper, in dark ink, and of a size."""
    width, height = svg.partition("viewBox='0 0 ")[2].partition("'")[0].split()
    head = "<svg xmlns='http://www.w3.org/2000/svg' font-family='system-ui, sans-serif' "
    begin = f"{head}width='{width}' height='{height}' color='{INK}' "
    paper = tag("rect", width="100%", height="100%", fill=PAPER)
    opening, _, content = svg.removeprefix("<svg ").partition(">")
    return f"{begin}{opening}>{paper}{content}"
