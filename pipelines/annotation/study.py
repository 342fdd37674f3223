"""A study with participants whom nobody here knows: who is let in, under which link, and an alarm."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from starlette.requests import Request

from driftline.curate.core.atomic_io import csv_text, private, read_json, write_json, write_text
from driftline.curate.core.errors import BadConfig, BadInput, DriftlineError, Unfinished
from driftline.curate.validation.answers.answers import worker_key
from driftline.pipelines.annotation.batches import open_batch
from driftline.pipelines.run.stage import Context

Admit = Literal["all", "links", "prolific"]
NAME = r"^[A-Za-z0-9_.-]{1,40}$"
WORDS = ("PROLIFIC_PID", "STUDY_ID", "SESSION_ID")
PLACES = "?" + "&".join(f"{word}={{{{%{word}%}}}}" for word in WORDS)  # Prolific fills them in
ALARMS = ".alarms.json"  # ends a file beside the answers: people who share an address, a list each
MANY = 4  # people at one address, such as a household, before it is said
MOST_ASKED = 60  # questions to Prolific in a minute
OPEN = ("ACTIVE", "RESERVED")  # states of a submission that its participant works on


@dataclass(frozen=True)
class Study:
    """The page as an external study: participants come with an id, and leave with a completion code."""

    code: str
    """completion code of the study"""
    images: int = 20
    """images for one participant"""
    hold: int = 3600
    """seconds after which the unanswered images of a participant are given to others, too"""
    public: str = ""
    """address of the reverse proxy with TLS, such as https://labels.example.org"""
    admit: Admit = "all"
    """who is let in: everybody with the address and an id; links that this run signed; participants whose submission
    Prolific confirms"""


def study_of(code: str, images: int, public: str, admit: str = "all") -> Study:
    """A study. Raises BadConfig for a code or an address that Prolific would not accept, and another word."""
    if not re.fullmatch(NAME, code):
        raise BadConfig(f"The completion code is {code!r}.", "Expected 1 to 40 letters, digits, '-', '_' or '.'.")
    if public and not re.fullmatch(r"https://[A-Za-z0-9.-]+(:[0-9]{1,5})?", public):
        raise BadConfig(f"--public-url is {public!r}.", "Expected https://NAME, without a path.")
    if admit not in get_args(Admit):
        raise BadConfig(f"--admit is {admit!r}.", f"Expected {', '.join(get_args(Admit))}.")
    return Study(code, images, public=public, admit=admit)  # type: ignore[arg-type]


def signed(key: str, *words: str) -> str:
    """32 hexadecimal digits that only who has the key can write for these words (HMAC of SHA-256)."""
    return hmac.new(key.encode(), "\0".join(("study", *words)).encode(), hashlib.sha256).hexdigest()[:32]


def study_address(url: str, study: Study) -> str:
    """The address to enter at Prolific; url: of the page on this machine."""
    return f"{_base(url, study)}{PLACES if study.admit != 'links' else ''}"


def _base(url: str, study: Study) -> str:
    return f"{study.public or url.rpartition('/')[0].rpartition('/')[0]}/{url.split('/')[3]}/"


def write_links(context: Context, url: str, study: Study) -> Path:
    """Write a link for each participant that the open batch needs, as CSV that only its owner reads: the same links
    until answers are deleted."""
    batch, key = open_batch(context), worker_key(context.root)
    facts, name = batch.facts, batch.facts["batch"]
    people = max(1, -(-len(facts["items"]) * facts["workers"] // study.images))
    names = [f"p{number:03d}" for number in range(1, people + 1)]
    rows = [(one, f"{_base(url, study)}?participant={one}&token={signed(key, 'link', name, one)}") for one in names]
    path = context.root / "annotate" / f"links-{name}.csv"
    private(path.parent)
    path.touch(0o600)
    write_text(path, csv_text(("participant", "link"), rows))
    path.chmod(0o600)
    return path


@dataclass
class Participants:
    """Who is let in to one batch, and who answers from one address."""

    study: Study
    batch: str
    """name of the batch"""
    key: str
    """of the run, see `worker_key`"""
    answers: Path
    """the SQLite file"""
    say: Callable[[str], object]
    """called with an alarm"""
    endpoint: str | None = None
    """of Prolific's API, if another one"""
    people: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """address → participants; never written"""
    submissions: dict[tuple[str, str], str] = field(default_factory=dict)
    """(study, submission) → its participant, as Prolific said"""
    asked: list[float] = field(default_factory=list)
    """when Prolific was asked, in the last minute"""

    def __post_init__(self) -> None:
        """Raises BadConfig for a study that asks Prolific, without a token in the environment."""
        if self.study.admit == "prolific":
            from driftline.curate.validation.asking.platforms.prolific_service import Service

            Service()

    def carried(self, name: str) -> str:
        """The name with its signature, as pages and forms carry it: nobody answers, or takes back, for another."""
        return f"{name}:{signed(self.key, 'page', self.batch, name)}"

    def named(self, carried: str) -> str:
        """Who answers. Raises BadInput for a name that this study did not sign."""
        name = carried.partition(":")[0]
        if not hmac.compare_digest(carried.encode("utf-8", "replace"), self.carried(name).encode("utf-8", "replace")):
            raise BadInput("This page is of no participant of this study.", "", "Open your link again.")
        return name

    def admitted(self, query: Mapping[str, str]) -> str:
        """The name of who opens the study. Raises BadInput for everybody who is not let in, Unfinished while Prolific
        does not answer."""
        if self.study.admit == "links":
            name, token = query.get("participant", ""), query.get("token", "")
            right = signed(self.key, "link", self.batch, name)
            if not name.isascii() or not hmac.compare_digest(token.encode("utf-8", "replace"), right.encode()):
                raise BadInput("This link is not valid for this study.", "", "Open the link that was sent to you.")
            return name
        name, study, session = (query.get(word, "") for word in WORDS)
        if not all(re.fullmatch(NAME, word) for word in (name, study, session)):
            raise BadInput("Open this page from Prolific: its address lacks PROLIFIC_PID.")
        if self.study.admit == "prolific" and self._participant(study, session) != name:
            raise BadInput(
                "Prolific knows no open submission of this participant to this study.",
                "",
                "Open the study from Prolific again.",
            )
        return name

    def _participant(self, study: str, session: str) -> str | None:
        """Whose submission that is, by Prolific ("Retrieve a submission"); None if it has no such one, or it ended."""
        from driftline.curate.validation.asking.platforms import prolific_service as api

        if (study, session) not in self.submissions:
            now = time.monotonic()
            self.asked = [when for when in self.asked if now - when < 60]
            if len(self.asked) >= MOST_ASKED:  # strangers must not use up the calls of the account
                raise Unfinished("Prolific was asked too often in this minute.", "", "Try again in a minute.")
            self.asked.append(now)
            try:
                submission = api.Service(self.endpoint or api.ENDPOINT).call("GET", f"/submissions/{session}/")
            except (Unfinished, BadConfig) as error:  # BadConfig: it refuses our token
                self.say(str(error))
                raise Unfinished("Prolific does not answer now.", "", "Try again in a minute.") from error
            except DriftlineError:
                return None
            if submission.get("study_id") != study or submission.get("status") not in OPEN:
                return None
            self.submissions[study, session] = str(submission.get("participant"))
        return self.submissions[study, session]

    def answered(self, name: str, request: Request) -> None:
        """Remember from which address somebody answers; say and write it where that address answers for many."""
        forwarded = request.headers.get("x-forwarded-for", "") if self.study.public else ""
        address = forwarded.rpartition(",")[2].strip() or (request.client.host if request.client else "")
        people = self.people[address]
        if name in people:
            return
        people.add(name)
        if len(people) >= MANY:
            path = self.answers.with_suffix(ALARMS)
            others = [set(group) for group in read_json(path)] if path.is_file() else []
            write_json(path, sorted(sorted(group) for group in [*(g for g in others if not g & people), people]))
            path.chmod(0o600)
            self.say(f"One address answers for {len(people)} participants: look at their answers ({path}).")


def alarms(root: Path) -> list[str]:
    """A line for each group of people who answered from one address."""
    return [
        f"annotate: one address answered for {len(group)} participants: look at their answers ({path})"
        for path in sorted((root / "annotate").glob(f"*{ALARMS}"))
        for group in read_json(path)
    ]


def page_secret(key: str, batch: str) -> str:
    """The secret in the address of a study: the same after each start, so that links stay valid."""
    return signed(key, "address", batch)
