"""What is registered, with where it comes from; and shell completion of registered names."""

import shutil
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from driftline.curate.core.errors import BadPlugin, explained
from driftline.curate.core.registry import HOME, Registry

KINDS: dict[str, tuple[str, str]] = {  # kind → (registry, where its names are used)
    "sources": ("driftline.curate.sources:SOURCES", "collection.source in driftline.yaml"),
    "encoders": (
        "driftline.curate.encoders:ENCODERS",
        "embed.encoder, release.features in driftline.yaml; stream encode --encoder",
    ),
    "stages": ("driftline.pipelines.stages:STAGES", "run --until, run --from"),
    "platforms": ("driftline.curate.validation.asking:PLATFORMS", "batch --format"),
    "exports": ("driftline.curate.export:EXPORTS", "export --format, of a release"),
    "publishers": ("driftline.curate.publishing:PUBLISHERS", "export --to"),
    "recipes": ("driftline.curate.pretrain:RECIPES", "models train --recipe"),
    "datasets": ("driftline.stream_builder.datasets:DATASETS", "stream compose --base, stream from-dataset"),
    "importers": ("driftline.stream_builder.importers:IMPORTERS", "stream from-NAME"),
    "shifts": ("driftline.stream_builder.shifts:SHIFTS", "stream compose --sequence"),
    "distances": ("driftline.stream_builder.measures:DISTANCES", "stream measure --distance"),
    "stream-exports": ("driftline.stream_builder.export:EXPORTS", "export --format, of a stream"),
    "protocols": ("driftline.eval.protocol:PROTOCOLS", "eval --protocol"),
    "learners": ("driftline.eval.learners:LEARNERS", "eval --learners"),
    "learner-sets": ("driftline.eval.experiment.presets:GRIDS", "eval --learners"),
    "networks": ("driftline.eval.nets:NETS", "eval --set net=NAME, eval --set network=NAME"),
    "samplers": ("driftline.eval.memory.samplers:SAMPLERS", "eval --set sampler=NAME"),
    "objectives": ("driftline.eval.finetuning.modes:OBJECTIVES", "eval --learners 'to-final(history=NAME)'"),
    "presets": ("driftline.eval.experiment.presets:PRESETS", "init --preset, eval --preset"),
    "baselines": ("driftline.eval.leaderboard.baselines:shipped", "stream from-baseline; leaderboard --baselines"),
}
REGISTRIES = Registry("kind", "", {kind: target for kind, (target, _) in KINDS.items()})


def _things(kind: str) -> Mapping[str, Any]:
    """Everything of one kind, by name: a registry, or plain data. Raises UnknownName."""
    things = REGISTRIES[kind]
    return cast(Mapping[str, Any], things() if callable(things) else things)


def completion(kind: str) -> Callable[[str], list[str]]:
    """Shell completion of the names of one kind; after a comma, of the next name."""

    def names(incomplete: str) -> list[str]:
        before, comma, _ = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in _things(kind)]

    return names


def list_models() -> tuple[list[dict[str, Any]], str]:
    """The well-known models that embed photos, the built-in one first."""
    from driftline.curate.encoders.weights import KNOWN, is_here
    from driftline.pipelines.stages.embed import BUILT_IN

    keys = ("name", "model", "weights", "megabytes", "licence", "data", "until", "claim", "source", "present")
    own = "part of driftline"
    drawn = "rendered photos of the demo: no model of real photos"
    models: list[tuple[Any, ...]] = [(BUILT_IN, BUILT_IN, None, 6, "Apache-2.0", drawn, None, own, own, True)]
    models += [
        (m.name, m.model, m.tag, m.megabytes, m.licence, m.seen.data, m.seen.trained_until, m.seen.source,
         m.repository, is_here(m.repository))
        for m in KNOWN.values()
    ]  # fmt: skip
    rows = [dict(zip(keys, values, strict=True)) for values in models]
    table = [
        (
            row["name"],
            row["data"] + (f", until {row['until']}" if row["until"] else ""),
            f"{row['megabytes']:,} MB",
            row["licence"],
            "here" if row["present"] else "to download",
        )
        for row in rows
    ]
    more = "Download: driftline models get NAME. Of your own photos: models train."
    return rows, f"{columns(table)}\n{more}"


def runs_under(protocol: str, learner: str) -> bool:
    """Whether a learner runs under a protocol, or cannot be imported. Raises UnknownName."""
    refused, registry = REGISTRIES["protocols"].resolve(protocol).refuses, REGISTRIES["learners"]
    return bool(registry.problem(learner)) or not any(getattr(registry[learner].needs, need) for need in refused)


def entries_of(kind: str) -> list[dict[str, str]]:
    """name, summary, origin, target of everything of one kind; why an entry cannot be used is its summary.

    Raises UnknownName for a kind that does not exist.
    """
    registry = _things(kind)
    if not isinstance(registry, Registry):
        listed = [(name, _text(kind, name, thing), KINDS[kind][0]) for name, thing in registry.items()]
        if kind == "presets":
            from driftline.pipelines.config import presets

            place = "pipelines/config/presets/{}.yaml"
            ours = [(n, f"init --preset: {presets.summary(n)}", place.format(n)) for n in presets.names()]
            listed = ours + listed
        return [{"name": n, "summary": text, "origin": HOME, "target": target} for n, text, target in listed]
    rows = []
    for name in registry:
        try:
            summary = registry.summary(name)
        except ModuleNotFoundError as error:  # of our own, as a network without torch
            summary = str(explained(error))
        try:
            entry = registry.entry(name)
            origin, target = entry.origin, entry.target
        except BadPlugin:  # two packages register it: the summary names both
            origin = target = ""
        rows.append({"name": name, "summary": summary, "origin": origin, "target": target})
    return rows


def _text(kind: str, name: str, thing: Any) -> str:
    """What is listed of an entry of a table."""
    if kind == "presets":
        from driftline.eval.experiment.presets import text_of

        return f"eval --preset: {text_of(thing)}"
    return ", ".join(thing) if isinstance(thing, tuple) else f"Results on the stream {name}."


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns; the second one is wrapped so that a row is no wider than the terminal, or 80 characters."""
    if not rows:
        return "nothing is registered"
    first, longest, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    beside = first + 2 + sum(width + 2 for width in others)
    room = max(20, min(shutil.get_terminal_size().columns - beside, longest))
    lines = []
    for name, text, *rest in rows:
        for i, part in enumerate(textwrap.wrap(text, room, break_on_hyphens=False) or [""]):
            cells = [f"{name if i == 0 else '':<{first}}", f"{part:<{room}}"]
            cells += [f"{cell if i == 0 else '':<{width}}" for cell, width in zip(rest, others, strict=True)]
            lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
