"""img2dataset brings wandb, opentelemetry and albumentations, which would talk to others, and torch, which takes
seconds: none is started, and what else imports them finds the real ones."""

import subprocess
import sys

QUIET = """
import sys
talk = []
def listen(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        talk.append((event, args))
        raise PermissionError(event)
sys.addaudithook(listen)
from driftline.curate.fetch.img2dataset import one_image
assert one_image().__module__ == "img2dataset.downloader"
assert not talk, talk
heavy = {"opentelemetry", "sentry_sdk", "wandb", "albumentations", "webdataset", "torch"}
assert not heavy & {name.split(".")[0] for name in sys.modules}
"""


def test_nothing_is_said_and_no_telemetry_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", QUIET], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
