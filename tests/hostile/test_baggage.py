"""img2dataset brings wandb, opentelemetry and albumentations, which would talk to others, and torch, which takes
seconds: none is started."""

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
from driftline.curate.fetch.img2dataset import without_baggage
without_baggage()
from img2dataset.downloader import Downloader
from img2dataset.resizer import Resizer
Resizer(256, "no", False, disable_all_reencoding=True)
assert not talk, talk
loaded = sorted(name for name in sys.modules if name.split(".")[0] in ("opentelemetry", "sentry_sdk", "wandb"))
assert loaded == ["wandb"] and not hasattr(sys.modules["wandb"], "init"), loaded
assert not hasattr(sys.modules["albumentations"], "Compose")
assert "torch" not in sys.modules
"""


def test_nothing_is_said_and_no_telemetry_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", QUIET], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
