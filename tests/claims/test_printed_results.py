"""Each number that a report prints or exports is counted again here, from the answers on disk: nothing of scoring or
reporting is imported for the counting. Classes, tests and steps are of different sizes, so that no two numbers are
equal by chance.
"""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest

from driftline.eval import predictions
from driftline.eval.reporting.exports import scores_tex
from driftline.eval.reporting.report import results_of, write
from driftline.eval.rows import groups
from driftline.eval.run import evaluate
from driftline.eval.scoring.comparing import compare
from driftline.stream_builder.stream import Split, Step, Stream

Floats = npt.NDArray[np.float64]
YEAR = 31_556_952
CLASSES = ["zebra", "ant", "mole"]
TESTS = ((41, 61, 23), (29, 53, 71), (37, 19, 67), (59, 43, 31))  # of each step and class
TRAINS = ((47, 29, 17), (23, 31, 37), (43, 11, 19), (13, 41, 53))
AT = (0, 3, 5, 10)  # years
SEEDS = (3, 8, 9)
HEAD = "<h3>How much, and why</h3>"  # of the table of ageing
LEARNERS = ("nearest-mean", "nap(epochs=50)", "majority")
SCORES: dict[str, Callable[[Floats], Any]] = {
    "in_domain": lambda r: np.mean([r[i, i] for i in range(4)]),
    "next_domain": lambda r: np.mean([r[i, i + 1] for i in range(3)]),
    "accuracy": lambda r: np.mean([r[i, j] for i in range(4) for j in range(i + 1)]),
    "backward": lambda r: np.mean([r[i, j] for i in range(4) for j in range(i)]),
    "forward": lambda r: np.mean([r[i, j] for i in range(4) for j in range(i + 1, 4)]),
}


def _stream() -> Stream:
    rng, steps = np.random.default_rng(5), []
    means = rng.normal(0, 1.2, (3, 5))
    for t, years in enumerate(AT):
        splits = {}
        for name, sizes in (("train", TRAINS[t]), ("test", TESTS[t])):
            y = rng.permutation(np.repeat(np.arange(3), sizes))
            now = means + years / 18 * (np.roll(means, 1, 0) - means)  # each class becomes another
            x = (now[y] + rng.normal(size=(len(y), 5))).astype(np.float32)
            ids = np.array([f"{t}-{name}-{i}" for i in range(len(y))])
            splits[name] = Split(x, y, ids, np.full(len(y), YEAR // 2 + years * YEAR))
        steps.append(Step(t, str(t), splits))
    return Stream("primes", steps, CLASSES)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """runs/ and out/, the report."""
    folder = tmp_path_factory.mktemp("printed")
    stream = _stream().save(folder / "s")
    evaluate(stream, "clear-iid", LEARNERS, SEEDS, out=folder / "runs")
    write(results_of([folder / "runs"], [stream]), folder / "out", streams=[stream])
    return folder


@pytest.fixture(scope="module")
def counts(made: Path) -> dict[str, dict[int, npt.NDArray[np.int64]]]:
    """Learner → seed → (2, T, T, C) right answers and samples: trained to, tested on, class; from the answers."""
    found: dict[str, dict[int, npt.NDArray[np.int64]]] = {}
    truth = np.concatenate([s.splits[name].y for s in _stream().steps for name in ("train", "test")])
    for record in (made / "runs").rglob("run.json"):
        about = json.loads(record.read_text())
        rows = pq.read_table(record.parent / "rows.parquet").to_pylist()
        cells = np.zeros((2, 4, 4, 3), np.int64)
        for answer in pq.read_table(record.parent / "predictions.parquet").to_pylist():
            row, label = rows[answer["row"]], int(truth[answer["sample"]])
            if row["learned_to"] >= 0:
                at = row["learned_to"], int(row["tested_on"]), label
                cells[0][at] += answer["predicted"] == label
                cells[1][at] += 1
        assert (cells[1] == np.array(TESTS)[None]).all(), "every model is tested on every test"
        found.setdefault(about["learner"], {})[about["seed"]] = cells
    return found


def _matrix(cells: npt.NDArray[Any]) -> Floats:
    return np.asarray(cells[0].sum(-1) / cells[1].sum(-1))


def _page(made: Path) -> str:
    (page,) = (p for p in (made / "out").rglob("*.html") if HEAD in p.read_text())
    return page.read_text()


def test_the_csv_has_each_score_of_each_seed(made: Path, counts: Any) -> None:
    lines = list(csv.DictReader((made / "out" / "scores.csv").open()))
    of_classes = [line for line in lines if line["score"] not in SCORES]
    lines = [line for line in lines if line["score"] in SCORES]
    assert len(lines) == len(LEARNERS) * len(SEEDS) * len(SCORES)
    for line in lines:
        r = _matrix(counts[line["learner"]][int(line["seed"])])
        assert float(line["value"]) == pytest.approx(SCORES[line["score"]](r), abs=1e-9)
    assert {line["score"] for line in of_classes} == {"balanced_accuracy", "macro_f1"}
    for line in of_classes:
        if line["score"] == "balanced_accuracy":
            right, n = counts[line["learner"]][int(line["seed"])][:, range(3), range(1, 4)].sum(1)
            assert float(line["value"]) == pytest.approx((right / n).mean(), abs=1e-9)


def test_latex_and_page_have_mean_and_deviation_of_the_seeds(made: Path, counts: Any) -> None:
    tex, page = (made / "out" / "scores.tex").read_text(), re.sub(r"<[^>]+>|\s", "", _page(made))
    for learner, of_seeds in counts.items():
        values = {name: [100 * score(_matrix(c)) for c in of_seeds.values()] for name, score in SCORES.items()}
        printed = [rf"{np.mean(v):.1f} \pm {np.std(v):.1f}" for v in values.values()]
        (line,) = (line for line in tex.splitlines() if line.startswith(f"{learner} &"))
        assert re.findall(r"\d+\.\d \\pm \d+\.\d", line) == printed
        assert all(text.replace(r" \pm ", "±") in page for text in printed)


def test_latex_has_published_means_and_deviations_in_per_cent(made: Path) -> None:
    (document,) = json.loads((made / "out" / "results.json").read_text())
    document["results"][0]["published"] = {"in_domain": {"mean": 0.617, "sd": 0.013}, "forward": {"mean": 0.5, "sd": 0}}
    (line,) = (line for line in scores_tex([document]).splitlines() if "published" in line)
    assert line == r"\quad published & $61.7 \pm 1.3$ & -- & -- & -- & $50.0 \pm 0.0$ \\"


def _chance(i: int, j: int) -> float:
    """Of the class that most training samples up to step i have, on step j."""
    return TESTS[j][int(np.sum(TRAINS[: i + 1], 0).argmax())] / sum(TESTS[j])


def _models(learner: str) -> int:
    """How many models a learner has: napping never learns again."""
    return 1 if learner.startswith("nap") else 4


def _half_life(r: Floats, models: int) -> float | None:
    """Years until the models that are tested so late have half of what they knew above chance, on a line that never
    rises; None: not reached."""
    from sklearn.isotonic import IsotonicRegression

    left, ages = list[float](), []
    for k in range(4):
        pairs = [(i, i + k) for i in range(min(4 - k, models))]
        now = sum(r[i, j] - _chance(i, j) for i, j in pairs)
        left.append(now / sum(r[i, i] - _chance(i, i) for i, _ in pairs))
        ages.append(np.mean([AT[j] - AT[i] for i, j in pairs]))
    left = IsotonicRegression(increasing=False).fit_transform(range(4), left).tolist()
    for k in range(1, 4):
        if left[k] <= 0.5:
            return float(ages[k - 1] + (ages[k] - ages[k - 1]) * (left[k - 1] - 0.5) / (left[k - 1] - left[k]))
    return None


def test_half_lives_are_those_of_a_loop(made: Path, counts: Any) -> None:
    (document,) = json.loads((made / "out" / "results.json").read_text())
    seen = 0
    for result, facts in zip(document["results"], document["ageing"]["results"], strict=True):
        name, half = result["learner"], facts and facts["half_life"]
        if not half or half["why"] or name == "majority":
            continue
        expected = _half_life(_matrix(sum(counts[name].values())), _models(name))
        seen += expected is not None
        assert half["value"] == (None if expected is None else pytest.approx(expected, abs=1e-4)), name
    assert seen >= 1


def _never_again(cells: npt.NDArray[Any]) -> list[float | str]:
    """The same of one model, whose tests have no newer one: on its first test and two steps later."""
    r = _matrix(cells)[0]
    return [100 * r[0], 100 * r[2], "not known", "–"]


def _ageing(cells: npt.NDArray[Any]) -> list[float | str]:
    """Points: accuracy when newly trained and two steps later on the same tests; their difference; a year."""
    r = _matrix(cells)
    pairs = [(i, i + 2) for i in range(2)]  # at the oldest age with half as many pairs as the youngest
    fresh = np.mean([r[j, j] for _, j in pairs])
    older = np.mean([r[j, j] - r[i, j] for i, j in pairs])
    tests = [(i, j) for i in range(4) for j in range(i, 4)]
    design = np.array([[*(float(j == k) for k in range(4)), AT[j] - AT[i]] for i, j in tests])  # a level for each test
    loss = -np.linalg.lstsq(design, np.array([r[i, j] for i, j in tests]), rcond=None)[0][-1]
    return [100 * float(v) for v in (fresh, fresh - older, older, loss)]


def test_the_table_of_ageing_says_how_much(made: Path, counts: Any) -> None:
    page = _page(made)
    table = page[page.index(HEAD) :]
    for learner in ("nearest-mean", "nap(epochs=50)"):
        row = table[table.index(f"<th scope='row'>{learner}</th>") :].partition("</tr>")[0]
        values = [cell.replace("−", "-") for cell in re.findall(r"<td>(.*?)(?:<br>|</td>)", row)]
        printed = [value if value in ("not known", "–") else float(value) for value in values]
        cells = sum(counts[learner].values())
        expected = _never_again(cells) if _models(learner) == 1 else _ageing(cells)
        for value, number in zip(printed, expected, strict=True):
            assert value == (number if isinstance(number, str) else pytest.approx(number, abs=0.0501))


def test_ps_are_adjusted_for_all_pairs(made: Path) -> None:
    """Holm: the smallest of three times 3, the next times 2, and none below the one before."""
    found = compare(groups(predictions.find([made / "runs"])[0]))
    pairs = sorted((found.p_score[i, j], i, j) for i, j in ((0, 1), (0, 2), (1, 2)))
    highest = 0.0
    for rank, (p, i, j) in enumerate(pairs):
        highest = max(highest, min(1.0, p * (3 - rank)))
        assert found.adjusted[i, j] == found.adjusted[j, i] == pytest.approx(highest)
    assert found.adjusted[pairs[0][1:]] > pairs[0][0]
