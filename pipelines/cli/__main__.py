"""`python -m driftline.pipelines.cli`."""

from __future__ import annotations

from driftline.pipelines.cli.app import main

if __name__ == "__main__":
    main()
