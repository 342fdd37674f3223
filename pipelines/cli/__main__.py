"""`python -m pipelines.cli`."""

from __future__ import annotations

from pipelines.cli.app import main

if __name__ == "__main__":
    main()
