"""retrieve: prompts → candidates per bucket and concept."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from curate.concepts import BACKGROUND, Concept, RetrieveRules, check_enough, choose, queries
from curate.embed import parts
from curate.encoders.clip import Clip
from curate.ground.errors import BadConfig, BadInput
from curate.ground.files import read_json, write_array, write_parquet
from pipelines.config import Config
from pipelines.stage import Counts, Stage
from pipelines.stages.embed import model_of

CANDIDATES = pa.schema(
    [
        ("id", pa.string()),
        ("bucket", pa.int32()),
        ("concept", pa.string()),
        ("score", pa.float32()),
        ("rank", pa.int32()),
        ("fate", pa.string()),
    ]
)


def concepts_of(config: Config) -> list[Concept]:
    """The configured concepts."""
    return [Concept(c.name, tuple(c.prompts), c.option or c.name, c.label or c.name) for c in config.retrieve.concepts]


def labelled_buckets(config: Config, buckets: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The buckets that get labels. Raises BadConfig when `buckets.unlabelled` names one that does not exist."""
    known = {b["index"] for b in buckets}
    if strange := sorted(set(config.buckets.unlabelled) - known):
        raise BadConfig(f"buckets.unlabelled names {strange}.", f"The buckets are {sorted(known)}.")
    return [b for b in buckets if b["index"] not in config.buckets.unlabelled]


@dataclass(frozen=True)
class Retrieve(Stage):
    """Exact search per bucket, CLEAR's overlap and background rules."""

    name: ClassVar[str] = "retrieve"
    needs: ClassVar[tuple[str, ...]] = ("bucket", "embed")

    def settings(self) -> Any:
        """Concepts, rules, and which buckets stay unlabelled."""
        config = self.context.config
        return [
            config.retrieve.model_dump(),
            config.buckets.unlabelled,
            config.embed.model,
            config.embed.weights,
        ]

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """vectors → candidates.parquet, queries.npy."""
        config = self.context.config
        section = config.retrieve
        rules = RetrieveRules(
            section.per_class,
            section.depth,
            section.overlap,
            section.background,
            section.negative_ratio,
            section.short,
        )
        concepts = concepts_of(config)
        model, weights = model_of(self.context)
        encoder = Clip(model, weights, config.embed.device)
        made_by = read_json(inputs["embed"] / "encoder.json")
        if made_by["fingerprint"] != encoder.fingerprint:
            raise BadInput(
                f"The vectors were made by {made_by['model']} with other weights than {config.embed.model} has now.",
                "Expected one model for images and texts.",
                "Run again from embed: driftline run DIR --from embed.",
            )
        texts = queries(encoder, concepts)
        write_array(out / "queries.npy", texts)
        buckets = read_json(inputs["bucket"] / "buckets.json")
        asked = {b["index"]: b["name"] for b in labelled_buckets(config, buckets)}
        ids: dict[int, list[str]] = defaultdict(list)
        pieces: dict[int, list[Any]] = defaultdict(list)
        counts: Counter[str] = Counter()
        read = 0
        for table, vectors in parts(inputs["embed"]):
            read += len(table)
            of = table["bucket"].to_numpy()
            names = np.array(table["id"].to_pylist(), dtype=object)
            for bucket in np.unique(of).tolist():
                here = np.flatnonzero(of == bucket)
                if bucket in asked:
                    ids[bucket].extend(names[here].tolist())
                    pieces[bucket].append(np.asarray(vectors[here], np.float32))
                else:
                    counts["unlabelled_bucket"] += len(here)
        rows: list[dict[str, Any]] = []
        found: dict[tuple[str, str], int] = {}
        kept = 0
        with self.context.journal.progress("retrieve", len(asked), "buckets") as tick:
            for bucket, name in asked.items():
                if not ids[bucket]:
                    raise BadInput(
                        f"The bucket {name!r} is empty.",
                        "Expected photos in every labelled bucket.",
                        "Change buckets, or name it in buckets.unlabelled.",
                    )
                order = np.argsort(np.array(ids[bucket], dtype=np.str_), kind="stable")
                names_ = [ids[bucket][i] for i in order.tolist()]
                chosen = choose(texts, np.concatenate(pieces[bucket])[order], names_, [c.name for c in concepts], rules)
                rows += [{"bucket": bucket, **row} for row in chosen]
                best: dict[str, str] = {}
                for row in chosen:
                    best[row["id"]] = min(best.get(row["id"], "z"), FATE_ORDER[row["fate"]] + row["fate"])
                fates = Counter(f[1:] for f in best.values())
                kept += fates["kept"] + fates["background"]
                counts["surplus"] += fates["surplus"]
                counts["ambiguous"] += fates["ambiguous"]
                counts["not_retrieved"] += len(names_) - len(best)
                tally = Counter(row["concept"] for row in chosen if row["fate"] in ("kept", "background"))
                found |= {(name, c.name): tally[c.name] for c in concepts}
                if rules.background:
                    found[name, BACKGROUND] = tally[BACKGROUND]
                tick(1)
        wanted = {c.name: rules.per_class for c in concepts}
        wanted[BACKGROUND] = int(rules.per_class * rules.negative_ratio) * len(concepts)
        floor = wanted if rules.short == "fail" else dict.fromkeys(wanted, 1)
        check_enough(
            found, floor, "Some concepts retrieve too few images",
            "Lower retrieve.per_class, give the concept better prompts or drop it, or set retrieve.short: fewer.",
        )  # fmt: skip
        write_parquet(out / "candidates.parquet", pa.Table.from_pylist(rows, schema=CANDIDATES))
        return Counts(read, kept, counts)


FATE_ORDER = {"kept": "0", "background": "1", "surplus": "2", "ambiguous": "3"}
