"""Weights of open_clip's models: what is known of them, whether they are on this machine, how they come here; and until
when the data reached that an encoder has seen.

Nothing here imports torch, so that a missing model is said at once.
"""

import csv
import os
import re
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from driftline.curate.core.atomic_io import write_text
from driftline.curate.core.errors import BadConfig, UnknownName, Unreachable, available, did_you_mean, reason
from driftline.curate.core.late import huggingface_hub, open_clip, yaml

UNKNOWN = "unknown"
FILE = "training_data.yaml"  # of a model's folder: trained_until, data, source
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
    weights; else "unknown". Raises BadConfig for a folder whose `training_data.yaml` cannot be read."""
    for place in (weights, model):
        if place and (Path(place) / FILE).is_file():
            return declared(Path(place) / FILE)
    name = f"{model}:{weights or ''}"
    return next((claim for of, pattern, claim in claims() if of == kind and re.fullmatch(pattern, name)), NOBODY)


def declared(path: Path) -> Seen:
    """What a file with `trained_until`, `data` and `source` says. Raises BadConfig for other contents."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise BadConfig(
            f"{path} cannot be read as YAML ({reason(error)}).", "Expected trained_until, data, source."
        ) from None
    keys = {"trained_until", "data", "source"}
    if not isinstance(values, dict) or not set(values) <= keys or "trained_until" not in values:
        raise BadConfig(f"{path} lacks the training data of its model.", "Expected trained_until, data, source.")
    texts = {key: str(value) for key, value in values.items()}
    return Seen(**texts | {"trained_until": checked(texts["trained_until"])})


def write_seen(folder: Path, seen: Seen) -> None:
    """Write `seen.yaml` beside a model's weights."""
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


FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")  # the first that a repository has
CONFIG = "open_clip_config.json"
SMALL_CLIP = "of 1,664 photos: 44 % of other captions find theirs among 9 of 184; chance 5 %"  # docs/guides/models.md
PATIENCE = 3.0  # seconds until a server counts as not reachable


@dataclass(frozen=True)
class Weights:
    """Published weights of one model."""

    model: str
    """embed.model"""
    tag: str
    """embed.weights"""
    megabytes: int
    """of the download: parameters × 4 bytes"""
    licence: str
    """of the weights"""
    repository: str
    """on the Hugging Face hub"""

    @property
    def name(self) -> str:
        """As `driftline models get` takes it."""
        return f"{self.model}:{self.tag}"

    @property
    def seen(self) -> Seen:
        """What they were trained on."""
        return seen("clip", self.model, self.tag)


def _known() -> dict[str, Weights]:
    rows = csv.reader(files(__package__).joinpath("weights.csv").read_text(encoding="utf-8").splitlines()[1:])
    return {w.name: w for w in (Weights(model, tag, int(size), *rest) for model, tag, size, *rest in rows)}


KNOWN = _known()


def repository_of(model: str, tag: str | None) -> str | None:
    """Where on the hub the weights of a model are; None for local ones, unknown names and other servers."""
    if Path(model).is_dir() or model.startswith("local-dir:") or (tag is not None and Path(tag).is_file()):
        return None
    if model.startswith("hf-hub:"):
        return model.removeprefix("hf-hub:").partition("@")[0]
    if f"{model}:{tag}" in KNOWN:
        return KNOWN[f"{model}:{tag}"].repository
    config = open_clip.get_pretrained_cfg(model, tag) if tag else {}
    return "/".join(str(config.get("hf_hub", "")).split("/")[:2]) or None


def is_here(repository: str, files: Sequence[str] = FILES) -> bool:
    """Whether one of these files of a repository is in this machine's cache of the hub."""
    return any(isinstance(huggingface_hub.try_to_load_from_cache(repository, file), str) for file in files)


def within(seconds: float, work: Callable[[], bool]) -> bool:
    """The answer of `work`; False if it takes longer (a name server may be silent for half a minute)."""
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(work()), daemon=True)
    thread.start()
    thread.join(seconds)
    return bool(answers and answers[0])


def hub() -> str:
    """The address of the hub; HF_ENDPOINT names another one."""
    from huggingface_hub import constants

    return constants.ENDPOINT


def hub_answers() -> bool:
    """Whether weights can be downloaded now: by one request without a repetition, because the libraries that load
    models repeat each of theirs for minutes."""
    from huggingface_hub import constants

    def answers() -> bool:
        with suppress(Exception):  # of the network, of whatever library
            return int(huggingface_hub.get_session().head(constants.ENDPOINT, timeout=PATIENCE).status_code) < 500
        return False

    return not constants.HF_HUB_OFFLINE and within(PATIENCE, answers)


def offline_copy(model: str, files: Sequence[str]) -> str | None:
    """The first of these files of a model on the hub that is in this machine's cache, if the hub does not answer; None
    if it does, or would not know such a name. Raises Unreachable within seconds if the model can come from neither."""
    from huggingface_hub.errors import HFValidationError

    try:
        found = [huggingface_hub.try_to_load_from_cache(model, file) for file in files]
    except HFValidationError:
        return None
    if hub_answers():
        return None
    if copies := [copy for copy in found if isinstance(copy, str)]:
        return copies[0]
    problem = f"The model {model} is not on this machine, and {urlsplit(hub()).hostname} does not answer."
    raise Unreachable(problem, "", "Without internet: download it elsewhere and give its path.")


def unreachable(model: str, tag: str | None, error: Exception | None = None) -> Unreachable:
    """The message with three ways out. error: of a download; None: the hub does not answer."""
    because = f"{urlsplit(hub()).hostname} does not answer"
    because = because if error is None else f"its download failed ({' '.join(str(error).split())[:200]})"
    size = KNOWN.get(f"{model}:{tag}")
    known = f"{model}:{tag}" if size else "RN50:yfcc15m"
    name = f"{model} ({tag}{f', {size.megabytes:,} MB' if size else ''})" if tag else model
    return Unreachable(
        f"The model {name} is not on this machine, and {because}.",
        "",
        f"Ways out, the best first: (1) on a machine with internet: driftline models get {known} --out FOLDER; copy "
        "the folder and set embed.model to it (RN50:yfcc15m names 32.7 % of ImageNet's images, of 1,000 classes); "
        "(2) vectors of your own: embed.from, or stream from-arrays; (3) a small model of your own captions: "
        f"driftline run DIR --until fetch, then driftline models train DIR --out FOLDER ({SMALL_CLIP}).",
    )


def check_weights(model: str, tag: str | None) -> None:
    """Raise Unreachable within seconds if the weights are neither on this machine nor to be downloaded now."""
    repository = repository_of(model, tag)
    if repository is not None and not is_here(repository) and not hub_answers():
        raise unreachable(model, tag)


def download(name: str, out: Path | None = None) -> list[Path]:
    """Download known weights into the cache of the hub, where open_clip finds them, or into the folder `out`, which
    can be copied to another machine. Returns the files. Raises UnknownName, Unreachable."""
    if name not in KNOWN:
        raise UnknownName(
            f"Unknown weights {name!r}.", did_you_mean(name, KNOWN), available(name, KNOWN, "driftline list models")
        )
    weights = KNOWN[name]
    if not hub_answers():
        raise unreachable(weights.model, weights.tag)
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

    def one(file: str) -> Path:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        return Path(huggingface_hub.hf_hub_download(weights.repository, file, local_dir=out))

    try:
        files = [one(CONFIG)]
        try:
            files.append(one(FILES[0]))
        except EntryNotFoundError:
            files.append(one(FILES[1]))
    except (HfHubHTTPError, EntryNotFoundError, OSError) as error:
        raise unreachable(weights.model, weights.tag, error) from None
    if out is not None:
        shutil.rmtree(out / ".cache", ignore_errors=True)  # the hub's notes about the download
    return [Path(os.path.abspath(file)) for file in files]
