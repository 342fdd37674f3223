"""The command line."""

from __future__ import annotations


def main() -> None:
    """The command `driftline`."""
    from driftline.pipelines.cli import app

    app.main()
