"""The command line."""


def main() -> None:
    """The command `driftline`."""
    from driftline.pipelines.cli import app

    app.main()
