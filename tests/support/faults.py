"""A loopback server whose addresses misbehave by name: `/KIND/N`. Everything that was met in the wild, on purpose."""

import asyncio
import io
import math
import re
import threading
from collections import Counter
from collections.abc import Callable
from functools import cache

import numpy as np
from PIL import Image


@cache
def picture(size: tuple[int, int] = (20, 16), kind: str = "JPEG", mode: str = "RGB", seed: int = 0) -> bytes:
    """A small image of noise; another seed, another image."""
    buffer = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3)).astype(np.uint8)
    image = Image.fromarray(pixels)
    if mode == "I;16":
        image = Image.fromarray(pixels[..., 0].astype(np.uint16) * 256)
    elif mode != "RGB":
        image = image.convert(mode)
    if kind == "GIF":
        image.save(buffer, kind, save_all=True, append_images=[image.rotate(90)])
    else:
        image.save(buffer, kind)
    return buffer.getvalue()


@cache
def bomb(width: int, height: int) -> bytes:
    """A small PNG of many pixels."""
    buffer = io.BytesIO()
    Image.new("1", (width, height)).save(buffer, "PNG")
    return buffer.getvalue()


def bad_exif() -> bytes:
    """A sound JPEG whose EXIF block is rubbish."""
    body = picture(seed=7)
    return body[:2] + b"\xff\xe1\x00\x10Exif\x00\x00II*\x00\xff\xff\xff\xff" + body[2:]


# kind → the fault that it must end as; None: it must end as an image
EXPECTED: dict[str, str | None] = {
    **dict.fromkeys(["good", "png", "png16", "gif", "webp", "cmyk", "exif", "chunked"]),
    "busy": None,  # 503, then the image
    "slowdown": None,  # 429 with Retry-After, then the image
    "moved": None,  # one redirect
    "text": None,  # an image that says it is text
    "nolength": None,  # no Content-Length, the connection's end is the end
    "latinmoved": None,  # a redirect whose address is not UTF-8
    "preview": "opted_out",  # noai beside a directive with a value
    "latin": "http_404",  # a status line that is not UTF-8
    "404": "http_404", "403": "http_403", "410": "http_410", "500": "http_5xx", "html": "not_an_image",
    "empty": "empty_body", "tiny": "too_few_bytes", "cut": "truncated_body", "cutchunk": "truncated_body",
    "halffile": "broken_image", "noai": "opted_out", "loop": "redirect_loop", "gone": "placeholder",
    "inside": "private_address", "bomb": "too_many_pixels", "wide": "too_many_pixels", "huge": "too_many_bytes",
    "endless": "too_many_bytes", "drip": "timeout", "silent": "timeout", "reset": "connection_failed",
}  # fmt: skip
TYPES = {"html": "text/html", "text": "text/plain", "png": "image/png", "gif": "image/gif"}
SIMPLE: dict[str, Callable[[int], bytes]] = {
    "png": lambda n: picture(kind="PNG", seed=n % 50),
    "png16": lambda n: picture(kind="PNG", mode="I;16", seed=n % 50),
    "gif": lambda n: picture(kind="GIF", mode="P", seed=n % 50),
    "webp": lambda n: picture(kind="WEBP", seed=n % 50),
    "cmyk": lambda n: picture(mode="CMYK", seed=n % 50),
    "exif": lambda n: bad_exif(),
    "html": lambda n: b"<html>This photo is no longer available</html>",
    "empty": lambda n: b"",
    "tiny": lambda n: b"GIF89a",
    "halffile": lambda n: picture(seed=n % 50)[:200],
    "bomb": lambda n: bomb(12_000, 12_000),
    "wide": lambda n: bomb(40_000, 2),
}


class FaultServer:
    """asked: requests by path. targets: kind → address of a redirect. seconds: how long "drip" and "silent" go on.
    answered: addresses /KIND/N from this N on wait until it is larger."""

    def __init__(self, seconds: float = 30.0) -> None:
        self.asked: Counter[str] = Counter()
        self.agents: set[str] = set()
        self.targets: dict[str, str] = {}
        self.answered = math.inf
        self.seconds = seconds
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        ready.wait()

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024))
        self.port = server.sockets[0].getsockname()[1]
        self.base = f"http://127.0.0.1:{self.port}"
        ready.set()
        self._loop.run_forever()

    def close(self) -> None:
        """Stop serving."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.agents.update(re.findall(r"(?i)user-agent: (.*)\r", head.decode()))
                path = head.split(b" ", 2)[1].decode()
                self.asked[path] += 1
                if not await self._answer(path, writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: str, writer: asyncio.StreamWriter) -> bool:
        """Write the answer; False where the connection must end after it."""
        kind, _, number = path.strip("/").partition("/")
        n = int(number) if number.isdigit() else 0
        body = SIMPLE[kind](n) if kind in SIMPLE else picture(seed=n % 50)
        first = self.asked[path] == 1
        while n >= self.answered:
            await asyncio.sleep(0.05)

        def head(code: int = 200, length: int | None = None, **more: str) -> bytes:
            said = {"Content-Type": TYPES.get(kind, "image/jpeg"), **{k.replace("_", "-"): v for k, v in more.items()}}
            if length is not None:
                said["Content-Length"] = str(length)
            lines = [f"HTTP/1.1 {code} X", *(f"{k}: {v}" for k, v in said.items()), "", ""]
            return "\r\n".join(lines).encode()

        if kind.isdigit():
            writer.write(head(int(kind), 4) + b"gone")
        elif kind == "busy" and first:
            writer.write(head(503, 0))
        elif kind == "slowdown" and first:
            writer.write(head(429, 0, Retry_After="0.2"))
        elif kind in self.targets:
            writer.write(head(302, 0, Location=self.targets[kind]))
        elif kind in ("moved", "loop", "gone", "inside"):
            target = {
                "moved": f"/good/{n}",
                "loop": path,
                "gone": "/pw/images/en-us/photo_unavailable.png",
                "inside": "http://169.254.169.254/latest/meta-data",
            }[kind]
            writer.write(head(302, 0, Location=target))
        elif kind in ("noai", "preview"):
            words = {"noai": "noai", "preview": "noai, max-image-preview:large"}[kind]
            writer.write(head(200, len(body), X_Robots_Tag=words) + body)
        elif kind == "latin":
            writer.write("HTTP/1.1 404 Não encontrado\r\nContent-Length: 0\r\n\r\n".encode("latin-1"))
        elif kind == "latinmoved":
            writer.write(f"HTTP/1.1 302 X\r\nLocation: /good/{n}/é\r\nContent-Length: 0\r\n\r\n".encode("latin-1"))
        elif kind == "later":
            writer.write(head(429, 0, Retry_After="3"))
        elif kind == "cut":
            writer.write(head(200, len(body)) + body[: len(body) // 2])
            await writer.drain()
            return False
        elif kind == "nolength":
            writer.write(head(Connection="close") + body)
            await writer.drain()
            return False
        elif kind in ("chunked", "cutchunk"):
            writer.write(head(Transfer_Encoding="chunked"))
            for i in range(0, len(body), 100):
                piece = body[i : i + 100]
                writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                if kind == "cutchunk" and i:
                    await writer.drain()
                    return False
            writer.write(b"0\r\n\r\n")
        elif kind == "huge":
            writer.write(head(200, 10**9))
            await writer.drain()
            return False
        elif kind == "endless":
            writer.write(head(Connection="close"))
            for _ in range(200):
                writer.write(bytes(100_000))
                await writer.drain()
            return False
        elif kind == "drip":
            writer.write(head(200, 10_000))
            for _ in range(int(self.seconds * 5)):
                writer.write(b"\xff")
                await writer.drain()
                await asyncio.sleep(0.2)
            return False
        elif kind == "silent":
            await asyncio.sleep(self.seconds)
            return False
        elif kind == "reset":
            return False
        else:
            writer.write(head(200, len(body)) + body)
        await writer.drain()
        return True
