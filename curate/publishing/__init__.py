"""Publishing: an exported release → where people look for data: the Hugging Face Hub, S3.

Each target takes a folder with release.json and SHA256SUMS, uploads what is not there yet, and makes the version
visible at the very end: a reader sees the old version or the complete new one. A new target is one file here and one
line in `PUBLISHERS`.
"""

from typing import Protocol

from driftline.curate.core.registry import Registry
from driftline.curate.publishing.plan import Plan, Published, Settings


class Publisher(Protocol):
    """What `PUBLISHERS` registers: a function that uploads a planned folder."""

    def __call__(self, plan: Plan, place: str, settings: Settings) -> Published:
        """place: what follows the colon of --to. Running it again continues an interrupted upload. Raises BadConfig,
        BadInput for a version that is there with other content, and Unfinished when the connection fails."""
        ...


PUBLISHERS = Registry(
    "publishing target",
    {
        "hf": "driftline.curate.publishing.hub:publish",
        "s3": "driftline.curate.publishing.s3:publish",
    },
)
