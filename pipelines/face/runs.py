"""Commands as functions: `driftline plan DIR --until fetch` is `dl.plan(DIR, until="fetch")`, and runs the same code.

An option `--a-b` is `a_b=`, but `start=` for `--from` and `settings=` for `--set`; a function returns the object that
the command prints with `--json`, or what that object is about.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline.curate.core.errors import BadConfig, DriftlineError
from driftline.pipelines.run.run_folder import Run, open_folder

if TYPE_CHECKING:  # a run can be made and looked at without numpy and pyarrow
    from driftline.curate.release.format import Release
    from driftline.stream_builder.stream import Stream

    Place = str | Path | Run | Release
Names = str | Sequence[str]
Answer = dict[str, Any]
open = open_folder
FLAGS = {"start": "--from", "settings": "--set"}  # parameter → its option, of those that have another name


def flag_of(parameter: str) -> str:
    """The option of a parameter.

    >>> flag_of("max_usd"), flag_of("start")
    ('--max-usd', '--from')
    """
    return FLAGS.get(parameter, f"--{parameter.rstrip('_').replace('_', '-')}")


def answer(words: str, parameters: Mapping[str, Any], first: int = 1, quiet: bool = True) -> Any:
    """Run a command in this process; returns what it prints with --json. words: its name. parameters: of the face, the
    first `first` of which are arguments. quiet: without progress. Raises what the command reports."""
    from typer.exceptions import TyperException

    from driftline.pipelines.cli.app import called
    from driftline.pipelines.cli.common import shown_by
    from driftline.pipelines.cli.usage import usage_text

    for value in list(parameters.values())[:first]:
        if hasattr(value, "save"):
            kind = type(value).__name__
            raise BadConfig(f"{words} was given a {kind} in memory.", "Expected its folder.", "Save it.")
    arguments = [text for value in list(parameters.values())[:first] for text in _texts(value)]
    options = [text for name, value in list(parameters.items())[first:] for text in _option(flag_of(name), value)]
    line = [*words.split(), *arguments, *options, *(["--json"] if quiet else [])]
    with shown_by() as documents:
        try:
            called(line)(line, prog_name="driftline", standalone_mode=False)
        except TyperException as error:
            raise BadConfig(usage_text(error).removeprefix("driftline: ")) from None
        except DriftlineError:  # beside what was shown, it is the exit code of a shell: the object says it, too
            if not documents:
                raise
    return documents[-1]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
    else:
        yield str(getattr(value, "path", value))


def _option(flag: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, part in _flat(value):
            yield from (flag, f"{key}={part if isinstance(part, str) else json.dumps(part, default=str)}")
    elif value is True:
        yield flag
    elif isinstance(value, list | tuple):
        for part in value:
            yield from (flag, *_texts(part))
    elif value is not None and value is not False:
        yield from (flag, *_texts(value))


def _flat(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """A section may be given as a mapping."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}.{name}", setting) for name, setting in value.items())
        else:
            yield key, value


def init(
    path: str | Path, photos: Any = None, *, preset: str = "folder", settings: Mapping[str, Any] | None = None,
    force: bool = False,
) -> Run:  # fmt: skip
    """Write PATH/driftline.yaml, every setting with a comment. settings: dotted keys, or sections as mappings.

    photos: a data frame, one row a photo, which becomes the collection (PATH/photos.parquet). Columns with names of the
    collection count (`driftline list sources`, `parquet`): path or url, uploaded or taken, label, licence and so on;
    `collection.columns.NAME` names another. Paths start from the working directory. Raises BadInput for the first row
    without a date or a file.
    """
    table, settings = None, settings or {}
    if photos is not None:
        from driftline.pipelines.face.photo_table import collection_of

        collection, table = collection_of(Path(path), photos, preset, list(_option("", settings))[1::2])
        settings = {**settings, **collection}
    answer("init", {"path": path, "preset": preset, "settings": settings, "force": force})
    if table is not None:
        from driftline.curate.core.atomic_io import write_parquet

        write_parquet(Path(path) / settings["collection.path"], table)
    return Run.open(path)


def demo(out: str | Path = "demo", *, quick: bool = False, real: bool = False) -> Run:
    """The whole journey on built-in or real pictures, offline: `out`/report/index.html."""
    answer("demo", locals(), 0, quiet=False)
    return Run.open(out)


def plan(
    run: Place, *, until: str | None = None, start: str | None = None, settings: Mapping[str, Any] | None = None
) -> Answer:
    """What a run would do and need, and problems; nothing is changed."""
    return _answered("plan", locals())


def run(
    run: Place, *, until: str | None = None, start: str | None = None, settings: Mapping[str, Any] | None = None,
    workers: int | str = "auto", engine: str = "local", yes: bool = False,
) -> Answer:  # fmt: skip
    """Run all stages that are not done; {"stages"}. Where answers of people are missing, the stage ask is "waiting"."""
    return _answered("run", locals(), quiet=False)


def status(
    run: Place, reason: Names = (), *, dropped: bool = False, settings: Mapping[str, Any] | None = None,
    verify: bool = False,
) -> Answer:  # fmt: skip
    """{"stages"}: state, counts and seconds of each. dropped: also {"dropped"}: the photos that were dropped, of all
    reasons or these."""
    return _answered("status", locals(), 2)


def trace(run: Place, photo: str) -> Answer:
    """One photo's history. photo: path, file name, URL or id."""
    return _answered("trace", locals(), 2)


def grow(
    run: Place, *, until: str | None = None, settings: Mapping[str, Any] | None = None, workers: int | str = "auto",
    engine: str = "local", max_minutes: float | None = None, max_usd: float | None = None, dry_run: bool = False,
) -> Answer:  # fmt: skip
    """Run all stages on a source with new records."""
    return _answered("grow", locals(), quiet=False)


def heal(
    run: Place, *, reason: Names = (), older_than: float | None = None, settings: Mapping[str, Any] | None = None,
    workers: int | str = "auto", engine: str = "local", gc: bool = False, yes: bool = False,
) -> Answer:  # fmt: skip
    """Ask again for photos that were missed, and repair what is damaged. gc: instead, list the files of the store that
    no run needs; yes: delete them."""
    return _answered("heal", locals(), quiet=False)


def withdraw(run: Place, photos: Names, *, reason: str = "") -> Answer:
    """Take photos out because their owners ask for it. photos: path, file name, URL or id of each."""
    names = [photos] if isinstance(photos, str) else list(photos)
    return answer("withdraw", {"run": run, "photos": names, "reason": reason or None}, 2)


def forget(run: Place, *, yes: bool = False) -> Answer:
    """Names and answers of the people who annotated, listed; yes: deleted, while verdicts and counts stay."""
    return _answered("forget", locals())


def batch(
    run: Place, *, format: Names, out: str | Path, image_base_url: str | None = None, hours: float = 72.0,
    profile: str | None = None, endpoint: str | None = None, predictions: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Answer:  # fmt: skip
    """Write the open batch of questions as files for a platform or tool."""
    return _answered("batch", locals())


def audit(path: Place, *, out: str | Path | None = None, copy_bits: int | None = None) -> Answer:
    """Near-duplicates, drift and cues of a release or stream."""
    return _answered("audit", locals())


def compare(
    a: Place, b: Place, *, out: str | Path | None = None, stream: Sequence[str | Path] = (), title: str | None = None,
    plugin: Names = (),
) -> Answer:  # fmt: skip
    """Two versions of a release: which scores may be compared. Two folders of rows: who differs, and a page."""
    return _answered("compare", locals(), 2)


def export(
    release: Place, *, format: Names, out: str | Path, strict: bool = False, to: str | None = None,
    dry_run: bool = False, public: bool = False, token_file: str | Path | None = None, endpoint: str | None = None,
    profile: str | None = None,
) -> Answer:  # fmt: skip
    """Export a release in common formats (`driftline release`); to: publish what is exported. A stream has `export`
    on the command line alone."""
    return _answered("release", locals())


def encode(path: Place, *, encoder: Names, out: str | Path, device: str = "auto") -> dict[str, Stream]:
    """Vectors of the samples of a stream, release or run, by each encoder: name → stream, in OUT/name."""
    document = answer("stream encode", locals(), quiet=False)
    from driftline.stream_builder.stream import Stream

    return {Path(one["out"]).name: Stream.load(one["out"]) for one in document.get("streams", [document])}


def leaderboard(
    submission: str | Path | Sequence[str | Path] = (), *, out: str | Path | None = None, check: bool = False,
    stream: Sequence[str | Path] = (), baselines: bool = False, again: int | None = None,
    public_value: str | None = None, unverified: bool = False, plugin: Names = (),
) -> Answer:  # fmt: skip
    """Verify submissions and write a page of them."""
    return _answered("leaderboard", locals())


def train(
    path: Place, *, out: str | Path, recipe: str | None = None, settings: Mapping[str, Any] | None = None,
    bucket: int | None = None, probe: str | Path | None = None, probe_every: int | None = None,
    epochs: int | None = None, size: int | None = None, seed: int | None = None, device: str | None = None,
    include_tests: bool = False,
) -> Answer:  # fmt: skip
    """Train a model that embeds photos (`driftline models train`)."""
    return _answered("models train", locals(), quiet=False)


def _answered(words: str, parameters: Mapping[str, Any], first: int = 1, quiet: bool = True) -> Answer:
    document: Answer = answer(words, parameters, first, quiet)
    return document
