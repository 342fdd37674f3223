"""Templates and the stylesheet of the local pages."""

from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template


def template(package: str, name: str) -> Template:
    """A template of a page; values are escaped."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(files(package).joinpath("templates", name).read_text(encoding="utf-8"))


def stylesheet() -> str:
    """The stylesheet of all local pages, for pages that must be one file."""
    return files("driftline.pipelines.web").joinpath("static/page.css").read_text(encoding="utf-8")
