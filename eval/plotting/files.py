"""Charts as files: SVG, and PNG and PDF that vl-convert (resvg, svg2pdf) makes of it, with the fonts that it uses."""

import textwrap
from pathlib import Path

from driftline.curate.core.atomic_io import write_bytes
from driftline.curate.core.errors import BadConfig, available, did_you_mean
from driftline.eval.plotting.charts import Picture
from driftline.eval.plotting.frames import LETTER, PAGE, WIDTHS, Sheet
from driftline.eval.plotting.svg import tag, text

KINDS = (".svg", ".pdf", ".png")
OF_NETWORKS = ("interpolation", "projection", "svcca", "adjacent")  # drawn by `finetuning.draw`, not from rows alone
INK, PAPER = "#14181a", "#ffffff"
FONTS = "Helvetica, Arial, Liberation Sans, sans-serif"
SCALE, PPI = 2, 300  # pixels of a PNG for one of a page; for an inch of paper
ROW = 18  # units of a line of the title


def save(picture: Picture, path: Path, sheet: Sheet = PAGE, title: str = "") -> Path:
    """Write a chart by the suffix of `path`. title: above the chart, where there is one. The same chart gives the same
    bytes as SVG and PNG; a PDF numbers its objects in any order. Raises BadConfig for another suffix."""
    if path.suffix not in KINDS:
        raise BadConfig(f"The file of a chart is {path.name!r}.", f"Expected a name that ends in {', '.join(KINDS)}.")
    write_bytes(path, _encoded(picture.draw(sheet), path.suffix, sheet, title))
    return path


def save_widths(picture: Picture, out: Path, stem: str) -> list[Path]:
    """Write a chart as `out`/`stem`-WIDTH with each of `KINDS`, for each of `WIDTHS`."""
    paths = []
    for width, sheet in WIDTHS.items():
        svg = picture.draw(sheet)
        for kind in KINDS:
            paths.append(out / f"{stem}-{width}{kind}")
            write_bytes(paths[-1], _encoded(svg, kind, sheet, ""))
    return paths


def sheet_of(width: str) -> Sheet:
    """The paper of a width. Raises BadConfig for another name."""
    if width not in WIDTHS:
        raise BadConfig(
            f"The width of a chart is {width!r}.", available(width, list(WIDTHS)), did_you_mean(width, WIDTHS)
        )
    return WIDTHS[width]


def _encoded(svg: str, kind: str, sheet: Sheet, title: str) -> bytes:
    """The bytes of a file. kind: of `KINDS`."""
    if kind == ".svg":
        return standalone(svg, sheet, title).encode()
    import vl_convert

    in_points = standalone(svg, sheet, title, unit="")  # vl-convert: a number without a unit is in pt
    if kind == ".pdf":
        return bytes(vl_convert.svg_to_pdf(in_points))
    return bytes(vl_convert.svg_to_png(in_points, **({"ppi": PPI} if sheet.inches else {"scale": SCALE})))


def standalone(svg: str, sheet: Sheet = PAGE, title: str = "", unit: str = "in") -> str:
    """A picture as a file of its own: on white paper, in dark ink, of a size, and with a title. unit: of the size on
    paper, in or "" for pt; a page's is in pixels."""
    width, height = map(float, svg.partition("viewBox='0 0 ")[2].partition("'")[0].split())
    rows = textwrap.wrap(title, max(10, int(width / (1.15 * LETTER))))
    top = ROW * len(rows)
    inch = 1 if unit else 72
    per_unit = sheet.inches * inch / width if sheet.inches else 1
    ends = [f"{end * per_unit:.4g}{unit if sheet.inches else ''}" for end in (width, height + top)]
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
