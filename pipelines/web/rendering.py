"""Templates, the stylesheet and the small pictures of the local pages."""

import io
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template

from driftline.curate.core.errors import BadInput
from driftline.curate.foreign.images import as_rgb, open_image

THUMBNAIL = 192  # pixels of the longer edge
LARGE = 1280  # of the picture of one photo
MOST_PIXELS = 200_000_000  # of an image that is decoded


def template(package: str, name: str) -> Template:
    """A template of a page; values are escaped."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(files(package).joinpath("templates", name).read_text(encoding="utf-8"))


def stylesheet() -> str:
    """The stylesheet of all local pages, for pages that must be one file."""
    return files("driftline.pipelines.web").joinpath("static/page.css").read_text(encoding="utf-8")


def small(data: bytes, edge: int) -> bytes:
    """A JPEG of at most `edge` pixels a side, upright. Raises BadInput for what cannot be decoded."""
    with open_image(data, "An image") as image:
        if image.width * image.height > MOST_PIXELS:
            raise BadInput(f"An image has {image.width} × {image.height} pixels.", f"At most {MOST_PIXELS:,}.")
        image.draft("RGB", (edge, edge))
        picture = as_rgb(image)
        picture.thumbnail((edge, edge))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=82)
    return buffer.getvalue()
