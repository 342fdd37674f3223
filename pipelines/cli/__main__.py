"""`python -m pipelines.cli`."""

from __future__ import annotations

from pipelines.cli.app import main

main()
