"""A run folder's copy in a bucket, so that a machine that vanishes loses only what was not sent yet.

The bucket holds contents by their SHA-256 (`PREFIX/content/…`) and one list of files (`PREFIX/run.json`). A new list
takes the place of the old one in a single request, under the condition that the old one is still there. So the copy is
always a state that the folder had; nothing is renamed; and of two machines that work on one run the second is refused.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import secrets
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from driftline.curate.core.atomic_io import check_format, json_value, read_object, sha256_file, write_json, writing
from driftline.curate.core.errors import BadConfig, BadInput, Busy, DriftlineError, IntegrityError, Unfinished, reason
from driftline.curate.core.files.digests import Content, files_of
from driftline.curate.core.outside.limits import DOCUMENT
from driftline.curate.core.outside.names import inside
from driftline.curate.core.outside.s3 import DENIED, S3, client, code_of
from driftline.pipelines.run.runner import alone
from driftline.pipelines.run.stage import MEMORY
from driftline.pipelines.run.state import done_marks

FORMAT = 1
LIST = "run.json"
RECORD = ".copy.json"  # in the run folder: the copy's address, and the name under which this folder writes it
EVERY = 30.0  # seconds between two states of the copy; the end of a stage is one, too
POLL = 0.5  # seconds between two looks at the stages
TRIES = 5  # for a state that does not change while it is listed
THREADS = 8  # requests at a time
SHA256 = re.compile("[0-9a-f]{64}")
GONE = ("NoSuchKey", "404")
CHANGED = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
CONTINUE = "Run the same command again: it continues."

Stamp = tuple[int, int, int, int]  # inode, bytes, times of content and inode in ns: a change of a file changes one


@dataclass
class Copy:
    """The copy of one run folder."""

    folder: Path
    """the run folder"""
    bucket: str
    """name of the bucket"""
    prefix: str
    """begin of all keys, with a slash at its end"""
    server: Any
    """boto3 client"""
    leave: Path | None = None
    """folder that is not copied: the store, which can be filled again"""
    writer: str = ""
    """under which this folder writes the list"""
    version: str | None = None
    """ETag of the list that is there"""
    files: dict[str, Content] = field(default_factory=dict)
    """that list"""
    sent: dict[Stamp, Content] = field(default_factory=dict)
    """contents of files that this process has sent"""
    turn: threading.Lock = field(default_factory=threading.Lock)
    """of threads that send"""
    refused: DriftlineError | None = None
    """why nothing more is sent"""

    @property
    def address(self) -> str:
        """As it was given."""
        return f"s3://{self.bucket}/{self.prefix.rstrip('/')}"

    def push(self) -> bool:
        """Send what is new in the folder. False if files change all the time: nothing is sent then. Raises Busy if
        another folder has written the copy, and errors of boto3."""
        listed = self._listed()
        if listed != self._listed():
            return False  # not a state that the folder had at one moment
        there = {content.sha256 for content in (*self.files.values(), *self.sent.values())}
        with ThreadPoolExecutor(THREADS) as pool:
            contents = list(pool.map(lambda one: self._send(one[0], one[1], there), listed.items()))
        files = {name: content for name, content in zip(listed, contents, strict=True) if content is not None}
        if len(files) < len(listed):
            return False
        if files != self.files or self.version is None:
            self._replace_list(files)
        return True

    def _replace_list(self, files: dict[str, Content]) -> None:
        from botocore.exceptions import ClientError

        text = json.dumps(
            {"format": FORMAT, "writer": self.writer, "files": {n: [c.size, c.sha256] for n, c in files.items()}}
        )
        condition = {"IfMatch": self.version} if self.version else {"IfNoneMatch": "*"}
        try:
            answer = self.server.put_object(Bucket=self.bucket, Key=self.prefix + LIST, Body=text.encode(), **condition)
            version = answer["ETag"]
        except ClientError as error:
            if code_of(error) not in CHANGED:
                raise
            version, writer, files_there = self.read_list()
            if writer != self.writer:
                raise Busy(
                    f"{self.address} is written by another run folder, on another machine or by --copy elsewhere.",
                    "",
                    "Stop one of the two. To go on here, run the same command with a new folder.",
                ) from None
            if files_there != files:  # an earlier request of ours, whose answer was lost
                self.version = version
                return self._replace_list(files)
        unused = {c.sha256 for c in self.files.values()} - {c.sha256 for c in files.values()}
        self.version, self.files = version, files
        self.sent = {stamp: content for stamp, content in self.sent.items() if content.sha256 not in unused}
        for digest in sorted(unused):
            self.server.delete_object(Bucket=self.bucket, Key=self._key(digest))

    def read_list(self) -> tuple[str | None, str, dict[str, Content]]:
        """ETag, writer and files of the list; (None, "", {}) without one. Raises BadInput for another file."""
        from botocore.exceptions import ClientError

        try:
            answer = self.server.get_object(Bucket=self.bucket, Key=self.prefix + LIST)
        except ClientError as error:
            if code_of(error) in GONE:
                return None, "", {}
            raise
        try:
            data = answer["Body"].read(DOCUMENT + 1)
            if len(data) > DOCUMENT:
                raise ValueError(f"more than {DOCUMENT:,} bytes")
            value = json_value(data)
            check_format(Path(LIST), value["format"], FORMAT, "Choose another prefix.")
            files = {name: Content(size, digest) for name, (size, digest) in value["files"].items()}
            for name, content in files.items():  # somebody else may have written the list
                if type(content.size) is not int or content.size < 0 or not SHA256.fullmatch(content.sha256):
                    raise ValueError(f"{name!r} has no size and SHA-256")
            return answer["ETag"], str(value["writer"]), files
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise BadInput(
                f"{self.address}/{LIST} is not the list of a run ({reason(error)}).", "", "Choose another prefix."
            ) from None

    def pull(self) -> None:
        """Make the folder what the list says. Raises IntegrityError for other content, and errors of boto3."""
        wanted = {inside(self.folder, name, Path(LIST)): c for name, c in self.files.items()}
        for path in wanted:
            if path.name.startswith(MEMORY):
                raise IntegrityError(f"{self.address} holds {path.name}, which is of one machine.", "", "Delete it.")
        for name in self._listed().keys() - self.files.keys():
            (self.folder / name).unlink()
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda one: self._fetch(*one), wanted.items()))

    def _fetch(self, path: Path, content: Content) -> None:
        if path.is_file() and path.stat().st_size == content.size and sha256_file(path) == content.sha256:
            return
        body = self.server.get_object(Bucket=self.bucket, Key=self._key(content.sha256))["Body"]
        digest = hashlib.sha256()
        with writing(path) as file:
            for piece in body.iter_chunks(1 << 20):
                digest.update(piece)
                file.write(piece)
                if file.tell() > content.size:
                    break
            if digest.hexdigest() != content.sha256:
                raise IntegrityError(
                    f"{self.address} holds other bytes of {path.name} than its list says.",
                    f"Expected SHA-256 {content.sha256}.",
                    "Run without --copy: the stage does it again.",
                )

    def _listed(self) -> dict[str, Stamp]:
        """Every file of the run folder, but those of this machine: names that begin with a dot, and caches."""
        stamps = {}
        for path in files_of(self.folder):
            name = path.relative_to(self.folder)
            if any(part.startswith(".") for part in name.parts) or name.name.startswith(MEMORY):
                continue
            if self.leave is None or not path.is_relative_to(self.leave):
                with suppress(FileNotFoundError):
                    stamps[name.as_posix()] = _stamp(path)
        return dict(sorted(stamps.items()))

    def _send(self, name: str, stamp: Stamp, there: set[str]) -> Content | None:
        """Send the content of a file, if it is new; None if the file is another one by now. Of a file to which lines
        are appended, what was listed."""
        if stamp in self.sent:
            return self.sent[stamp]
        path, size = self.folder / name, stamp[1]
        grows = name.endswith(".jsonl")
        try:
            data = path.read_bytes()[:size] if grows else None
            digest = sha256_file(path) if data is None else hashlib.sha256(data).hexdigest()
            with self.turn:
                new = digest not in there
                there.add(digest)  # of two files with one content, one is sent
            if new:
                if data is None:
                    self.server.upload_file(str(path), self.bucket, self._key(digest))
                else:
                    self.server.upload_fileobj(io.BytesIO(data), self.bucket, self._key(digest))
            if not grows and _stamp(path) != stamp:
                return None
        except FileNotFoundError:
            return None
        self.sent[stamp] = Content(size, digest)
        return self.sent[stamp]

    def _key(self, digest: str) -> str:
        return f"{self.prefix}content/{digest[:2]}/{digest}"

    def settled(self) -> None:
        """Send the folder as it is now. Raises as `push`, and Unfinished."""
        for _ in range(TRIES):
            if self.push():
                return
            time.sleep(POLL)
        raise Unfinished(f"{self.folder} changes while it is copied to {self.address}.", "", CONTINUE)


def opened(address: str, folder: Path) -> Copy:
    """The copy at `s3://BUCKET/PREFIX` of a run folder. A new folder becomes what the copy holds.

    Raises BadConfig (address, keys), Busy (the run went on in another folder, or a process works on this one), BadInput
    (the folder holds another run), Unfinished (no connection).
    """
    parts = urlsplit(address)
    prefix = parts.path.strip("/")
    if parts.scheme != "s3" or not parts.netloc or not prefix:
        raise BadConfig(f"--copy is {address!r}.", "Expected s3://BUCKET/PREFIX.")
    copy = Copy(folder, parts.netloc, prefix + "/", client(S3(), keys=True))
    record = folder / RECORD
    with alone(folder), server_errors(copy):
        previous = read_object(record, {"address": str, "writer": str}, "Delete it.") if record.is_file() else {}
        if previous.get("address") != copy.address:
            previous = {}
        mark = {"address": copy.address, "writer": previous.get("writer") or secrets.token_hex(8)}
        copy.writer = mark["writer"]
        copy.version, writer, copy.files = copy.read_list()
        if copy.version is not None and previous and not previous.get("begun"):
            if writer != copy.writer:
                raise Busy(
                    f"Another folder went on with the run of {copy.address}; {folder} is behind it.",
                    "",
                    "Run the same command with a new folder: it begins with what the copy holds.",
                )
        elif copy.version is not None:
            if not previous and copy._listed():
                way_out = "Name a new folder, or another prefix."
                raise BadInput(f"{folder} is not the folder that {copy.address} is a copy of.", "", way_out)
            write_json(record, mark | {"begun": True})
            copy.pull()
            copy._replace_list(copy.files)  # from now on this folder writes the copy
        write_json(record, mark)
    return copy


@contextmanager
def following(copy: Copy, leave: Path) -> Iterator[None]:
    """Keep the copy up to date while the run goes on, and at its end. leave: `Copy.leave`. Raises as `Copy.settled`."""
    copy.leave = leave
    stop = threading.Event()
    try:
        with _stoppable() as by:
            thread = threading.Thread(target=_follow, args=(copy, stop, by), daemon=True)
            thread.start()
            yield
    except KeyboardInterrupt:
        if copy.refused is not None:
            raise copy.refused from None
        raise
    except DriftlineError:
        stop.set()
        thread.join()
        with suppress(DriftlineError), server_errors(copy):
            copy.settled()
        raise
    finally:
        stop.set()
        thread.join()
    with server_errors(copy):
        copy.settled()


@contextmanager
def _stoppable() -> Iterator[signal.Signals]:
    """The signal by which a thread stops this one. A shell's background jobs ignore SIGINT; in them SIGTERM does it."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        yield signal.SIGINT
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, before)


def _follow(copy: Copy, stop: threading.Event, by: signal.Signals) -> None:
    from _thread import interrupt_main

    last, seen = 0.0, _done(copy.folder)
    while not stop.wait(POLL):
        done = _done(copy.folder)
        if last and done == seen and time.monotonic() - last < EVERY:
            continue
        try:
            with server_errors(copy):
                if copy.push():
                    last, seen = time.monotonic(), done
        except Unfinished:  # no connection now: the end of the run says it, if it lasts
            last = time.monotonic()
        except DriftlineError as error:
            copy.refused = error
            interrupt_main(by)
            return


def _done(folder: Path) -> list[Stamp]:
    stamps = []
    for path in done_marks(folder):
        with suppress(FileNotFoundError):
            stamps.append(_stamp(path))
    return stamps


def _stamp(path: Path) -> Stamp:
    s = os.stat(path)
    return s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns


@contextmanager
def server_errors(copy: Copy) -> Iterator[None]:
    """Errors of the server and of the network as ours."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (ClientError, BotoCoreError, Boto3Error) as error:
        if (code := code_of(error)) in DENIED:
            raise BadConfig(f"{copy.address} cannot be used ({code}).", "", "Check the bucket and the keys.") from None
        raise Unfinished(f"{copy.address} is not up to date ({reason(error)}).", "", CONTINUE) from None
