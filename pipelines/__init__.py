"""Orchestration: stages, command line, web pages. May import every package; no package imports it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.curate.core.lazy_face import lazy_face

VERSION = "0.2.0"

if TYPE_CHECKING:
    from driftline.pipelines.run.run_folder import Run as Run
    from driftline.pipelines.run.run_folder import init_run as init_run
    from driftline.pipelines.run.run_folder import open_run as open_run
else:
    __getattr__, __dir__, __all__ = lazy_face(
        __name__,
        {
            "Run": "driftline.pipelines.run.run_folder:Run",
            "init_run": "driftline.pipelines.run.run_folder:init_run",
            "open_run": "driftline.pipelines.run.run_folder:open_run",
        },
    )
