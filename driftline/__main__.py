"""`python -m driftline`, the same as `driftline`."""

from driftline.pipelines.cli.app import main

if __name__ == "__main__":
    main()
