"""The card of a preset: what a run with it would collect and ask, before anything is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from driftline.curate.release.data_card import plain, section_text
from driftline.curate.retrieval.settings import BACKGROUND
from driftline.curate.validation.answers.rule_text import rule_text
from driftline.curate.validation.asking.batches import estimate, wage
from driftline.pipelines.config import presets
from driftline.pipelines.config.schema import Config


def recipe_card(preset: str, judgement: str) -> str:
    """Markdown. judgement: text of a judgement file. Raises UnknownName for an unknown preset."""
    from jinja2 import Environment, StrictUndefined

    template = Path(__file__).with_name("recipe.md.j2").read_text(encoding="utf-8")
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["md"] = plain
    config = Config.model_validate(presets.values(preset))
    return environment.from_string(template).render(
        preset=preset, summary=presets.summary(preset), judged=section_text(judgement), **_facts(config)
    )


def _facts(config: Config) -> dict[str, Any]:
    retrieve, validation, release = config.retrieve, config.validation, config.release
    classes = [c.name for c in retrieve.concepts] + ([BACKGROUND] if retrieve.background_share else [])
    unlabelled = config.buckets.unlabelled
    labelled = config.buckets.count - len(unlabelled)
    asked = retrieve.per_class * len(retrieve.concepts)
    if retrieve.background_share:
        asked += int(retrieve.per_class * retrieve.background_share) * len(retrieve.concepts)
    images = labelled * sum(release.per_class if c != BACKGROUND else release.background or release.per_class
                            for c in classes)  # fmt: skip
    return {
        "name": release.name,
        "classes": classes,
        "labelled": labelled,
        "unlabelled": unlabelled,
        "images": images,
        "per_class": release.per_class,
        "splits": release.splits,
        "test_share": release.test_share,
        "source": config.collection.source,
        "stop_after": config.fetch.stop_after,
        "filters": _filters(config),
        "buckets": f"{config.buckets.count} with equal numbers of photos, by upload time",
        "model": config.embed.model,
        "weights": config.embed.weights,
        "per_list": retrieve.per_class,
        "overlap": retrieve.overlap,
        "background": retrieve.background_share > 0,
        "crowd": validation.method == "crowd",
        "workers": validation.workers,
        "rule": rule_text(validation.model_dump()),
        "answers": asked * labelled * validation.workers,
        "cost": estimate(asked * labelled, validation),
        "platform": validation.platform,
        "reward": validation.reward_usd,
        "hourly": wage(validation.reward_usd, validation.seconds),
        "seconds": validation.seconds,
        "concepts": retrieve.concepts,
    }


def _filters(config: Config) -> list[str]:
    rules = ["photos only, with a valid URL and upload time"]
    if config.filter.upload_after_capture:
        rules.append("uploaded after capture")
    if config.fetch.min_edge > 1:
        rules.append(f"shorter edge at least {config.fetch.min_edge} pixels")
    if config.fetch.max_aspect is not None:
        rules.append(f"aspect ratio at most {config.fetch.max_aspect:g} : 1")
    if config.filter.licences:
        rules.append("licences " + ", ".join(config.filter.licences))
    return rules
