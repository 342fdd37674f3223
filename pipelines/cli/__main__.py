"""`python -m driftline.pipelines.cli`."""

from driftline.pipelines.cli.app import main

if __name__ == "__main__":
    main()
