"""Settings of ask and tally."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from curate.core.settings import Positive, Section, Stages, Text

ASK = Stages(("ask", "publish"))  # what workers see
TALLY = Stages(("tally", "publish"))  # how their answers are counted


class ValidationSettings(Section):
    """Who validates the candidates: a crowd, or the labels of the source's catalogue."""

    method: Literal["crowd", "catalogue"] = "crowd"
    """crowd (batches and answers) or catalogue (labels that the source already has)"""
    answers: Annotated[str, Stages(("publish",))] = "answers"
    """folder for results CSV files, beside this file"""
    image_base_url: Annotated[str, ASK] = "https://example.org/images"
    """where workers find the images of stages/07_ask/images"""
    workers: Positive = 3
    """answers for each image (CLEAR: 3)"""
    agree: Annotated[Positive, TALLY] = 2
    """answers that must agree (CLEAR: 2)"""
    rule: Annotated[Literal["exact", "per-option"], TALLY] = "exact"
    """exact: the whole set of ticks must be the expected class; per-option: its box must be ticked"""
    aggregate: Annotated[Literal["votes", "one-coin", "dawid-skene"], TALLY] = "votes"
    """votes: CLEAR's rule; one-coin, dawid-skene: weigh workers by a model of all answers"""
    confidence: Annotated[float, Field(gt=0.5, lt=1), TALLY] = 0.9
    """one-coin, dawid-skene: probability of the expected answer that keeps an image"""
    sensitive_drop: Annotated[Positive, TALLY] = 2
    """this many "sensitive" answers drop an image (CLEAR's literal text: 3)"""
    sensitive_hold: Annotated[Positive, TALLY] = 1
    """this many "sensitive" answers hold an image for review (CLEAR's literal text: never)"""
    reward_usd: Annotated[float, Field(gt=0), ASK] = 0.02
    """reward for an answer, for the estimate (CLEAR: 0.02)"""
    seconds: Annotated[float, Field(gt=0), ASK] = 9.0
    """expected time for an answer, for the hourly wage (marketplaces require $8 and more)"""
    per_worker: Annotated[Positive | None, ASK] = None
    """answers of one worker that count (null: any number)"""
    gold: Annotated[str | None, ASK] = None
    """CSV of photos with known answers (columns id, labels): hidden among the questions, to check the workers"""
    gold_share: Annotated[float, Field(ge=0, le=0.5), ASK] = 0.05
    """gold questions as a share of the batch, in equal parts for every answer; "none" comes from the background"""
    sensitive_prompts: Annotated[tuple[Text, ...], ASK] = ()
    """texts whose nearest images annotators see blurred, e.g. [a nude person, blood] (empty: none)"""
    blur_share: Annotated[float, Field(ge=0, le=1), ASK] = 0.02
    """share of the batch that is blurred"""
    rounds: Annotated[Positive, TALLY] = 5
    """release.short: reopen: maximum number of batches"""
    accept_incomplete: Annotated[bool, TALLY] = False
    """continue without missing answers; images with too few answers are dropped as pending"""
