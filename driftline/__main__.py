"""`python -m driftline`, the same as `driftline`."""

from driftline.pipelines.cli import main

if __name__ == "__main__":
    main()
