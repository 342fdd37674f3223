"""Charts as files: SVG, and PNG and PDF that vl-convert (resvg, svg2pdf) makes of it, with the fonts that it uses."""

import textwrap
from pathlib import Path

from driftline.curate.core.atomic_io import write_bytes
from driftline.curate.core.errors import BadConfig
from driftline.eval.plotting.charts import Picture
from driftline.eval.plotting.frames import LETTER, WIDTH, tag, text

KINDS = (".svg", ".pdf", ".png")
OF_NETWORKS = ("interpolation", "projection", "svcca", "adjacent")  # drawn by `finetuning.draw`, not from rows alone
INK, PAPER = "#14181a", "#ffffff"
FONTS = "Helvetica, Arial, Liberation Sans, sans-serif"
INCHES, PPI = 6.8, 300  # on paper: of `WIDTH` units, so that text has 7 to 8.3 pt; pixels of a PNG for an inch
ROW = 18  # units of a line of the title


def save(picture: Picture, path: Path, title: str = "") -> Path:
    """Write a chart by the suffix of `path`. title: above the chart. The same chart gives the same bytes as SVG and
    PNG; a PDF numbers its objects in any order. Raises BadConfig for another suffix."""
    if path.suffix == ".svg":
        data = standalone(picture.svg, title).encode()
    elif path.suffix in KINDS:
        import vl_convert

        in_points = standalone(picture.svg, title, unit="")  # vl-convert: a number without a unit is in pt
        of_kind = vl_convert.svg_to_pdf if path.suffix == ".pdf" else lambda svg: vl_convert.svg_to_png(svg, ppi=PPI)
        data = bytes(of_kind(in_points))
    else:
        raise BadConfig(f"The file of a chart is {path.name!r}.", f"Expected a name that ends in {', '.join(KINDS)}.")
    write_bytes(path, data)
    return path


def save_kinds(picture: Picture, out: Path, stem: str) -> list[Path]:
    """Write a chart as `out`/`stem` with each of `KINDS`."""
    return [save(picture, out / f"{stem}{kind}") for kind in KINDS]


def standalone(svg: str, title: str = "", unit: str = "in") -> str:
    """A picture as a file of its own: on white paper, in dark ink, of a size, with a title. unit: of the size, in or ""
    for pt."""
    width, height = map(float, svg.partition("viewBox='0 0 ")[2].partition("'")[0].split())
    rows = textwrap.wrap(title, max(10, int(width / (1.15 * LETTER))))
    top = ROW * len(rows)
    ends = [f"{end * INCHES * (1 if unit else 72) / WIDTH:.4g}{unit}" for end in (width, height + top)]
    head = f"<svg xmlns='http://www.w3.org/2000/svg' font-family='{FONTS}' "
    begin = f"{head}width='{ends[0]}' height='{ends[1]}' color='{INK}' "
    paper = tag("rect", y=-top, width="100%", height="100%", fill=PAPER)
    named = [text(4, 13 + ROW * k - top, row, size=13, font_weight="bold") for k, row in enumerate(rows)]
    opening, _, content = svg.removeprefix("<svg ").partition(">")
    opening = opening.replace(
        f"viewBox='0 0 {width:.0f} {height:.0f}'", f"viewBox='0 {-top} {width:.0f} {height + top:.0f}'"
    )
    opening = opening.partition(" style='")[0] + opening.partition(" style='")[2].partition("'")[2]
    return f"{begin}{opening}>{paper}{''.join(named)}{content}"
