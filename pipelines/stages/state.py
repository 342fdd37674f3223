"""The state of a run on disk. Nobody else reads and writes `done.json`, `begun.json`, `files.json`, `record.json`.

`DIR/stages/NN_name` holds finished output with `done.json`, or the first work with `begun.json`. Later work is done
beside it, in `NN_name.next`; when that is complete, it replaces the old output, which is `NN_name.old` for a moment.
"""

import errno
import json
import os
import re
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from driftline.curate.core import atomic_io as io
from driftline.curate.core.atomic_io import fingerprint, read_json, write_json
from driftline.curate.core.errors import BadInput, Busy, DriftlineError, MissingFile
from driftline.curate.core.files import content_digest, files_of, full_digests, listing
from driftline.curate.core.own_code import codes_of
from driftline.curate.core.system import lock
from driftline.curate.store.database import digests_of_links
from driftline.pipelines import VERSION
from driftline.pipelines.stages import STAGES
from driftline.pipelines.stages.base import MEMORY, Stage

DONE, BEGUN, FILES, RECORD = "done.json", "begun.json", "files.json", "record.json"
MARKS = (DONE, BEGUN, FILES)  # of a stage's folder: not its output
PLACEHOLDERS = "placeholders.json"  # of the stage fetch: images that many URLs share
INTENT = "forgetting.json"  # in the run folder while answers are being deleted
# What a run was before it began to grow, until it has grown; and the borders that it keeps then. After a failed attempt
# the next begins from the same state, so that nothing of the failed one is frozen.
GROWING, BEFORE, BORDERS = "growing", "before.json", "borders.json"
Outside = list[list[str]]  # name, digest


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Lock a run folder: one process at a time works on it. Raises Busy, naming that process, and BadInput for a folder
    that cannot be written."""
    if root.exists() and not root.is_dir():
        raise BadInput(f"{root.absolute()} is a file.", "Expected a folder.", "Move the file, or name another folder.")
    try:
        root.mkdir(parents=True, exist_ok=True)
        file = open(root / ".lock", "a+")  # noqa: SIM115 - it stays open
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise BadInput(
            f"{root.absolute()} cannot be written.",
            "Here driftline status, trace, plan and report work.",
            "To run it, copy the folder or change its rights.",
        ) from None
    with file:
        if not lock(file, wait=False):
            file.seek(0)
            worker = " ".join(file.read(200).split())
            process = f"Another driftline process ({worker})" if worker else "Another driftline process"
            raise Busy(f"{process} is working on {root}.", "", "Wait until it ends.")
        file.truncate(0)
        who = f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%Y-%m-%d %H:%M')}"
        with suppress(OSError):  # on a full disk the lock holds without its name
            os.write(file.fileno(), who.encode())
        try:
            yield
        finally:
            file.truncate(0)


def folder_of(root: Path, name: str) -> Path:
    """`DIR/stages/NN_name`."""
    number = list(STAGES).index(name) + 1
    return root / "stages" / f"{number:02d}_{name}"


def placeholders(root: Path) -> list[str]:
    """Sentences on images that many URLs share, which the stage fetch wrote."""
    path = folder_of(root, "fetch") / PLACEHOLDERS
    return list(read_json(path)) if path.is_file() else []


def beside(folder: Path, word: str) -> Path:
    """Where new work is done while old output is kept (`next`), and where old output goes at last (`old`)."""
    return folder.with_name(f"{folder.name}.{word}")


def is_finished(root: Path, name: str) -> bool:
    """Whether a stage has a `done.json`, readable or not."""
    return (folder_of(root, name) / DONE).is_file()


def done_of(root: Path, name: str) -> dict[str, Any] | None:
    """`done.json` of a finished stage; None without one, and for one that is not readable.

    Raises BadInput if another release of driftline wrote it.
    """
    path = folder_of(root, name) / DONE
    done: dict[str, Any] | None = _read(path)
    if done is not None:
        io.check_version(path, done["version"], VERSION, "Build it again in a new folder: driftline init.")
    return done


def begun_of(folder: Path) -> dict[str, Any]:
    """`begun.json` of unfinished work: its fingerprint, and why it stopped; {} without one."""
    return _read(folder / BEGUN) or {}


def before_growth(root: Path) -> dict[str, Any] | None:
    """What a run was before an attempt to grow that has not finished; None without one."""
    before: dict[str, Any] | None = _read(root / GROWING / BEFORE)
    return before


def end_growth(root: Path, settings: str) -> None:
    """The borders that an attempt kept become the run's own. settings: as of `borders_of`."""
    if before_growth(root) is not None:
        if (path := borders_of(root, settings)).parent != root:
            path.replace(root / BORDERS)
        (root / GROWING / BEFORE).unlink()
    io.remove_tree(root / GROWING)


def borders_of(root: Path, settings: str) -> Path:
    """Where the borders are that a run keeps: of an unfinished attempt to grow, else its own. settings: fingerprint of
    those of the stage bucket; with other ones, those of the attempt do not count."""
    before, path = before_growth(root), root / GROWING / BORDERS
    counts = before is not None and before.get("settings") == settings
    return path if counts and path.is_file() else root / BORDERS


def kept_changes(root: Path, changes: Sequence[str] = ()) -> list[str]:
    """The --set of the last run, and then `changes`.

    Of the last run's, those go whose key `changes` names again, and those whose value in driftline.yaml has been edited
    since: the newest word counts.
    """
    earlier = (_read(root / RECORD) or {"changes": {}})["changes"]
    now, named = _in_file(root, earlier), [f"{change.partition('=')[0]}." for change in changes]
    kept = [change for change, before in earlier.items() if now[change] == before]
    return [change for change in kept if not f"{change.partition('=')[0]}.".startswith(tuple(named))] + list(changes)


def write_changes(root: Path, changes: Sequence[str]) -> None:
    """Write `DIR/record.json`, if it says something else: --set of this run → what driftline.yaml says instead."""
    record = {"changes": _in_file(root, changes)}
    if _read(root / RECORD) != record:
        write_json(root / RECORD, record)


def _in_file(root: Path, changes: Iterable[str]) -> dict[str, str]:
    """`KEY=VALUE` → the value of KEY in driftline.yaml, as text."""
    values, found = None, {}
    with suppress(OSError, yaml.YAMLError, ValueError, RecursionError):  # `load` says what is wrong with it
        values = yaml.safe_load((root / "driftline.yaml").read_text(encoding="utf-8", errors="replace"))
    for change in changes:
        value = values
        for name in change.partition("=")[0].split("."):
            value = value.get(name) if isinstance(value, dict) else None
        found[change] = json.dumps(value, default=str)
    return found


def _read(path: Path) -> Any:
    """A JSON file; None if it cannot be read."""
    try:
        return read_json(path)
    except (DriftlineError, OSError):
        return None


def settle(folder: Path) -> None:
    """Finish what a kill interrupted between two steps of `StageState.finish`."""
    new, old = beside(folder, "next"), beside(folder, "old")
    for part in (new, old):
        if part.is_symlink():  # not of ours: it would be filled, or emptied
            part.unlink()
    if (new / DONE).is_file():
        _swap(folder)
    elif old.is_dir() and not folder.is_dir():
        old.rename(folder)
    elif old.is_dir():
        shutil.rmtree(old)
    if (folder / DONE).is_file():
        (folder / BEGUN).unlink(missing_ok=True)


def _swap(folder: Path) -> None:
    """Complete new output takes the place of the old: a kill before any step leaves what `settle` can finish."""
    new, old = beside(folder, "next"), beside(folder, "old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.is_dir():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


class StageState:
    """The folder of one stage, and whether its output is that of today's settings and inputs."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.root = stage, stage.context.root
        self.folder = folder_of(self.root, stage.name)
        self.next = beside(self.folder, "next")
        self.done = done_of(self.root, stage.name)

    @cached_property
    def outside(self) -> Outside:
        """Name and digest of the files and folders outside the run that the output depends on. Raises MissingFile."""
        paths = self.stage.outside()
        if missing := [path for path in paths if not path.exists()]:
            name = missing[0].absolute()
            raise MissingFile(f"There is no {name}.", f"The stage {self.stage.name} reads it.", "Check the settings.")
        digests = full_digests(paths, self.root / MEMORY)
        return [[path.name, digest] for path, digest in zip(paths, digests, strict=True)]

    @cached_property
    def mark(self) -> str | None:
        """Fingerprint of settings, outside files and the inputs' `done.json`; None while an input is unfinished. Raises
        MissingFile."""
        return self._mark_with(self.outside)

    def _mark_with(self, outside: Outside) -> str | None:
        inputs = {}
        for need in self.stage.needs:
            done = done_of(self.root, need)
            if done is None:
                return None
            inputs[need] = fingerprint({k: v for k, v in done.items() if k != "seconds"})
        parts = [self.stage.name, self.stage.version, self.stage.settings(), outside, inputs]
        own = codes_of(self.stage.plugins())
        return fingerprint([*parts, own] if own else parts)

    @property
    def current(self) -> bool:
        """Whether there is finished output of today's settings and inputs. Raises MissingFile."""
        return self.done is not None and self.mark == self.done["fingerprint"]

    @property
    def was_current(self) -> bool:
        """As `current`, by what `done.json` says of the outside files."""
        try:
            return self.done is not None and self._mark_with(self.done["outside"]) == self.done["fingerprint"]
        except (DriftlineError, OSError):
            return True

    @property
    def unreadable(self) -> bool:
        """Whether there is a `done.json` that says nothing: finished output, damaged."""
        return self.done is None and (self.folder / DONE).exists()

    @property
    def unfinished(self) -> bool:
        """Whether there is unfinished work in the stage's own folder."""
        return (self.folder / BEGUN).is_file()

    def damage(self, read_all: bool = False) -> list[str]:
        """Files of finished output that are missing or have another size, by name; or other bytes, which are read if
        the file was changed after `done.json` (read_all: always)."""
        listed = _read(self.folder / FILES)
        if listed is None:
            return [FILES]
        done = (self.folder / DONE).stat().st_mtime_ns if (self.folder / DONE).is_file() else 0

        def is_same(path: Path, size: int, sha256: str) -> bool:
            try:
                facts = path.stat()
                if facts.st_size != size:
                    return False
                if read_all:
                    return io.sha256_file(path) == sha256
                is_later = done and facts.st_mtime_ns > done
                return not is_later or full_digests([path], self.root / MEMORY) == [sha256]
            except OSError:
                return False

        return [name for name, content in listed.items() if not is_same(self.folder / name, *content)]

    def unfinished_work(self) -> Path | None:
        """The folder with unfinished work of these settings and inputs. Raises MissingFile."""
        works = [work for work in (self.folder, self.next) if "fingerprint" in begun_of(work)]
        works = [work for work in works if not (work / DONE).exists()]
        return next((work for work in works if begun_of(work)["fingerprint"] == self.mark), None)

    def unfinished_seconds(self, work: Path | None = None) -> float | None:
        """How long unfinished work has taken so far, by the times of its files; None without any. work: its folder."""
        folder = work or self.folder
        begun = folder / BEGUN
        if not begun.is_file():
            return None
        times = (path.stat().st_mtime for path in folder.rglob("*") if path.is_file())
        return max(times) - begun.stat().st_mtime

    def reopen(self, damaged: Sequence[str]) -> None:
        """Make damaged output of these settings unfinished work, if it is made in parts: then good parts are kept.

        damaged: files of current output. Files in no part are made again.
        """
        if not self.stage.parts or not damaged:
            return
        parts = re.compile(self.stage.parts)
        numbers = {match[1] for name in damaged if (match := parts.fullmatch(name))}
        write_json(self.folder / BEGUN, {"fingerprint": self.mark})
        for path in list(files_of(self.folder)):
            match = parts.fullmatch(path.relative_to(self.folder).as_posix())
            if path.name not in (BEGUN, DONE) and (match is None or match[1] in numbers):
                path.unlink()
        (self.folder / DONE).unlink(missing_ok=True)

    def begin(self, discard: bool, retry: list[str] | None) -> tuple[Path, float]:
        """The folder to work in, and the seconds that unfinished work in it has taken: it is continued, if it is of
        these settings and inputs.

        discard: not in the stage's own folder. retry: reasons of the misses that are asked for again.
        """
        work = self.next if (self.folder / DONE).exists() else self.folder
        begun: dict[str, Any] = {"fingerprint": self.mark}
        if retry is not None and work == self.next:
            begun["retry"] = retry
        there, spent = begun_of(work), 0.0
        same = all(there.get(key) == begun.get(key) for key in ("fingerprint", "retry"))
        if same and (work == self.next or not discard):
            spent = begun["spent"] = there.get("spent", 0.0) + (self.unfinished_seconds(work) or 0.0)
            io.sweep(work)
            self.stage.context.run_log.say(f"{self.stage.name}: continuing where it stopped")
        else:
            shutil.rmtree(work, ignore_errors=True)
        write_json(work / BEGUN, begun)
        return work, spent

    def amend(self) -> None:
        """Take finished output as it is now, after it was changed on purpose: later stages are then done again."""
        files = listing(self.folder, MARKS)
        write_json(self.folder / FILES, files)
        if self.done is not None:
            write_json(self.folder / DONE, {**self.done, "content": content_digest(files)})

    def stop(self, work: Path, because: str) -> None:
        """Write why unfinished work stopped."""
        write_json(work / BEGUN, {**begun_of(work), "because": because})

    def finish(self, work: Path, counts: dict[str, Any], seconds: float, repaired: bool) -> None:
        """Write `files.json` and `done.json` for the complete work, and put it in its place.

        repaired: the old output was damaged. If the new output is what that was, `done.json` stays: later stages are
        current.
        """
        io.sweep(work)
        files = listing(work, MARKS, digests_of_links(self.stage.context.store()))
        write_json(work / FILES, files)
        stage, content = self.stage, content_digest(files)
        mark = {
            "stage": stage.name, "fingerprint": self.mark, "inputs": list(stage.needs), "outside": self.outside,
            "counts": counts, "seconds": seconds, "content": content, "version": VERSION,
        }  # fmt: skip
        if repaired and self.done is not None and (self.done["counts"], self.done["content"]) == (counts, content):
            mark = self.done
        write_json(work / DONE, mark)
        if work == self.folder:
            (work / BEGUN).unlink()
        else:
            _swap(self.folder)
            settle(self.folder)
