"""`driftline browse`, `annotate`, `batch`: pages and files for people."""

from __future__ import annotations

import sys
from typing import Any

from driftline.pipelines.actions.action import NOTHING, Shown, action
from driftline.pipelines.actions.common import context_of_last, counts_text, guarded_out, say_address
from driftline.pipelines.kinds import Names, Place, Settings, changes_of, path_of, several


@action("driftline browse photos2024 --open", "Build")
def browse(path: Place, *, port: int = 8764, open: bool = False) -> Shown[None]:
    """Look at all photos over time in a browser; try prompts.

    Also dropped ones, with the reason. Filters with counts, a timeline, and each photo's history. Prompts: the photos
    that they retrieve in each time bucket, marks of right and wrong ones, and prompts saved for the next run.

    path PATH: A run folder or a release.
    """
    from driftline.pipelines.browse.server import application
    from driftline.pipelines.run.run_folder import open_collection
    from driftline.pipelines.web.local_server import serve

    collection = open_collection(path_of(path))
    serve(lambda taken: application(collection, taken, ahead=True), port, say_address(open))
    return NOTHING


@action("driftline annotate photos2024 --open", "Label")
def annotate(
    run: Place, *, port: int = 8766, host: str = "127.0.0.1", open: bool = False, settings: Settings = ()
) -> Shown[None]:
    """Label images in a browser, with the page of crowd workers.

    Each annotator enters a name; the page can be used with the keyboard alone. driftline run continues with the
    answers.

    host NAME: Also accept requests to this name or address, from elsewhere.
    """
    from driftline.pipelines.annotation.server import application
    from driftline.pipelines.web.local_server import serve

    context = context_of_last(path_of(run), changes_of(settings), True)
    waiting = list[str]()

    def say(url: str) -> None:
        say_address(open)(url)
        print(*waiting, sep="\n", file=sys.stderr)

    serve(lambda taken: application(context, taken, host, waiting.append), port, say, host)
    return NOTHING


@action("driftline batch photos2024 --format turkle --out for-turkle", "Label", completes={"format": "platforms"})
def batch(
    run: Place, *, format: Names, out: Place, image_base_url: str | None = None, settings: Settings = ()
) -> Shown[dict[str, Any]]:
    """Write the open batch as files for a platform or tool.

    format NAME: Platforms (driftline list platforms).
    out DIR: Folder; each format gets a subfolder.
    image_base_url URL: Where the images are: https://… or inline.
    """
    from driftline.pipelines.annotation.batches import write_batches

    folder = guarded_out(path_of(out))
    context = context_of_last(path_of(run), changes_of(settings), True)
    counts = write_batches(context, several(format), folder, image_base_url)
    notes = [path.read_text() for name in counts if (path := folder / name / "README.txt").is_file()]
    text = "\n".join([counts_text(counts, folder), *notes]).rstrip()
    return Shown({"out": str(folder), "batches": counts}, text)
