"""Every default learner of near-future and CLEAR against the best of its paper's grid, on three streams.

    python studies/defaults.py [--data ../shared/data] [--streams photos,usda,banking77] [--markdown]
    python studies/defaults.py --streams usda --draws 5            defaults alone, over orders of equal times

Streams: the photo world (photos of ten things that age, vectors of the demo's CLIP), the USDA's watercolours by year
(MobileNet vectors) and Banking77's sentences in runs of one intent (MiniLM vectors). The two latter need the data.

Grids: near-future's learning rates (those of "auto", and the paper's for images) and settings of closed forms; CLEAR's
two learning rates, the α of its reservoirs, and a tenth, once and ten times the strength of its penalties. Scores:
`near_future` and `next_domain`, in points. A row is the default, the best of the grid, and how far the default is below
it.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core.seeding import rng_for
from driftline.eval.experiment.presets import ALPHAS
from driftline.eval.learners import LEARNERS
from driftline.eval.learners.online import OnlineLearner
from driftline.eval.run import evaluate
from driftline.eval.training.sgd_learner import HEADS, RATES, RATES_OF_IMAGES, NetworkLearner
from driftline.stream_builder.builders.table import in_time_order
from driftline.stream_builder.rows import Rows
from driftline.stream_builder.stream import Split, Stream

SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "data"
STAY = 0.98  # probability that the next sentence has the intent of the one before
STRENGTHS = {"ewc": ("strength", 0.4), "si": ("strength", 1e-4), "lwf": ("weight", 2.0)}  # [CLEAR]
CLOSED: dict[str, dict[str, Sequence[Any]]] = {  # closed forms, under near-future
    "slda": {"shrinkage": (1e-4, 1e-2, 0.1, 0.5, 1.0)},
    "ridge": {"penalty": (1e-4, 1e-2, 0.1, 1.0, 10.0)},
    "random-features": {"penalty": (1e-4, 1e-2, 0.1, 1.0), "gamma": (0.25, 1.0, 4.0)},
    "ranpac": {"penalty": (1e-4, 1e-2, 0.1, 1.0, 10.0)},
    "fecam": {"tukey": (0.5, 1.0), "others": (0.0, 1.0), "covariance": ("class", "common")},
    "knn": {"k": (1, 5, 20, 50), "temperature": (0.02, 0.07, 0.2)},
}
Grid = Mapping[str, Sequence[Any]]


def trained(name: str) -> list[str]:
    """The learners of a protocol whose defaults include a learning rate that is not their paper's own, and closed
    forms."""
    fitting = [
        n
        for n, kind in LEARNERS.items()
        if issubclass(kind, NetworkLearner) and LEARNERS[n]().lr is None and not kind.needs.images
    ]
    if name == "near-future":
        return [*(n for n in fitting if not (LEARNERS[n].needs.whole_steps or LEARNERS[n].needs.first_step)), *CLOSED]
    return [n for n in fitting if not issubclass(LEARNERS[n], OnlineLearner)]


def grid(protocol: str, learner: str) -> Grid:
    """Setting → values of the paper's grid."""
    if learner in CLOSED:
        return CLOSED[learner]
    if protocol == "near-future":
        return {"lr": [*RATES, *RATES_OF_IMAGES]}
    values: dict[str, list[Any]] = {"lr": sorted(set(HEADS.values()))}
    if learner.endswith("reservoir"):
        values["alpha"] = list(ALPHAS)
    if learner in STRENGTHS:
        key, strength = STRENGTHS[learner]
        values[key] = [strength / 10, strength, strength * 10]
    return values


def gaps(protocol: str, stream: Stream, learners: Sequence[str] = ()) -> list[dict[str, Any]]:
    """A row for each learner."""
    names = {name: [name, *_candidates(name, grid(protocol, name))] for name in learners or trained(protocol)}
    asked = [spec for specs in names.values() for spec in specs]
    found = evaluate(stream, protocol, asked)
    score = "near_future" if protocol == "near-future" else "next_domain"
    values = {result["learner"]: result["scores"][score]["mean"] for result in found["results"]}
    rows = []
    for name, (default, *candidates) in names.items():
        if default not in values:  # it needs what the stream lacks
            continue
        best = max((c for c in candidates if c in values), key=lambda c: values[c])  # others diverged
        rows.append({"protocol": protocol, "stream": stream.name, "learner": name, "default": values[default],
                     "best": values[best], "of": best, "below": max(0.0, values[best] - values[default])})  # fmt: skip
    return rows


def _candidates(name: str, values: Grid) -> list[str]:
    settings = [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]
    return [f"{name}({','.join(f'{key}={value}' for key, value in chosen.items())})" for chosen in settings]


def photos(per_year: int = 300, years: int = 6, draw: int = 0) -> Stream:
    """Photos of one thing each, as the cameras of six years would take them, in vectors of the demo's model. draw: seed
    of the held-out photos."""
    x, y, names = _photographed(per_year, years)
    return _stream("photos", x, y, np.arange(len(y)), names, draw)


@cache
def _photographed(per_year: int, years: int) -> tuple[Any, Any, list[str]]:
    """Vectors, classes, names of classes."""
    import torch

    from driftline.curate.encoders.clip import Clip
    from driftline.pipelines.demo import draw

    names = sorted(draw.CONCEPTS)
    n = per_year * years
    y = rng_for(0, "things").integers(0, len(names), n)
    ages = np.arange(n) / (n - 1)
    pictures = [draw.photo([names[y[i]]], float(ages[i]), rng_for(0, "photo", i)) for i in range(n)]
    model = Clip(str(Path(draw.__file__).parent / "model"), device="cpu")
    batches = [torch.stack([model.prepare(p) for p in pictures[i : i + 200]]) for i in range(0, n, 200)]
    x = np.concatenate([np.asarray(model.images(batch), np.float32) for batch in batches])
    return x, y, names


def usda(data: Path, draw: int = 0) -> Stream:
    """6,562 watercolours of fruit, by year. draw: seed of the order within a year and of the held-out pictures."""
    with np.load(data / "usda" / "usda_mnv1_embeddings_u8.npz", allow_pickle=False) as found:
        x = found["embedding_u8"].astype(np.float32) * found["scale"]
        classes, y = np.unique(found["label"], return_inverse=True)
        return _stream("usda", x, y, found["year"], classes.tolist(), draw)


def over_draws(data: Path, draws: int) -> dict[str, str]:
    """Learner → near-future accuracy of its default in points, mean ± standard deviation over orders of equal times."""
    values: dict[str, list[float]] = {}
    for draw in range(draws):
        found = evaluate(usda(data, draw), "near-future", [*trained("near-future"), "blind", "majority"])
        for result in found["results"]:
            values.setdefault(result["learner"], []).append(100 * result["scores"]["near_future"]["mean"])
    return {name: f"{np.mean(of):.1f} ± {np.std(of, ddof=1):.1f}" for name, of in values.items()}


def banking77(data: Path) -> Stream:
    """10,003 sentences, in runs of one intent as a user's uploads come."""
    with np.load(data / "intent" / "banking77_minilm.npz", allow_pickle=False) as found:
        x, y = found["train_x"].astype(np.float32), found["train_y"].astype(np.int64)
    rng = rng_for(0, "runs")
    left = {int(c): rng.permutation(np.flatnonzero(y == c)).tolist() for c in np.unique(y)}
    order: list[int] = []
    label = -1
    while any(left.values()):
        if label < 0 or not left[label] or rng.random() > STAY:
            label = int(rng.choice([c for c in left if left[c]]))
        order.append(left[label].pop())
    return _stream("banking77", x[order], y[order], np.arange(len(y)), [str(c) for c in range(77)])


def _stream(name: str, x: Any, y: Any, time: Any, classes: list[str], seed: int = 0) -> Stream:
    ids = np.array([f"{i:05d}" for i in range(len(y))])
    data = Rows(name, Split(x, y.astype(np.int64), ids, time.astype(np.int64)), classes)
    return in_time_order(data, period=6, seed=seed)


def main() -> None:
    """All rows as JSON, or as a table for the docs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--streams", default="photos,usda,banking77")
    parser.add_argument("--learners", default="", help="joined by commas; default: all")
    parser.add_argument("--protocols", default="near-future,clear-iid")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--draws", type=int, default=0, help="usda alone: over so many orders of equal times")
    args = parser.parse_args()
    if args.draws:
        print(json.dumps(over_draws(args.data, args.draws), indent=1, ensure_ascii=False))
        return
    makers: dict[str, Callable[[], Stream]] = {
        "photos": photos, "usda": lambda: usda(args.data), "banking77": lambda: banking77(args.data)
    }  # fmt: skip
    rows = []
    for name in args.streams.split(","):
        stream = makers[name]()
        for protocol in args.protocols.split(","):
            learners = [n for n in trained(protocol) if n in args.learners.split(",") or not args.learners]
            rows += gaps(protocol, stream, learners)
    if args.markdown:
        print(table(rows))
    else:
        print(json.dumps({"rows": rows, "most_below": max(row["below"] for row in rows)}, indent=1))


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each learner and protocol: default / best of the grid, in points, by stream."""
    streams = list(dict.fromkeys(row["stream"] for row in rows))
    lines = [f"| protocol | learner | {' | '.join(streams)} |", "|---" * (2 + len(streams)) + "|"]
    for key in dict.fromkeys((row["protocol"], row["learner"]) for row in rows):
        of = {row["stream"]: row for row in rows if (row["protocol"], row["learner"]) == key}
        cells = [f"{100 * of[s]['default']:.1f} / {100 * of[s]['best']:.1f}" if s in of else "–" for s in streams]
        lines.append(f"| {key[0]} | `{key[1]}` | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
