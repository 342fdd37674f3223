"""Settings of ask and tally."""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from driftline.curate.core.settings import SPEED, Form, Positive, Section, Stages, Text

ASK = Stages(("ask", "publish"))  # what workers see
TALLY = Stages(("tally", "publish"))  # how their answers are counted
FORGOTTEN = "forgotten.parquet"  # in a run folder: verdicts and counts whose answers were deleted


class Price(NamedTuple):
    """What a platform takes and asks for, as its page said."""

    share: float
    """of a reward, added as its fee"""
    least: float
    """fee of an answer at least, US dollars"""
    hourly: float
    """pay of workers at least, US dollars an hour"""
    source: str
    """in words, with the page and the date of reading"""


PRICES = {
    "prolific": Price(
        1 / 3, 0.0, 8.0, "33.3 % for universities and charities, 42.8 % for companies; prolific.com/pricing, read 20 "
        "September 2026"
    ),
    "mturk": Price(
        0.2, 0.01, 0.0, "20 %, at least $0.01, as CLEAR paid; closed on 30 September 2026: mturk.com/pricing, read 7 "
        "October 2026"
    ),
    "turkle": Price(0.0, 0.0, 0.0, "none: your own people"),
    "label-studio": Price(0.0, 0.0, 0.0, "none: your own people"),
}  # fmt: skip


INSTRUCTIONS = (
    "Look at the image. Select every element of the list that is clearly visible in it, also when it is not the main "
    "subject. If you see none of them, select only “none”. Also say whether the image has sensitive content "
    "(pornography, abuse, hate speech)."
)


class JudgeSettings(Section):
    """One judge: a model that answers the question about every image."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,40}$"), Form("1 to 40 letters, digits, '-', '_' or '.'")]
    """its name as a worker, after `judge:`"""
    kind: Literal["endpoint", "clip"] = "endpoint"
    """endpoint: a vision-language model behind an OpenAI-compatible URL; clip: the run's encoder and prompts"""
    url: Text | None = None
    """endpoint: URL before /chat/completions, e.g. http://127.0.0.1:8000/v1"""
    model: Text | None = None
    """endpoint: name of the model there"""
    key_variable: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"), Form("a variable's name")] | None = None
    """endpoint: environment variable that holds the key (null: no key); the key itself is never stored"""
    instructions: Text = INSTRUCTIONS
    """endpoint: text before the list of options"""
    in_flight: Annotated[int, Field(ge=1, le=256), SPEED] = 16
    """endpoint: requests at one time"""
    timeout: Annotated[float, Field(gt=0, le=3600), SPEED] = 120.0
    """endpoint: seconds for one request"""
    retries: Annotated[int, Field(ge=0, le=20), SPEED] = 4
    """endpoint: further requests after a time-out, 429 or 5xx (Retry-After is obeyed)"""
    margin: Annotated[float, Field(ge=0, lt=2)] = 0.02
    """clip: least difference between the best and the second best cosine; below it the judge does not answer"""

    @model_validator(mode="after")
    def _check(self) -> "JudgeSettings":
        if self.kind == "endpoint" and not (self.url and self.model):
            raise ValueError("an endpoint needs url and model")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ValueError("url must begin with http:// or https://")
        return self


class ValidationSettings(Section):
    """Who validates the candidates: people, or the labels that come with the collection."""

    method: Literal["crowd", "catalogue"] = "crowd"
    """crowd (batches and answers) or catalogue (labels that the source already has)"""
    answers: Annotated[str, Stages(("publish",))] = "answers"
    """folder for results CSV files, beside this file"""
    image_base_url: Annotated[str, ASK] = "https://example.org/images"
    """where workers find the images of stages/07_ask/images"""
    platform: Annotated[Literal["prolific", "mturk", "turkle", "label-studio"], ASK] = "prolific"
    """where paid workers answer; its fee is part of every price (MTurk closed in September 2026)"""
    workers: Positive = 3
    """answers for each image (CLEAR: 3)"""
    agree: Annotated[Positive, TALLY] = 2
    """answers that must agree (CLEAR: 2)"""
    rule: Annotated[Literal["exact", "per-option"], TALLY] = "exact"
    """exact: the whole set of ticks must be the expected class; per-option: its box must be ticked"""
    aggregate: Annotated[Literal["votes", "dawid-skene"], TALLY] = "votes"
    """votes: CLEAR's rule; dawid-skene: weigh workers by a model of all answers"""
    confidence: Annotated[float, Field(gt=0.5, lt=1), TALLY] = 0.9
    """dawid-skene: probability of the expected answer that keeps an image"""
    sensitive_drop: Annotated[Positive, TALLY] = 2
    """this many "sensitive" answers drop an image (CLEAR's literal text: 3)"""
    sensitive_hold: Annotated[Positive, TALLY] = 1
    """this many "sensitive" answers hold an image for review (CLEAR's literal text: never)"""
    reward_usd: Annotated[float, Field(gt=0), ASK] = 0.02
    """reward for an answer, for the estimate (CLEAR: 0.02)"""
    seconds: Annotated[float, Field(gt=0), ASK] = 9.0
    """expected time for an answer, for the hourly wage (crowdsourcing platforms require $8 and more)"""
    gold: Annotated[str | None, ASK] = None
    """CSV of photos with known answers (columns id, labels): hidden among the questions, to check the workers"""
    gold_share: Annotated[float, Field(ge=0, le=0.5), ASK] = 0.05
    """gold questions as a share of the batch, in equal parts for every answer; "none" comes from the background"""
    rounds: Annotated[Positive, TALLY] = 5
    """release.short: reopen: maximum number of batches"""
    accept_incomplete: Annotated[bool, TALLY] = False
    """continue without missing answers; images with too few answers are dropped as pending"""
    judges: tuple[JudgeSettings, ...] = ()
    """models that answer the same question, as workers with a name (empty: people only)"""
    skip_people: Literal["never", "agreed"] = "never"
    """never: people see every image; agreed: no person sees images on which all judges agree, except a random share"""
    audit_share: Annotated[float, Field(gt=0, le=1)] = 0.1
    """skip_people: share of these images that people answer all the same, chosen at random"""

    @model_validator(mode="after")
    def _judges_have_names(self) -> "ValidationSettings":
        names = [judge.name for judge in self.judges]
        if len(set(names)) < len(names):
            raise ValueError(f"two judges have the same name: {sorted({n for n in names if names.count(n) > 1})}")
        if self.skip_people != "never" and not self.judges:
            raise ValueError("skip_people: agreed needs judges")
        return self

    def price(self) -> float:
        """US dollars for the answers of `workers` people to one image, with the platform's fee."""
        price = PRICES[self.platform]
        return self.workers * (self.reward_usd + max(price.share * self.reward_usd, price.least))

    def identity(self, stage: str) -> dict[str, Any]:
        """As every section, and each judge's own."""
        return super().identity(stage) | {"judges": [judge.identity(stage) for judge in self.judges]}
