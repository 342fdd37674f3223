"""What `evaluate` returns: the document of `driftline eval --json`, as a data frame and as a table in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from driftline.curate.core.notebook import Strong, table
from driftline.eval.protocol import OF_CLASSES, Document, primary_of, scores_of
from driftline.eval.reporting import spread
from driftline.eval.scoring.ranking import entry_of, ranked

if TYPE_CHECKING:
    import pandas as pd

PUBLISHED = "published"  # in place of a seed
COLUMNS = ("stream", "protocol", "learner", "score", "seed", "value")
CLASS_COLUMNS = ("stream", "protocol", "learner", "class", "n", "recall")


class Results(dict[str, Any]):
    """A dictionary with the keys "protocol", "stream", "results" and "skipped"."""

    @property
    def best(self) -> str | None:
        """The learner with the best primary score of its protocol; None without results."""
        return next((place.name for place in ranked(self) if place.best), None)

    def frame(self, by_class: bool = False) -> pd.DataFrame:
        """One row for each learner, score and seed, the best learner first, also of balanced accuracy and macro-F1;
        value: NaN for a score that the run never reached.

        by_class: one row for each learner and class in their place: test samples of a run (`n`) and mean `recall` over
        seeds, NaN for a class without tests."""
        import pandas as pd

        if by_class:
            of_classes = pd.DataFrame(class_records(self), columns=CLASS_COLUMNS)
            return of_classes.astype({"n": int, "recall": float})
        rows = [record for record in records(self) if record[-2] != PUBLISHED]
        return pd.DataFrame(rows, columns=COLUMNS).astype({"value": float})

    def _repr_html_(self) -> str:
        """The score table, the best learner first; the best primary score is bold."""
        scores, places = scores_of(self), ranked(self)
        primary = primary_of(self) if places else None
        rows: list[list[object]] = []
        for place in places:
            texts = [spread(score, place.result).replace(" ", "\N{NO-BREAK SPACE}") for score in scores]
            bold = [place.best and score == primary for score in scores]
            rows.append([place.name, *(Strong(t) if b else t for t, b in zip(texts, bold, strict=True))])
        seeds = max((len(place.result["seeds"]) for place in places), default=0)
        title = f"{self['protocol']} on {self['stream']['name']}"
        note = "Shares are in per cent." + (f" Mean ± standard deviation over {seeds} seeds." if seeds > 1 else "")
        skipped = [f"{entry['learner']} was skipped: {entry['because']}" for entry in self["skipped"]]
        return table(title, ["learner", *(score.label for score in scores)], rows, note if rows else "", *skipped)


def records(document: Document) -> Iterator[tuple[str, str, str, str, Any, float | None]]:
    """Stream, protocol, learner, score, seed and value of every run, the best learner first; the seed of a published
    mean is "published"."""
    for name, result, *_ in ranked(document):
        of_classes = {score.name: values for score in OF_CLASSES if (values := entry_of(score, result))}
        for score, values in (result["scores"] | of_classes).items():
            pairs = list(zip(result["seeds"], values["values"], strict=True))
            if score in result.get("published", {}):
                pairs.append((PUBLISHED, result["published"][score]["mean"]))
            for seed, value in pairs:
                yield document["stream"]["name"], document["protocol"], name, score, seed, value


def class_records(document: Document) -> Iterator[tuple[str, str, str, str, int, float | None]]:
    """Stream, protocol, learner, class, test samples and recall, the best learner first, the classes in their order."""
    names = document.get("classes", ())
    for name, result, *_ in ranked(document):
        about = document["stream"]["name"], document["protocol"], name
        of = result.get("classes", {"n": (), "recall": ()})
        for k, (n, share) in enumerate(zip(of["n"], of["recall"], strict=True)):
            yield *about, names[k] if k < len(names) else str(k), n, share
