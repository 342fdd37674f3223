"""Tables as the paper's 8 to 14: a row a network, a column a method, with its rules for bold and italic."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from markupsafe import Markup

from driftline.eval.plotting.cells import Strip, strips
from driftline.eval.plotting.charts import Figure, Picture, Section
from driftline.eval.protocol import Document
from driftline.eval.protocols.seq_to_final import published
from driftline.eval.reporting.markup import render, table
from driftline.eval.reporting.protocols import Page
from driftline.eval.scoring.ranking import distinct, labels, protocol_settings

NEAR = 0.02  # as good as the best, or as the oracle [paper, table 2]
FAR = 0.04  # ours and the paper's differ by more: marked
ENDS = ("baseline", "oracle")
NAMED = ("fidelity", "budget", "epochs")  # settings in every table's caption
ORDER = (
    "baseline", "erm", "irm", "dro", "ft", "lp-ft", "i-ft", "d-ft", "st-1", "st-b", "sft", "sft-linear",
    "sft-exponential", "seq-ewc", "sst-1", "sst-b", "jm", "jst-1", "jst-b", "oracle",
)  # fmt: skip
T = TypeVar("T")
Cells = dict[str, dict[str, float]]  # network → learner → accuracy
Groups = dict[str, list[Any]]  # what the numbers may be compared under → results


def whole(document: Document) -> list[Figure]:
    """A table of methods and networks for each set of settings beside the network."""
    return [_figure(text, results) for text, results in _groups(document).items()]


def _groups(document: Document) -> Groups:
    """Results by what their numbers may be compared under, but for the network. Learners that train a network of their
    own have a group of their own."""
    groups: dict[str, list[Any]] = {}
    settings_of: list[dict[str, Any]] = []
    for result in document["results"]:
        settings = {k: v for k, v in protocol_settings(document, result).items() if k != "network"}
        settings_of += [settings] * (settings not in settings_of)
    differ = (
        [k for k in settings_of[0] if any(s.get(k) != settings_of[0][k] for s in settings_of)] if settings_of else []
    )
    for result in document["results"]:
        settings = protocol_settings(document, result)
        text = "fidelity {fidelity}, budget {budget}, at most {epochs} epochs".format(**settings)
        text += "".join(f", {k}={settings[k]}" for k in differ if k not in NAMED)
        groups.setdefault(text + ", networks of their own" * ("rules" in settings), []).append(result)
    return groups


def note(document: Document) -> str:
    """Fidelity and budget: only numbers of the same ones may be compared."""
    kinds = sorted({(r["settings"]["fidelity"], r["settings"]["budget"]) for r in document["results"]})
    text = "; ".join(f"fidelity {fidelity}, budget {budget}" for fidelity, budget in kinds)
    shared = {
        r.get("told", {}).get("shared", {}).get("final_validation_in_earlier_training", 0) for r in document["results"]
    }
    if leaked := max(shared, default=0):
        text += f". {leaked} validation images of the last step are training images of an earlier step"
    return (
        f"Tested on the last step, hyper-parameters chosen on its validation data; {text}. “clean” augments and "
        "normalises, hides the last step from history and gives all methods equally many fits; “paper-code” does what "
        "the published numbers come from."
    )


def varies(document: Document) -> str:
    """What differs between seeds: the samples only if each has its own draw."""
    if all(r.get("told", {}).get("family") == document["stream"]["sha256"] for r in document["results"]):
        return "All of it: each seed has its own sample of the stream, its own initial weights and order of batches."
    held_out = any(r["settings"].get("val_share") for r in document["results"])
    drawn = "Initial weights, the order of batches" + (", and which training samples validate" if held_out else "")
    return (
        f"{drawn}. The samples are those of the stream: they are the same for every seed, and a deviation over "
        "seeds does not cover other samples. For that, evaluate several streams: stream compose --seeds 0-4."
    )


def cells_of(results: Sequence[Mapping[str, Any]]) -> Cells:
    """Mean accuracies over seeds, one for each result."""
    return _by_network(results, lambda result: float(result["scores"]["final"]["mean"]))


def _by_network(
    results: Sequence[Mapping[str, Any]], value: Callable[[Mapping[str, Any]], T | None]
) -> dict[str, dict[str, T]]:
    """Network → label of the learner among those of the network → value, where there is one. A learner that does not
    obey the protocol's network has its own."""
    rows: dict[str, list[Any]] = {}
    for result in results:
        rows.setdefault("own" if result.get("rules") else result["settings"].get("network", "–"), []).append(result)
    cells: dict[str, dict[str, T]] = {}
    for network, of_network in rows.items():
        pairs = ((name, value(result)) for name, result in zip(distinct(labels(of_network)), of_network, strict=True))
        cells[network] = {name: number for name, number in pairs if number is not None}
    return cells


def looks(row: Mapping[str, float]) -> dict[str, str]:
    """Learner → "b", "i", "bi" or "": italic if within .02 of the oracle or better; bold if italic or near the best.

    >>> looks({"ft": 0.60, "erm": 0.50, "lp-ft": 0.65, "oracle": 0.66})
    {'ft': '', 'erm': '', 'lp-ft': 'bi'}
    """
    oracle = row.get("oracle")
    others = {name: value for name, value in row.items() if name != "oracle"}
    best = max(others.values(), default=0.0)
    marks = {}
    for name, value in others.items():
        italic = oracle is not None and value >= oracle - NEAR - 1e-9
        marks[name] = ("b" if italic or value >= best - NEAR - 1e-9 else "") + ("i" if italic else "")
    return marks


def mean_looks(cells: Cells, names: Sequence[str]) -> dict[str, str]:
    """The same for means over networks, as tables 8 to 13 have it: the mean difference to the oracle, or to the best of
    each network, is less than its standard deviation below zero. Networks that lack a learner are left out."""
    marks = {}
    for name in names:
        if name == "oracle":
            continue
        rows = [row for row in cells.values() if name in row]
        to_oracle = [row[name] - row["oracle"] for row in rows if "oracle" in row]
        to_best = [row[name] - max(v for n, v in row.items() if n != "oracle") for row in rows]
        italic = bool(to_oracle) and np.mean(to_oracle) >= -np.std(to_oracle) - 1e-9
        bold = italic or np.mean(to_best) >= -np.std(to_best) - 1e-9
        marks[name] = ("b" if bold else "") + ("i" if italic else "")
    return marks


def _figure(text: str, results: Sequence[Any]) -> Figure:
    cells, theirs = cells_of(results), printed_of(results)
    names = _names(cells)
    rows: list[list[Markup | str]] = []
    for net in sorted(cells):
        look = looks(cells[net])
        rows.append([net, *(_cell(cells[net].get(n), look.get(n, ""), theirs[net].get(n)) for n in names)])
    if len(cells) > 1:
        look = mean_looks(cells, names)
        columns = {n: _column(cells, n) for n in names}
        papers = {n: _column(theirs, n) for n in names}
        count = {n: "" if len(columns[n]) == len(cells) else f" of {len(columns[n])}" for n in names}
        same = {n: _mean(papers[n]) if len(papers[n]) == len(columns[n]) else None for n in names}
        rows.append(["mean", *(_cell(_mean(columns[n]), look.get(n, ""), same[n], count[n]) for n in names)])
        rows.append(["sd", *(_cell(float(np.std(columns[n])) if columns[n] else None, "", None) for n in names)])
    fits = _by_network(results, lambda r: r.get("learner_facts", {}).get("fits"))
    rows.append(["fits", *(_numbers({of[n] for of in fits.values() if n in of}) for n in names)])
    caption = (
        f"Accuracy on the last step; {text}. "
        "Fits: configurations that a method tried. Italic: within .02 of the oracle or better. Bold: that, or within "
        ".02 of the network's best. Means of one-layer side modules (-1) leave ConvNets out, as the paper's do."
    )
    if any(theirs.values()):
        same_samples = all(r.get("told", {}).get("draws") == "published" for r in results)
        caption += (
            f" Grey: the paper's, one seed, {'same samples' if same_samples else 'other samples of the same sizes'}; "
            "▲▼ where ours is more than .04 above or below. Its sft is the best test of three schedules."
        )
    return Figure("Methods by network", caption, Picture(table(["", *names], rows)))


def across(documents: Sequence[Document]) -> Section | None:
    """As the paper's table 2: a row for each sequence, means over networks, with table 2's own rule for bold and
    italic: within .02 of the best mean, or of the oracle's. None if every sequence has one network."""
    rows: list[tuple[str, Cells, Cells]] = []
    for document in documents:
        for text, results in _groups(document).items():
            cells, theirs = cells_of(results), printed_of(results)
            if len(cells) > 1:
                name = f"{document['stream']['name']}, {len(cells)} networks, {text}"
                rows.append((name, cells, theirs))
    if not rows:
        return None
    names = _names({f"{i} {net}": row for i, (_, cells, _) in enumerate(rows) for net, row in cells.items()})
    lines: list[list[Markup | str]] = []
    for name, cells, theirs in rows:
        ours = {n: _column(cells, n) for n in names}
        paper = {n: _column(theirs, n) for n in names}
        look = looks({n: float(np.mean(values)) for n, values in ours.items() if values})
        printed = {n: _mean(paper[n]) if len(paper[n]) == len(ours[n]) else None for n in names}
        lines.append([name, *(_cell(_mean(ours[n]), look.get(n, ""), printed[n]) for n in names)])
    text = (
        "Means over networks; one-layer side modules (-1) without ConvNets. Italic: within .02 of the oracle's mean or "
        "better. Bold: that, or within .02 of the best mean. Grey: the paper's mean over the same networks."
    )
    content = render("soft", text) + table(["sequence", *names], lines)
    return Section("across-seq-to-final", "Means over networks, seq-to-final", content)


def printed_of(results: Sequence[Mapping[str, Any]]) -> Cells:
    """What the paper printed beside each of `cells_of`."""
    return _by_network(results, published.value)


def _column(cells: Cells, name: str) -> list[float]:
    """Accuracies of a learner on the networks that its mean is over."""
    return [
        row[name] for net, row in cells.items() if name in row and published.counts_in_mean(net, name.partition(",")[0])
    ]


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _names(cells: Cells) -> list[str]:
    """Learners in the paper's order."""
    return sorted({n for row in cells.values() for n in row}, key=lambda n: (_place(n), n))


def _numbers(numbers: set[int]) -> str:
    """One number, or the smallest and the largest."""
    return "–".join(str(number) for number in sorted({min(numbers), max(numbers)})) if numbers else "–"


def _place(name: str) -> int:
    plain = name.partition("(")[0].partition(",")[0]
    return ORDER.index(plain) if plain in ORDER else len(ORDER) - 1


def _cell(ours: float | None, look: str, paper: float | None, of: str = "") -> Markup | str:
    """of: how many networks a mean is over, where it is not all."""
    if ours is None:
        return f"–{of}"
    mark = "" if paper is None or abs(ours - paper) <= FAR + 1e-9 else " ▲" if ours > paper else " ▼"
    theirs = "" if paper is None else f"{paper:.2f}".removeprefix("0")
    return render("method", f"{ours:.3f}".lstrip("0"), look, mark, theirs, of)


def first(document: Document) -> Figure | None:
    """Final accuracy of each method between that of the baseline and of the oracle; None without another method."""
    means = {r["label"]: r["scores"]["final"] for r in document["results"]}
    marks = {name: means[name]["mean"] for name in ENDS if name in means}
    rows = {
        name: Strip(values["values"], values["mean"], float("nan"), float("nan"))
        for name, values in means.items() if name not in ENDS
    }  # fmt: skip
    if not rows:
        return None
    caption = (
        "Accuracy on the last step, mean over seeds; grey: single seeds. The baseline trains on the last step alone, "
        "the oracle on as many samples of it as all steps have together."
    )
    return Figure("Between baseline and oracle", caption, strips(rows, "final accuracy (%)", marks, 100))


PAGE = Page(
    measures_title="Accuracy on other steps, and how sure the differences are",
    whole=whole, note=note, first=first, varies=varies, across=across,
)  # fmt: skip
