"""The log of a model in service: the worked example, what is refused, what is marked, and what simulation shows."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import binomtest
from support.console import driftline
from support.helpers import drifting
from support.logs import write_logs

import driftline as dl
from driftline.curate.core.errors import DriftlineError
from driftline.eval import predictions
from driftline.eval.logs.reading import read_log
from driftline.eval.logs.trend import half_life, line
from driftline.eval.run import evaluate
from driftline.eval.scoring.ageing import ageing
from driftline.eval.scoring.bands import wilson
from driftline.stream_builder.stream import Stream

ACCURACY = {"v1": {1: 0.90, 2: 0.87, 3: 0.84, 4: 0.78}, "v2": {4: 0.88, 5: 0.85, 6: 0.82}}
VERSIONS = {"v1": "2026-01-01", "v2": "2026-04-01"}
Rows = list[dict[str, Any]]


def rows_of(version: str, month: int, accuracy: float, n: int = 1000, **more: Any) -> Rows:
    """Predictions of four equally frequent classes; so many of each are right."""
    return [
        {"time": f"2026-{month:02d}-{1 + i % 28:02d}T12:00:00", "id": f"{version}-{month}-{i}", "version": version,
         "prediction": str(i % 4 if i < round(accuracy * n) else (i + 1) % 4), "label": str(i % 4), **more}
        for i in range(n)
    ]  # fmt: skip


def example(without: tuple[str, int] | None = None) -> Rows:
    """The worked example of monitoring.md, section 6."""
    cells = [(v, m, a) for v, months in ACCURACY.items() for m, a in months.items() if (v, m) != without]
    return [row for cell in cells for row in rows_of(*cell)]


def aged(rows: Rows, **more: Any) -> dict[str, Any]:
    return dl.age(pd.DataFrame(rows), **({"versions": VERSIONS} | more)).json()


def said(rows: Rows, **more: Any) -> str:
    """The sentences of the terminal."""
    return " ".join(dl.age(pd.DataFrame(rows), versions=VERSIONS, **more).json()["answer"]["sentences"])


def test_the_worked_example_comes_out_to_the_last_digit() -> None:
    result = aged(example(), cost_error=1, cost_retrain=150)
    last = result["cells"][3]
    assert (last["version"], last["from"], last["n"], last["age_days"]) == ("v1", "2026-04-01", 1000, 90)
    assert (round(last["low"], 4), round(last["high"], 4)) == (0.7533, 0.8046)
    assert result["slope_per_period"]["value"] == pytest.approx(-0.255 / 7, abs=1e-12)
    assert result["retained"] == pytest.approx({"1": 1.22 / 1.28, "2": 1.16 / 1.28, "3": 0.53 / 0.65})
    assert result["half_life_days"] is None
    assert "above chance was not lost within 3 months; if the trend continues, after" in said(example())
    assert result["split"] == pytest.approx({"harder": 0.02, "older": 0.10})
    july = result["forecast"][0]
    assert (july["version"], july["from"], july["extrapolated"]) == ("v2", "2026-07-01", False)
    assert july["value"] == pytest.approx(0.7771428571)
    assert [july["low"], july["high"]] == pytest.approx([0.73951, 0.81477], abs=0.003)  # of Student's t
    assert result["staleness"]["value"] == pytest.approx(0.10)
    assert result["forecast"][1]["extrapolated"]
    assert result["advice"]["retrain"] is True
    assert "pays back in 1.3 months, less than the forecast's 3" in result["advice"]["because"]
    assert result["advice"]["payback_periods"] == pytest.approx(0.15 / (0.89 - 0.7771428571), abs=1e-9)
    assert result["counts"] == {"read": 7000, "labelled": 7000, "pending": 0, "duplicates": 0}


def test_without_the_overlap_the_split_is_refused_with_its_reason() -> None:
    result = aged(example(without=("v1", 4)))
    assert result["split"] is None
    assert "an older model and harder data look the same. Versions follow each other; let" in result["split_because"]


def test_versions_that_overlap_at_other_ages_do_not_follow_each_other() -> None:
    result = aged(example(without=("v2", 4)) + rows_of("v1", 5, 0.7))
    assert result["split"] is None
    assert "Versions overlap, but the newer one was older at its first test" in result["split_because"]


def test_labels_that_are_two_months_late_end_the_report_of_july_in_april() -> None:
    rows = [row | {"label_time": str(pd.Timestamp(row["time"]) + pd.DateOffset(months=2))} for row in example()]
    result = aged(rows, until="2026-07-01")
    assert {cell["from"] for cell in result["cells"]} == {f"2026-0{month}-01" for month in (1, 2, 3, 4)}
    assert {gap["because"] for gap in result["gaps"]} == {"labels are still to come"}
    assert result["counts"]["pending"] == sum(gap["predictions"] - gap["n"] for gap in result["gaps"])


def test_doubled_rows_say_no_more_and_doubled_ids_do() -> None:
    rows = example()
    once, again, twice = aged(rows), aged(rows + rows), aged(rows + [row | {"id": row["id"] + "b"} for row in rows])
    assert again["cells"] == once["cells"]
    assert again["counts"]["duplicates"] == 7000
    width = [result["cells"][0]["high"] - result["cells"][0]["low"] for result in (once, twice)]
    assert width[1] == pytest.approx(width[0] / 2**0.5, rel=0.02)


def test_of_several_rows_of_one_prediction_the_last_counts() -> None:
    log = read_log([[
        {"time": "2026-01-01", "id": "a", "version": "v", "prediction": "cat"},
        {"time": "2026-01-01", "id": "a", "version": "v", "prediction": "dog"},
        {"time": "2026-01-01", "id": "a", "version": "w", "prediction": "cat"},
    ]])  # fmt: skip
    assert [log.classes[c] for c in log.prediction] == ["dog", "cat"]


def test_few_labels_are_no_cell_and_are_counted() -> None:
    rows = example() + [row for row in rows_of("v2", 7, 1.0, 40) if int(row["id"].rsplit("-", 1)[1]) < 3]
    result = aged(rows)
    assert [(gap["n"], gap["because"]) for gap in result["gaps"]] == [(3, "too few labels")]
    assert "fewer than 10 labels: 1." in " ".join(result["notes"])


def test_a_version_that_answers_one_class_has_a_number() -> None:
    result = aged([row | {"prediction": "0"} for row in example()])
    assert {cell["accuracy"] for cell in result["cells"]} == {0.25}
    assert result["half_life_days"] is None


def test_wilson_is_scipys() -> None:
    for right, n in ((0, 12), (780, 1000), (50, 50)):
        of = binomtest(right, n).proportion_ci(method="wilson")
        assert [float(end) for end in wilson(np.array(right / n), np.array(float(n)))] == pytest.approx(
            [of.low, of.high]
        )


def test_the_line_is_least_squares_where_cells_weigh_the_same() -> None:
    rng = np.random.default_rng(0)
    version, lag = np.repeat([0, 1], 5), np.tile(np.arange(5), 2)
    accuracy = 0.8 + 0.03 * version - 0.02 * lag + 0.001 * rng.standard_normal(10)
    fit = line(version, np.arange(10), lag, accuracy, np.full(10, 50.0))
    design = np.column_stack([version == 0, version == 1, lag]).astype(float)
    assert [*(level for level, _ in fit.levels.values()), float(fit.slope.value)] == pytest.approx(
        np.linalg.lstsq(design, accuracy, rcond=None)[0]
    )


def test_months_that_differ_widen_the_interval_and_labels_of_one_customer_do() -> None:
    rng = np.random.default_rng(1)
    rows = example()
    plain = aged(rows)
    bad = set(rng.choice(50, 5, replace=False).tolist())
    grouped = [row | {"group": f"g{i % 50}"} for i, row in enumerate(rows)]
    alike = [row | {"prediction": "wrong"} if int(row["group"][1:]) in bad else row for row in grouped]
    same, wide = aged(grouped), aged(alike)
    assert same["cells"][0]["low"] == pytest.approx(plain["cells"][0]["low"], abs=0.004)
    assert wide["cells"][0]["high"] - wide["cells"][0]["low"] > 2 * (
        plain["cells"][0]["high"] - plain["cells"][0]["low"]
    )


def test_labels_come_from_another_file_and_the_latest_of_an_id_counts(tmp_path: Path) -> None:
    rows = example()
    late = pa.table({"id": [row["id"] for row in rows] + ["v1-1-0", "nobody"],
                     "label": [row["label"] for row in rows] + ["3", "3"],
                     "label_time": [*(row["time"] for row in rows), "2026-01-02", "2026-01-02"]})  # fmt: skip
    pq.write_table(late, tmp_path / "labels.parquet")
    result = aged([{k: v for k, v in row.items() if k != "label"} for row in rows], labels=tmp_path / "labels.parquet")
    assert result["cells"][0]["accuracy"] == 0.899
    assert result["counts"]["unknown_ids"] == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: [row | {"time": None} for row in rows], "None of 7,000 rows has a time"),
        (lambda rows: pd.DataFrame(rows)[:0], "None of 0 rows has a time"),
        (lambda rows: [row | {"label": None} for row in rows], "No version has 10 labels in a complete period"),
        (lambda rows: [row | {"score": 87.0} for row in rows], "7,000 scores lie outside 0 … 1, the first is 87"),
        (lambda rows: [row | {"time": row["time"] + "Z" * (k % 2)} for k, row in enumerate(rows)], "Give all a zone"),
        (lambda rows: [{k: v for k, v in row.items() if k != "version"} for row in rows], "has no column 'version'"),
    ],
)  # fmt: skip
def test_bad_logs_get_one_sentence(change: Callable[[Rows], Any], words: str) -> None:
    with pytest.raises(DriftlineError, match=words):
        aged(change(example()))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"versions": [{"version": "v1", "trained_to": "soon"}]}, "trained_to of version 'v1' is 'soon'"),
        ({"versions": [{"version": "v1"}, {"version": "v1"}]}, "has the version 'v1' twice"),
        ({"labels": pd.DataFrame({"id": ["x"], "label": ["1"]})}, "None of the 1 ids of the labels is in the log"),
        ({"columns": {"tmie": "ts"}}, "Did you mean 'time'"),
        ({"columns": {"score": "confidence"}}, "has no column 'confidence'"),
        ({"until": "some day"}, "--until is 'some day'"),
        ({"cost_error": 1}, "Only one of --cost-error and --cost-retrain"),
        ({"period": "fortnight"}, "--period is 'fortnight'"),
    ],
)  # fmt: skip
def test_bad_options_get_one_sentence(more: dict[str, Any], words: str) -> None:
    with pytest.raises(DriftlineError, match=words):
        aged(example(), **more)


def test_a_version_without_labels_has_a_row_of_the_page(tmp_path: Path) -> None:
    rows = [row | {"label": None} if row["version"] == "v2" else row for row in example()]
    page = dl.age(rows, versions=VERSIONS).page(tmp_path / "page").read_text()
    assert page.count("'row'>v2</th>") == 1, "versions side by side"


def test_what_is_missing_is_said_and_nothing_is_drawn_through_it() -> None:
    rows = [*rows_of("v1", 1, 0.9), *rows_of("v1", 4, 0.8), *rows_of("old", 1, 0.7, 30)]
    result = aged(rows, versions={"v1": "2026-03-01", "never": "2026-01-01"}, period="month")
    notes = " ".join(result["notes"])
    assert "No date of training is known of old" in notes
    assert "The log has no prediction of never" in notes
    assert "1,000 predictions are older than the training data of their version" in notes
    assert result["forecast"] == []
    assert result["slope_per_period"]["value"] is None


def test_rows_in_any_order_and_form_say_the_same(tmp_path: Path) -> None:
    rows = example()
    mixed = [rows[k] for k in np.random.default_rng(0).permutation(len(rows))]
    pd.DataFrame(mixed).to_csv(tmp_path / "log.csv", index=False)
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in mixed))
    pd.DataFrame(mixed).assign(time=lambda t: pd.to_datetime(t["time"])).to_parquet(tmp_path / "log.parquet")
    first = aged(rows)
    for name in ("log.csv", "log.jsonl", "log.parquet"):
        assert dl.age(tmp_path / name, versions=VERSIONS).json() == first


def test_the_command_writes_a_page_and_exits_with_4_where_a_limit_is_crossed(tmp_path: Path) -> None:
    pd.DataFrame(example()).to_parquet(tmp_path / "log.parquet")
    (tmp_path / "versions.csv").write_text("version,trained_to\nv1,2026-01\nv2,2026-04\n")
    words = ("age", "log.parquet", "--versions", "versions.csv", "--out", "page", "--json")
    done = driftline(*words, "--alarm", "accuracy<0.9", here=tmp_path)
    assert done.returncode == 4, done.stderr
    assert json.loads(done.stdout)["alarm"]["crossed"] is True
    page = (tmp_path / "page/index.html").read_text()
    assert "<strong>fell 3.6 points per month</strong> (2.6 to 4.7)" in page
    assert "Older versions are behind newer ones in the same month: staleness" in page
    assert "<strong>10.0 points behind</strong> a newer one in the same month (6.7 to 13.3)" in page
    assert (
        "Each later point adds the mean change of those versions that were also tested at its age: 1 to 2 versions."
        in page
    )
    assert (
        driftline(*words, "--alarm", "accuracy<0.8", "--columns", "{id: id}", here=tmp_path).returncode == 0
    )  # 0.82, but up to 0.843


def test_a_benchmark_as_a_log_has_the_half_life_of_its_report(tmp_path: Path) -> None:
    stream = drifting(steps=8, n=240, drift=0.35, noise=1.4)
    steps = []
    for step in stream.steps:
        start = np.datetime64(f"{2010 + step.index}", "s").astype(np.int64)
        splits = {
            name: replace(split, time=start + np.arange(len(split)) * 86_400) for name, split in step.splits.items()
        }
        steps.append(replace(step, name=str(2010 + step.index), splits=splits))
    replace(stream, steps=steps).save(tmp_path / "stream")
    stream = Stream.load(tmp_path / "stream")
    evaluate(stream, "clear-iid", ["nap", "scratch"], out=tmp_path / "runs")
    runs, _ = predictions.find([tmp_path / "runs"])
    write_logs(runs, stream, tmp_path / "log")
    for run in runs:
        report = ageing([run], stream)[0]
        folder = tmp_path / "log" / str(run.about["learner"])
        result = dl.age(folder / "seed-0.parquet", versions=folder / "versions.csv", period="year")
        half = half_life(result.cells, result.curve, result.fit, np.random.default_rng(0))
        assert float(half.value) == pytest.approx(report.half_life.value, rel=1e-2)
        assert half.low <= report.half_life.value <= half.high


@pytest.mark.proof("statistics")
def test_intervals_hold_the_truth_in_simulated_logs() -> None:
    rng, holds, ageing = np.random.default_rng(0), [], []
    version, lag = np.repeat([0, 1], 6), np.tile(np.arange(6), 2)
    period = lag + 4 * version
    for _ in range(400):
        shared = rng.normal(0, 0.01, 10)[period]
        for slope, out in ((-0.02, holds), (0.0, ageing)):
            n = rng.integers(150, 800, 12)
            accuracy = rng.binomial(n, 0.88 + slope * lag + shared) / n
            fit = line(version, period, lag, accuracy, n.astype(np.float64))
            out.append(fit.slope.low <= slope <= fit.slope.high)
    assert np.mean(holds) >= 0.93
    assert 1 - np.mean(ageing) <= 0.07


@pytest.mark.proof("statistics")
def test_logs_of_many_years_with_few_labels_a_month_are_cut_into_years() -> None:
    years = [row | {"time": f"{2000 + year}{row['time'][4:]}", "id": f"{year}-{row['id']}"}
             for year in range(6) for month in range(1, 13) for row in rows_of("v1", month, 0.8, 5)]  # fmt: skip
    assert aged(years, versions={"v1": "2000"})["period"] == "year"
    numbers = [row | {"time": int(row["time"][:4])} for row in years]
    assert aged(numbers, versions={"v1": "2000"}, period="year")["cells"][0]["from"] == "2000-01-01"
    twice = [row | {"id": f"{k}-{row['id']}"} for k in range(2) for row in years]
    assert aged(twice, versions={"v1": "2000"})["period"] == "month"


def test_a_fall_of_five_points_is_named_within_the_labels_that_theory_asks_for() -> None:
    """One share against a known one, level 5 %, power 80 % [Fleiss, Levin & Paik 2003, eq. 2.14]; an alarm is
    `accuracy<0.9`, of which the whole interval must lie below."""
    before, after, normal, rng = 0.9, 0.85, NormalDist(), np.random.default_rng(0)
    parts = [normal.inv_cdf(q) * (p * (1 - p)) ** 0.5 for q, p in ((0.975, before), (0.8, after))]
    theory = (sum(parts) / (before - after)) ** 2
    assert round(theory) == 316
    for times, enough in ((0.8, False), (1.2, True)):
        n = round(times * theory)
        named = wilson(rng.binomial(n, after, 4000) / n, np.full(4000, float(n)))[1] < before
        assert (named.mean() >= 0.8) == enough


@pytest.mark.shared(twin="tests/eval/test_service_log.py::test_rows_in_any_order_and_form_say_the_same")
def test_the_log_of_another_librarys_model_goes_through_by_the_guide_alone(shared: Path, tmp_path: Path) -> None:
    """Two models of scikit-learn on the USDA pictures, a table with names of its own and years for times."""
    from sklearn.linear_model import RidgeClassifier

    with np.load(shared / "usda" / "usda_mnv1_embeddings_u8.npz", allow_pickle=False) as arrays:
        x, fruit, year = arrays["embedding_u8"][:, ::8].astype(np.float32), arrays["label"].astype(str), arrays["year"]
    parts = []
    for name, last in (("spring", 1904), ("summer", 1911)):
        later = np.flatnonzero(year > last)
        model = RidgeClassifier(1e4).fit(x[year <= last], fruit[year <= last])
        margins = np.sort(model.decision_function(x[later]), 1)
        columns = {"taken": year[later], "picture": later, "model": name, "answer": model.predict(x[later])}
        parts.append(pd.DataFrame(columns | {"sure": 1 / (1 + np.exp(-margins[:, -1])), "truth": fruit[later]}))
    pd.concat(parts).to_csv(tmp_path / "log.csv", index=False)
    (tmp_path / "versions.csv").write_text("version,trained_to\nspring,1904\nsummer,1911\n")
    names = "{time: taken, id: picture, version: model, prediction: answer, score: sure, label: truth}"
    done = driftline("age", "log.csv", "--versions", "versions.csv", "--columns", names, "--json", here=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["period"] == "year"
    assert result["counts"]["read"] == result["counts"]["labelled"] == sum(map(len, parts))
    of_1918 = {cell["version"]: cell for cell in result["cells"] if cell["from"] == "1918-01-01"}
    assert of_1918["spring"]["age_days"] - of_1918["summer"]["age_days"] == round(7 * 365.25)
    assert of_1918["spring"]["accuracy"] < of_1918["summer"]["accuracy"]
    assert result["split"]["older"] > 0


# ---- logs as strangers have them: spellings that are read, others that end in a sentence, and notes that are true


ROWS, RIGHT = 1200, 0.9


def log(**columns: Any) -> pd.DataFrame:
    """Half a year of one version with two classes, right in 90 %."""
    k = np.arange(ROWS)
    label = k % 2
    frame = {
        "time": (pd.Timestamp("2026-01-01") + pd.to_timedelta(k * 180 // ROWS, "D")).strftime("%Y-%m-%d"),
        "id": k + 10_000,
        "version": "v1",
        "prediction": np.where(k % 10 == 0, 1 - label, label),
        "label": label,
    }
    return pd.DataFrame(frame | columns)


def written(folder: Path, frame: pd.DataFrame, name: str = "log.csv", **how: Any) -> Path:
    frame.to_csv(folder / name, index=False, **how)
    return folder / name


def accuracy(source: Any, **more: Any) -> float:
    cells = dl.age(source, versions={"v1": "2026-01-01"}, **more).cells
    return float(np.average(cells.accuracy[cells.usable], weights=cells.labelled[cells.usable]))


def refused(source: Any, **more: Any) -> str:
    with pytest.raises(DriftlineError) as caught:
        dl.age(source, versions={"v1": "2026-01-01"}, **more)
    return str(caught.value)


def test_ids_of_a_label_file_that_became_floats_are_the_same_ids(tmp_path: Path) -> None:
    path = written(tmp_path, log().drop(columns="label"))
    late = written(tmp_path, log()[["id", "label"]].astype(float), "labels.csv")
    assert accuracy(path, labels=late) == pytest.approx(RIGHT, abs=0.01)


def test_versions_keep_their_point(tmp_path: Path) -> None:
    path = written(tmp_path, log(version=["1.0", "1"] * (ROWS // 2)))
    assert list(dl.age(path).versions) == ["1", "1.0"]


def test_a_decimal_comma_is_a_score(tmp_path: Path) -> None:
    path = written(tmp_path, log(score=0.75), sep=";", decimal=",")
    assert "0,75" in path.read_text()
    assert set(read_log([path]).score.tolist()) == {0.75}


def test_a_score_in_per_cent_or_below_zero_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, log(score="93 %"))
    assert "log.csv: the score is '93 %' in row 1. Expected a number." in refused(path)
    assert "scores lie outside 0 … 1, the first is -0.25" in refused(log(score=np.full(ROWS, -0.25)))


def test_a_regression_is_refused_as_one() -> None:
    value = np.random.default_rng(0).normal(size=ROWS)
    sentence = refused(log(prediction=value, label=value + 0.1))
    assert sentence.startswith("The predictions are 1,200 numbers such as ")
    assert "Expected classes." in sentence


def test_labels_in_other_words_than_the_answers_are_refused() -> None:
    sentence = refused(log(label=["no", "yes"] * (ROWS // 2)))
    assert sentence.startswith("No label is ever an answer: labels are no, yes, answers are 0, 1.")


def test_a_rare_class_is_said_to_make_accuracy_high() -> None:
    label = (np.arange(ROWS) % 100 == 0).astype(int)
    notes = " ".join(dl.age(log(label=label, prediction=0)).notes)
    assert "Always answering 0 would be right in 99.0 %, the model is in 99.0 %" in notes
    assert "Always answering" not in " ".join(dl.age(log()).notes)


@pytest.mark.parametrize("limit", ["accuracy<80", "forecast<1.5", "accuracy<-0.1"])
def test_a_limit_in_per_cent_is_refused(limit: str) -> None:
    with pytest.raises(DriftlineError, match=r"Expected a share from 0 to 1"):
        dl.age(log()).json(limit)


def test_a_folder_is_refused_with_the_way_to_name_its_files(tmp_path: Path) -> None:
    assert f"{tmp_path} is a folder." in refused(tmp_path)


def test_a_column_of_periods_is_a_column_of_times() -> None:
    months = pd.to_datetime(log()["time"]).dt.to_period("M")
    assert accuracy(log(time=months)) == pytest.approx(RIGHT, abs=0.01)


def test_a_table_of_another_library_is_read_through_arrow() -> None:
    assert accuracy(pa.RecordBatch.from_pandas(log())) == pytest.approx(RIGHT, abs=0.01)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin", "+05:30"])
def test_times_of_data_frames_are_read_in_each_unit_and_zone(unit: Any, zone: str | None, tmp_path: Path) -> None:
    time = pd.Series(pd.to_datetime(log()["time"]) + pd.Timedelta("11h30min0.5s")).dt.tz_localize(zone).dt.as_unit(unit)
    frame = log(time=time, label_time=time + pd.Timedelta("1D"))
    frame.to_parquet(tmp_path / "log.parquet")
    expected = [int(one.timestamp()) for one in time]
    for source in (frame, tmp_path / "log.parquet", pa.Table.from_pandas(frame)):
        read = read_log([source])
        assert read.time.tolist() == expected
        assert (read.label_time - read.time == 86_400).all()
