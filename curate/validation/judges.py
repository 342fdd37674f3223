"""Judges: models that answer the question of a batch as people do, as workers with the name `judge:NAME`.

A judge is a vision-language model behind an OpenAI-compatible address, whose answers the store keeps by the SHA-256 of
the image and the question, so that none is paid twice; or the run's encoder with its prompts (CLIP zero-shot).
"""

import base64
import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from driftline.curate.core.atomic_io import fingerprint, json_value
from driftline.curate.core.errors import BadConfig, DriftlineError, Unfinished, shortened
from driftline.curate.core.parsing import rows_of
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import name_for
from driftline.curate.foreign.http import AGAIN, Client, Policy, Temporary, repeat
from driftline.curate.retrieval.settings import Concept
from driftline.curate.validation.answers.answers import JUDGE, table_of
from driftline.curate.validation.answers.stored import StoredAnswers
from driftline.curate.validation.answers.verdicts import tally
from driftline.curate.validation.asking.batches import NONE, expected_of
from driftline.curate.validation.settings import JudgeSettings, ValidationSettings

LARGEST = 1 << 20  # bytes of a response
BACKOFF, LONGEST_BACKOFF = 0.5, 30.0  # seconds
AT_ONCE = 8  # images of a part, for each request in flight
MIME = {"jpg": "image/jpeg", "jpeg": "image/jpeg", "png": "image/png", "gif": "image/gif", "webp": "image/webp"}
LEVEL = 0.95  # of the bound of precision
Load = Callable[[str], tuple[bytes, str]]  # id → image's bytes and extension
Said = tuple[list[str], bool, str | None]  # labels, sensitive, fault


def key_of(judge: JudgeSettings) -> str:
    """The key from the named environment variable; "" without a name. Raises BadConfig if it is not set."""
    if judge.key_variable is None:
        return ""
    key = os.environ.get(judge.key_variable, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise BadConfig(
            f"The judge {judge.name!r} reads its key from the variable {judge.key_variable}, which has none.",
            "Expected printable ASCII text.",
            f"Set it in the environment: export {judge.key_variable}=…",
        )
    return key


@dataclass(frozen=True)
class Question:
    """The question about an image, as a model reads it."""

    text: str
    labels: tuple[str, ...]
    """what may be answered"""

    def body(self, model: str, image: bytes, extension: str) -> bytes:
        """A request: the image as a data URL, the answer as JSON by schema, no randomness."""
        address = f"data:{MIME.get(extension.lower(), 'image/jpeg')};base64,{base64.b64encode(image).decode()}"
        content = [{"type": "text", "text": self.text}, {"type": "image_url", "image_url": {"url": address}}]
        options = {"type": "array", "items": {"type": "string", "enum": list(self.labels)}}
        schema = {
            "type": "object",
            "properties": {"labels": options, "sensitive": {"type": "boolean"}},
            "required": ["labels", "sensitive"],
            "additionalProperties": False,
        }
        answer = {"name": "answer", "strict": True, "schema": schema}
        return json.dumps(
            {
                "model": model,
                "messages": [{"role": "user", "content": content}],
                "response_format": {"type": "json_schema", "json_schema": answer},
                "temperature": 0,
            }
        ).encode()

    def answer(self, choice: Any) -> Said:
        """What one entry of `choices` says. Never raises: what is no answer has a fault: refused, cut, unreadable,
        unknown_label, contradiction, empty."""
        message = choice.get("message") if isinstance(choice, dict) else None
        if isinstance(message, dict) and (message.get("refusal") or choice.get("finish_reason") == "content_filter"):
            return [], False, "refused"
        if isinstance(choice, dict) and choice.get("finish_reason") == "length":
            return [], False, "cut"
        try:
            value = json_value(message["content"])  # type: ignore[index]
            labels, sensitive = set(value["labels"]), value["sensitive"]
            odd = not isinstance(value["labels"], list) or not isinstance(sensitive, bool)
        except (KeyError, TypeError, ValueError, RecursionError):
            odd = True
        if odd:
            return [], False, "unreadable"
        if labels - set(self.labels):
            return [], False, "unknown_label"
        if not labels or (NONE in labels and len(labels) > 1):
            return [], False, "contradiction" if labels else "empty"
        return sorted(labels), sensitive, None


def question_of(concepts: Sequence[Concept], instructions: str) -> Question:
    """The question about some concepts."""
    lines = [
        f"- {c.name}: {c.option or c.name}" + (f" (for example {', '.join(c.examples)})" if c.examples else "")
        for c in concepts
    ]
    text = "\n".join([instructions, "", *lines, f"- {NONE}: none of the above"])
    return Question(text, (*(c.name for c in concepts), NONE))


@dataclass
class Endpoint:
    """A model behind an address, while it is asked."""

    judge: JudgeSettings
    question: Question
    load: Load
    failed: Counter[str] = field(default_factory=Counter)
    """images without an answer, by reason"""
    fatal: list[DriftlineError] = field(default_factory=list)
    """why no further request can succeed"""

    def __post_init__(self) -> None:
        seconds, self.secret = self.judge.timeout, key_of(self.judge)
        self.client = Client(
            {"Authorization": f"Bearer {self.secret}"} if self.secret else {}, self.secret, timeout=seconds,
            deadline=seconds, largest=LARGEST, connections=self.judge.in_flight,
        )  # fmt: skip

    def ask(self, id_: str) -> tuple[Said, str] | None:
        """What the model says of an image, and the model's name as the server reports it; None without an answer."""
        if self.fatal:
            return None
        try:
            body = self.question.body(self.judge.model or "", *self.load(id_))
            return repeat(lambda: self._once(body), Policy(self.judge.retries + 1, BACKOFF, LONGEST_BACKOFF))
        except Temporary as failure:
            self.failed[str(failure)] += 1
        except DriftlineError as error:
            self.fatal.append(error)
        return None

    def _once(self, body: bytes) -> tuple[Said, str]:
        address = f"{(self.judge.url or '').rstrip('/')}/chat/completions"
        try:
            reply = self.client.send("POST", address, body=body, headers={"Content-Type": "application/json"})
        except Temporary as failure:  # an answer may be asked for twice
            raise Temporary("time-outs" if "Timeout" in str(failure) else "connections lost") from None
        if reply.status == 429 and b"insufficient_quota" in reply.body:
            raise Unfinished(
                f"The account of the judge {self.judge.name!r} has no credit left (HTTP 429, insufficient_quota).",
                "",
                "Add credit, then run the same command: it asks only the open images.",
            )
        if reply.status in AGAIN:
            raise reply.again(f"HTTP {reply.status}")
        if reply.status != 200:
            text = self.client.hidden(reply.body.decode("utf-8", "replace"))
            raise BadConfig(
                f"The endpoint of the judge {self.judge.name!r} answers HTTP {reply.status}: {shortened(text, 200)}",
                f"Expected it to know the key, the model {self.judge.model!r}, images and response_format.",
                "Check url, model and key_variable.",
            )
        try:
            document: Any = json_value(reply.body) if len(reply.body) <= LARGEST else None
            choice = document["choices"][0]
        except (ValueError, RecursionError, KeyError, IndexError, TypeError):
            raise Temporary("responses of another protocol") from None
        reported = self.client.hidden(str(document.get("model"))).encode("utf-8", "replace").decode()
        return self.question.answer(choice), shortened(reported, 200)


def ask_endpoint(
    judge: JudgeSettings,
    question: Question,
    photos: Mapping[str, str],
    load: Load,
    stored: StoredAnswers,
    run_log: RunLog,
    ask: bool = True,
) -> dict[str, Said]:
    """SHA-256 → what a judge says; photos of equal bytes are asked once, and what the store knows not again.

    photos: id → SHA-256. ask: False asks nothing. Raises BadConfig where no request can succeed, Unfinished where some
    have no answer: the answers so far are kept, and the same command continues.
    """
    key = bytes.fromhex(fingerprint([judge.model, question.text, question.labels]))[:16]
    said = stored.said(JUDGE + judge.name, key, set(photos.values()))
    todo = sorted({digest: id_ for id_, digest in photos.items() if digest not in said}.items())
    if not todo or not ask:
        return said
    endpoint, size = Endpoint(judge, question, load), AT_ONCE * judge.in_flight
    with ThreadPoolExecutor(judge.in_flight) as pool, run_log.progress(judge.name, len(todo), "images") as tick:
        for start in range(0, len(todo), size):
            part = todo[start : start + size]
            for (digest, _), answer in zip(part, pool.map(endpoint.ask, [id_ for _, id_ in part]), strict=True):
                if answer is not None:
                    said[digest] = answer[0]
                    stored.keep_said(JUDGE + judge.name, key, digest, *answer)
                tick(1)
    if endpoint.fatal:
        raise endpoint.fatal[0]
    if missing := sum(digest not in said for digest in photos.values()):
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in endpoint.failed.most_common(4))
        raise Unfinished(
            f"{missing:,} of {len(photos):,} images have no answer of the judge {judge.name!r} ({reasons}).",
            "Expected an answer to each.",
            "The same command asks only these.",
        )
    return said


def zero_shot(
    vectors: npt.NDArray[Any], queries: npt.NDArray[Any], first: Sequence[int], margin: float
) -> npt.NDArray[np.int64]:
    """(N,) number of the concept with the best prompt, -1 where it is ahead of the second by less than the margin.

    vectors: (N, D) unit vectors of images. queries: (Q, D) of prompts. first: the first query of each concept.
    """
    if len(first) < 2 or not len(vectors):
        return np.full(len(vectors), -1)
    cosines = np.maximum.reduceat(vectors.astype(np.float32) @ queries.T, np.asarray(first), axis=1)
    second, top = np.partition(cosines, -2, axis=1)[:, -2:].T
    return np.where(top - second >= margin, cosines.argmax(1), -1)


def judged(
    settings: ValidationSettings,
    concepts: Sequence[Concept],
    ids: Sequence[str],
    load: Load,
    vectors_of: Callable[[list[str]], npt.NDArray[Any]],
    queries: npt.NDArray[Any],
    stored: StoredAnswers,
    run_log: RunLog,
    ask: bool = True,
) -> pa.Table:
    """The answers of all judges to some images, as a table of ANSWERS. queries: of all concepts, in their order. ask:
    as for `ask_endpoint`."""
    rows: list[dict[str, Any]] = []
    for judge in settings.judges:
        said: dict[str, Said] = {}
        if judge.kind == "endpoint":
            photos = dict(stored.digests(ids))
            question = question_of(concepts, judge.instructions)
            by_digest = ask_endpoint(judge, question, photos, load, stored, run_log, ask)
            said = {id_: by_digest[digest] for id_, digest in photos.items() if digest in by_digest}
        else:
            first = np.cumsum([0, *(len(concept.texts()) for concept in concepts[:-1])]).tolist()
            best = zero_shot(vectors_of(list(ids)), queries, first, judge.margin).tolist()
            said = {id_: ([concepts[b].name], False, None) for id_, b in zip(ids, best, strict=True) if b >= 0}
        rows += [
            {"item": "", "id": id_, "worker": JUDGE + judge.name, "labels": labels, "sensitive": flag, "fault": fault}
            for id_, (labels, flag, fault) in sorted(said.items())
        ]
    return table_of(rows)


@dataclass(frozen=True)
class Alone:
    """What judges decide without people, where `validation.skip_people` is set."""

    decided: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """id → labels on which all judges agree"""
    audited: frozenset[str] = frozenset()
    """those of them that people are asked all the same, drawn at random"""

    def asks(self, id_: str) -> bool:
        """Whether people are asked about an image."""
        return id_ not in self.decided or id_ in self.audited

    def audit(self, items: Sequence[dict[str, Any]], answers: pa.Table, settings: ValidationSettings) -> dict[str, Any]:
        """Of the audited images that judges would have accepted: how many people answered (`images`), of how many they
        agree (`confirmed`), and the exact lower bound of that share (Clopper–Pearson). answers: of people."""
        from scipy.stats import beta

        ours = [i for i in items if i["id"] in self.audited and self.decided[i["id"]] == expected_of(i["concept"])]
        # people may be fewer than the answers that must agree
        rules = settings.model_copy(update={"agree": min(settings.agree, settings.workers)})
        verdicts = tally(ours, answers, rules)["decision"].to_pylist() if ours else []
        known = [verdict for verdict in verdicts if verdict != "pending"]
        n, right = len(known), known.count("kept")
        low = float(beta.ppf(1 - LEVEL, right, n - right + 1)) if right else 0.0
        return {"images": n, "confirmed": right, "precision_low": low}


def decided_alone(answers: pa.Table, settings: ValidationSettings, seed: int) -> Alone:
    """What judges decide alone, and which of these images people are asked, too. answers: see `judged`."""
    if settings.skip_people == "never":
        return Alone()
    said = defaultdict[str, set[frozenset[str] | None]](set)
    counts = Counter[str]()
    for id_, labels, sensitive, fault in rows_of(answers, "id", "labels", "sensitive", "fault"):
        said[id_].add(None if fault or sensitive else frozenset(labels))
        counts[id_] += 1
    everyone = len(settings.judges)
    decided = {id_: one for id_, (one, *other) in said.items() if one and not other and counts[id_] == everyone}
    drawn = sorted(decided, key=lambda id_: name_for(seed, "audit", id_))
    return Alone(decided, frozenset(drawn[: math.ceil(settings.audit_share * len(drawn))]))
