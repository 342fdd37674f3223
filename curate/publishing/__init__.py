"""Publishing: an exported release → where people look for data: the Hugging Face Hub, S3.

A target is a function (plan, place, settings) → Published, and one line in `PUBLISHERS`. place: what follows the colon
of --to. It uploads what is not there yet, and makes the version visible at the very end: a reader sees the old version
or the complete new one. Running it again continues an interrupted upload. It raises BadConfig, BadInput for a version
that is there with other content, and Unfinished when the connection fails.
"""

from dataclasses import dataclass
from pathlib import Path

from driftline.curate.core.atomic_io import TEMPORARY, read_object
from driftline.curate.core.errors import BadConfig, BadInput, IntegrityError, MissingFile
from driftline.curate.core.files import places
from driftline.curate.core.registry import Registry
from driftline.curate.foreign.documents import read_text, sums_of

SUMS = "SHA256SUMS"
AGAIN = "Export the release again."
CONTINUE = "Run the same command again: it continues."


@dataclass(frozen=True)
class Settings:
    """How to publish."""

    public: bool = False
    """everybody may read it at once"""
    token_file: Path | None = None
    """file with the access token; None: the target's own variable or login"""
    endpoint: str | None = None
    """another server; None: the target's own"""
    profile: str | None = None
    """AWS profile, for S3"""


@dataclass(frozen=True)
class Plan:
    """A folder to publish."""

    folder: Path
    """the exported release"""
    name: str
    """of the release"""
    version: str
    """of the release"""
    files: dict[str, int]
    """file → bytes, in name order"""
    sums: dict[str, str]
    """file → SHA-256, as in SHA256SUMS"""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(self.files.values())


@dataclass(frozen=True)
class Published:
    """What an upload did."""

    address: str
    """where it is"""
    sent: int
    """files that were sent; the others were there"""
    removed: int = 0
    """files of the last version that this one does not have"""
    public: bool = False
    """whether everybody may read it"""
    note: str = ""
    """what is left to do"""


PUBLISHERS = Registry("publishing target", __name__, {"hf": ".targets:hub", "s3": ".targets:s3"})


def plan_of(folder: Path) -> Plan:
    """The upload of a folder with release.json and SHA256SUMS. A million files take some seconds.

    Raises MissingFile, and IntegrityError unless exactly the files of SHA256SUMS are there.
    """
    for name in ("release.json", SUMS, "README.md"):
        if not (folder / name).is_file():
            raise MissingFile(
                f"{folder} has no {name}.", "Expected an exported release.", "Export one with --format huggingface."
            )
    facts = read_object(folder / "release.json", {"name": str, "version": str}, AGAIN)
    files = {}
    for name, place in places(str(folder)):
        if TEMPORARY not in name:
            if place.is_symlink():
                raise BadInput(f"{place.path} is a link.", "Expected plain files.", AGAIN)
            files[name] = place.stat().st_size
    sums = sums_of((folder / SUMS).read_bytes(), folder / SUMS, AGAIN)
    if differing := sorted(sums.keys() ^ files.keys() ^ {SUMS}):
        state = "is missing" if differing[0] in sums else f"is not in {SUMS}"
        raise IntegrityError(f"{folder / differing[0]} {state}.", f"{len(differing):,} files differ.", AGAIN)
    return Plan(folder, facts["name"], facts["version"], dict(sorted(files.items())), sums)


def other_content(place: str, plan: Plan) -> BadInput:
    """The error for a version that is there with other content."""
    return BadInput(
        f"{place} has version {plan.version} with other content.",
        "A published version does not change.",
        "Publish the release with a new release.version.",
    )


def token_of(settings: Settings) -> str | None:
    """The token in the file of the settings; None without one. It is never printed or stored. Raises BadConfig."""
    if settings.token_file is None:
        return None
    lines = read_text(settings.token_file).split()
    if len(lines) != 1:
        raise BadConfig(f"{settings.token_file} holds {len(lines)} words.", "Expected an access token only.")
    return lines[0]


def table(plan: Plan, most: int = 20) -> str:
    """The files and their sizes, the largest first, for a dry run."""
    largest = sorted(plan.files, key=lambda name: -plan.files[name])
    lines = [f"{plan.files[name]:>15,}  {name}" for name in largest[:most]]
    lines += [f"{'':>15}  … and {len(largest) - most:,} more"] if len(largest) > most else []
    return "\n".join([*lines, f"{plan.size:>15,}  bytes in {len(plan.files):,} files: {plan.name} {plan.version}"])
