"""What encoders may have seen: the newest data of their training, and who says so.

A claim is an upper bound: nothing in the data is newer, because the data or the weights were published then. What has
no source is "unknown".
"""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import write_text
from driftline.curate.core.errors import BadConfig, reason

UNKNOWN = "unknown"
FILE = "seen.yaml"  # of a model's folder: trained_until, data, source
DATE = re.compile(r"\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")


@dataclass(frozen=True)
class Seen:
    """What an encoder was trained on."""

    trained_until: str = UNKNOWN
    """the newest year, month or day of its data, inclusive: "2014", "2021-01"; or "unknown\""""
    data: str = UNKNOWN
    """what the data are"""
    source: str = UNKNOWN
    """who says so"""

    def facts(self) -> dict[str, str]:
        """What a stream of its vectors says."""
        return {"encoder_cutoff": self.trained_until, "encoder_data": self.data, "encoder_source": self.source}


NOBODY = Seen()


@cache
def claims() -> list[tuple[str, str, Seen]]:
    """(kind of encoder, pattern of MODEL:WEIGHTS, what it has seen) of the known ones: seen.csv."""
    rows = csv.reader(files(__package__).joinpath("seen.csv").read_text(encoding="utf-8").splitlines()[1:])
    return [(kind, pattern, Seen(*claim)) for kind, pattern, *claim in rows]


def seen(kind: str, model: str, weights: str | None = None) -> Seen:
    """What an encoder (`KIND:MODEL:WEIGHTS`) may have seen: what its folder says, or what is known of its published
    weights; else "unknown". Raises BadConfig for a folder whose `seen.yaml` cannot be read."""
    for place in (weights, model):
        if place and (Path(place) / FILE).is_file():
            return declared(Path(place) / FILE)
    name = f"{model}:{weights or ''}"
    return next(
        (claim for of, pattern, claim in claims() if of in (kind, "any") and re.fullmatch(pattern, name)), NOBODY
    )


def declared(path: Path) -> Seen:
    """What a file with `trained_until`, `data` and `source` says. Raises BadConfig for other contents."""
    import yaml

    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise BadConfig(
            f"{path} cannot be read as YAML ({reason(error)}).", "Expected trained_until, data, source."
        ) from None
    keys = {"trained_until", "data", "source"}
    if not isinstance(values, dict) or not set(values) <= keys or "trained_until" not in values:
        raise BadConfig(f"{path} does not say what its model has seen.", "Expected trained_until, data, source.")
    texts = {key: str(value) for key, value in values.items()}
    return Seen(**texts | {"trained_until": checked(texts["trained_until"])})


def write_seen(folder: Path, seen: Seen) -> None:
    """Write `seen.yaml` beside a model's weights."""
    import yaml

    names = {"trained_until": seen.trained_until, "data": seen.data, "source": seen.source}
    write_text(folder / FILE, yaml.safe_dump(names, sort_keys=False, allow_unicode=True))


def recorded(provenance: Mapping[str, Any], features: str) -> Seen:
    """What the encoder of a release's features may have seen, by the release's record."""
    embedded = features == "clip"  # the name of those by the encoder of its run
    claim = provenance["encoder"].get("seen") if embedded else provenance.get("seen", {}).get(features)
    return NOBODY if claim is None else Seen(claim["trained_until"], claim["data"], claim["source"])


def checked(date: str) -> str:
    """A year, month or day, or "unknown". Raises BadConfig for something else."""
    if date != UNKNOWN and not DATE.fullmatch(date):
        raise BadConfig(
            f"The encoder's newest data is {date!r}.", "Expected a year, month or day, as in 2021-01, or unknown."
        )
    return date
