"""The photo world on disk and on loopback: photos, metadata in YFCC format, and a server with the usual faults."""

import bz2
import hashlib
import io
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import numpy as np
from PIL import Image, ImageDraw

from driftline.curate.core.atomic_io import read_json, write_bytes, write_json
from driftline.curate.core.errors import BadConfig, Busy
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import rng_for
from driftline.curate.foreign.names import is_count
from driftline.pipelines.demo.draw import CONCEPTS, SCENES, Rng, jpeg, photo

TURNED, DEEP, CLEAR, RESET = "turned", "deep", "clear", "reset"
SHARE = 0.025  # of the photos, for each kind
RESET_DAY = "2000-01-01"  # on which a camera begins to count that lost its battery


def oddity(age: float, rng: Rng) -> str | None:
    """What is odd about a photo of an age, or None: turned ones become more as sensors of orientation spread."""
    place = float(rng.random()) / SHARE
    for kind, share in ((TURNED, 2 * age), (DEEP, 1), (CLEAR, 1), (RESET, 1)):
        if place < share:
            return kind
        place -= share
    return None


def stored(image: Image.Image, kind: str | None, rng: Rng) -> bytes:
    """The file of an RGB photo: a JPEG; if turned, sideways with EXIF's orientation; if deep, a grey PNG of 16 bits; if
    clear, a PNG in which only an oval is visible and the pixels around it stay below an alpha of 0."""
    if kind == TURNED:
        way, orientation = ((Image.Transpose.ROTATE_90, 6), (Image.Transpose.ROTATE_270, 8))[int(rng.integers(2))]
        exif = Image.Exif()
        exif[0x0112] = orientation
        return jpeg(image.transpose(way), exif=exif.tobytes())
    if kind == DEEP:
        return _png(Image.fromarray(np.asarray(image.convert("L"), np.uint16) * 257))
    if kind == CLEAR:
        oval = Image.new("L", image.size)
        ImageDraw.Draw(oval).ellipse((0, 0, *image.size), fill=255)
        return _png(Image.merge("RGBA", (*image.split(), oval)))
    return jpeg(image)


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


START, END = datetime(2004, 1, 5, tzinfo=UTC), datetime(2014, 4, 20, tzinfo=UTC)
LICENCES = {
    "Attribution License": "by",
    "Attribution-NonCommercial License": "by-nc",
    "Attribution-ShareAlike License": "by-sa",
    "Attribution-NonCommercial-ShareAlike License": "by-nc-sa",
}
TITLES = [
    "IMG {n}",
    "DSC {n}",
    "{thing}",
    "my {thing}",
    "<script>alert({n})</script>",
    '=HYPERLINK("http://example.org","{thing}")',
    "été à la plage {n}",
    "",
]
# Part of the records below which a field is wrong, or the server behaves so; those below a smaller one are others.
DIRT = {0.05: {"url": ""}, 0.055: {"url": "htp:/broken"}, 0.12: {"taken": "4501-01-01 00:00:00.0"},
        0.125: {"taken": "null"}, 0.13: {"uploaded": "0"}, 0.133: {"uploaded": ""}}  # fmt: skip
FAULTS = {0.175: "gone", 0.19: "busy", 0.20: "html", 0.21: "cut"}


@dataclass(frozen=True)
class World:
    """A rendered world."""

    folder: Path
    """photos, metadata and truth"""
    port: int
    """port of the server (part of the URLs in the metadata)"""

    @property
    def metadata(self) -> Path:
        """25-column YFCC-format metadata, .bz2."""
        return self.folder / "photo_world_dataset.bz2"

    def truth(self) -> dict[str, list[str]]:
        """id → names of the concepts and scenes that the photo shows."""
        shown: dict[str, list[str]] = read_json(self.folder / "truth.json")
        return shown


def build(folder: Path, records: int, seed: int, run_log: RunLog, plain: bool = False, uploaders: int = 0) -> World:
    """Render a world with about `records` metadata lines; a finished one is reused. plain: without odd photos.
    uploaders: who upload about as much each; 0: a few of 400 upload most."""
    mark = folder / "world.json"
    if mark.is_file():
        facts = read_json(mark)
        if facts["records"] == records and facts["seed"] == seed:
            return World(folder, facts["port"])
    with socket.socket() as probe:  # a free port
        probe.bind(("127.0.0.1", 0))
        world = World(folder, probe.getsockname()[1])
    lines, truth, behaviour = _render(world, records, seed, run_log, plain, uploaders)
    order = rng_for(seed, "line order").permutation(len(lines))
    write_bytes(world.metadata, bz2.compress("".join(lines[i] + "\n" for i in order.tolist()).encode(), 9))
    write_json(folder / "truth.json", truth)
    write_json(folder / "behaviour.json", behaviour)
    write_json(mark, {"records": records, "seed": seed, "port": world.port, "lines": len(lines)})
    return world


def _render(
    world: World, records: int, seed: int, run_log: RunLog, plain: bool, uploaders: int
) -> tuple[list[str], dict[str, list[str]], dict[str, str]]:
    """Write photos; returns metadata lines, id → what a photo shows, id → how the server behaves."""
    port, photos = world.port, world.folder / "photos"
    photos.mkdir(parents=True, exist_ok=True)
    truth: dict[str, list[str]] = {}
    behaviour: dict[str, str] = {}
    lines: list[str] = []
    span = (END - START).total_seconds()
    things = [*CONCEPTS, *SCENES]
    weights = [1.0] * len(CONCEPTS) + [0.9] * len(SCENES)
    share = [w / sum(weights) for w in weights]
    with run_log.progress("render", records, "photos") as tick:
        for i in range(records):
            rng = rng_for(seed, "photo", i)
            age = float(rng.beta(1.15, 1.0))
            uploaded = START + timedelta(seconds=int(age * span))
            id_ = str(10_000_000 + int(age * 9_000_000_000) * 1 + i % 7)
            while id_ in truth:
                id_ = str(int(id_) + 11)
            n = 2 if rng.random() < 0.06 else 1
            names = [*CONCEPTS] if n == 2 else things
            shown = [names[k] for k in rng.choice(len(names), n, replace=False, p=None if n == 2 else share)]
            truth[id_] = shown
            dirt = float(rng.random())
            fields = _fields(id_, shown, uploaded, port, rng)
            if uploaders:  # drawn apart, too
                fields |= _user(int(rng_for(seed, "uploader", i).integers(uploaders)))
            if dirt < 0.03:
                address = f"http://www.flickr.com/videos/{fields['user']}/{id_}/play/orig/0123456789"
                fields |= {"marker": "1", "url": address}
            elif 0.055 <= dirt < 0.115:
                later = uploaded + timedelta(hours=float(rng.uniform(0.1, 12)))
                fields["taken"] = later.strftime("%Y-%m-%d %H:%M:%S.0")
            else:
                fields |= next((change for below, change in DIRT.items() if dirt < below), {})
                if dirt >= 0.133 and (fault := next((fault for below, fault in FAULTS.items() if dirt < below), "")):
                    behaviour[id_] = fault
            odd_rng = rng_for(seed, "odd", i)  # of its own: the photos are those of a plain world
            odd = None if plain or dirt < 0.21 else oddity(age, odd_rng)
            if odd == RESET:
                minute, second = odd_rng.integers(60, size=2).tolist()
                fields["taken"] = f"{RESET_DAY} 00:{minute:02}:{second:02}.0"
            write_photo = dirt >= 0.05 and fields["marker"] == "0"
            if write_photo:
                data = stored(photo(shown, age, rng), odd, odd_rng)
                (photos / f"{id_}.jpg").write_bytes(data)  # no wait for the disk: render again
            line = _line(i, fields)
            lines.append(line)
            if float(rng.random()) < 0.01:
                lines.append(line)  # a duplicate record
            if float(rng.random()) < 0.004:
                lines.append(line.rsplit("\t", 3)[0])  # a truncated line
            tick(1)
    return lines, truth, behaviour


def _fields(id_: str, shown: list[str], uploaded: datetime, port: int, rng: Rng) -> dict[str, str]:
    user = _user(int(rng.zipf(1.6)) % 400)
    taken = uploaded - timedelta(hours=float(rng.gamma(1.2, 60)) + 0.2)
    licence = list(LICENCES)[int(rng.integers(len(LICENCES)))]
    title = TITLES[int(rng.integers(len(TITLES)))].format(n=int(rng.integers(10_000)), thing=shown[0])
    return {
        "id": id_,
        **user,
        "taken": taken.strftime("%Y-%m-%d %H:%M:%S.0"),
        "uploaded": str(int(uploaded.timestamp())),
        "camera": quote_plus("Rendered Camera " + "ABC"[int(rng.integers(3))]),
        "title": quote_plus(title),
        "tags": ",".join(quote_plus(t) for t in ("rendered", *shown)),
        "url": f"http://127.0.0.1:{port}/photos/{id_}.jpg",
        "licence": licence,
        "licence_url": f"http://creativecommons.org/licenses/{LICENCES[licence]}/2.0/",
        "marker": "0",
    }


def _user(number: int) -> dict[str, str]:
    return {"user": f"{10_000_000 + number}@N0{number % 10}", "nickname": quote_plus(f"photographer {number}")}


def _line(number: int, f: dict[str, str]) -> str:
    """25 columns: line number, id, hash, then 22 others. The title is the only free text; the description is empty."""
    key = "".join(f"{b:x}" for b in hashlib.md5(f["url"].encode(), usedforsecurity=False).digest())
    page = f"http://www.flickr.com/photos/{f['user']}/{f['id']}/"
    columns = [
        str(number), f["id"], key, f["user"], f["nickname"], f["taken"], f["uploaded"], f["camera"], f["title"], "",
        f["tags"], "", "", "", "", page, f["url"], f["licence"], f["licence_url"], "1", "1", "0123456789", "9876543210",
        "jpg", f["marker"],
    ]  # fmt: skip
    return "\t".join(columns)


def write_album(folder: Path, each: int = 10) -> int:
    """Photos of cars and buses, `each` of three years, in a folder a class and named by their dates; returns how many.

    Raises BadConfig if the folder holds anything else.
    """
    names = [(thing, year, i) for thing in ("car", "bus") for year in (2010, 2011, 2012) for i in range(each)]
    photos = {folder / thing / f"{year}-05-{i + 1:02d}.jpg": (thing, year, i) for thing, year, i in names}
    if other := next((path for path in folder.rglob("*") if path.is_file() and path not in photos), None):
        raise BadConfig(f"--album is {folder}, which holds {other.name}.", "Expected a new folder.")
    for path, (thing, year, i) in photos.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, jpeg(photo([thing], 0.2, rng_for(year, thing, i)), 75))
    return len(photos)


@contextmanager
def serve(world: World) -> Iterator[None]:
    """Serve the world's URLs on loopback: photos, and the faults of `behaviour.json`.

    "gone": 404. "busy": 503 at the first request. "html": a page with status 200. "cut": the connection ends in the
    middle of the file.
    """
    behaviour: dict[str, str] = read_json(world.folder / "behaviour.json")
    requests: Counter[str] = Counter()
    lock = threading.Lock()
    photos = world.folder / "photos"

    class Handler(BaseHTTPRequestHandler):
        """The requests of one connection."""

        protocol_version = "HTTP/1.1"  # connections are kept
        wbufsize = -1  # an answer is one packet, not two that wait for each other

        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            id_ = name.removesuffix(".jpg")
            path = photos / f"{id_}.jpg"
            with lock:
                requests[id_] += 1
                first = requests[id_] == 1
            fault = behaviour.get(id_)
            if not is_count(id_) or fault == "gone" or not path.is_file():
                self._answer(404, "text/plain", b"not found")
            elif fault == "busy" and first:
                self._answer(503, "text/plain", b"try again")
            elif fault == "html":
                self._answer(200, "text/html", b"<html><body>This photo is no longer available.</body></html>")
            else:
                data = path.read_bytes()
                self.close_connection = self.close_connection or fault == "cut"
                self._answer(200, "image/jpeg", data[: len(data) // 2] if fault == "cut" else data, len(data))

        def _answer(self, code: int, kind: str, body: bytes, length: int | None = None) -> None:
            with suppress(ConnectionError):  # a client that waited too long on a busy machine has gone
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(length or len(body)))
                self.end_headers()
                self.wfile.write(body)
                self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (name of the base class)
            """Log nothing."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", world.port), Handler)
    except OSError as error:
        raise Busy(
            f"Port {world.port} of the demo's photos is in use ({error}).",
            "",
            "Use another --out folder, or stop the other process.",
        ) from None
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
