"""The command line."""

from __future__ import annotations

from driftline.pipelines.cli.app import main

__all__ = ["main"]
