"""Which score ranks, and which results may be ranked with each other."""

import dataclasses
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.helpers import drifting

from driftline.eval.plotting.charts import scatter
from driftline.eval.protocol import MAJORITY, PROTOCOLS, primary_of, score_of
from driftline.eval.reporting.exports import scores_tex
from driftline.eval.reporting.exports import scores_text as printed
from driftline.eval.reporting.protocols import page_of
from driftline.eval.reporting.protocols.seq_to_final import PAGE
from driftline.eval.reporting.report import results_of, write
from driftline.eval.reporting.text import spread
from driftline.eval.results import Results
from driftline.eval.run import evaluate
from driftline.eval.scoring.ranking import comparable, differing, parts, ranked, references, rival
from driftline.eval.training.sgd_learner import RATES

NEAR_FUTURE = {  # learner → online, near-future: the blind classifier repeats labels and knows nothing
    "er-online": (0.93, 0.61), "acm": (0.91, 0.58), "blind": (0.895, 0.016), "ace": (0.85, 0.55),
    "majority": (0.553, 0.549), "fc-only": (0.56, 0.60),
}  # fmt: skip
OCRR = {  # learner → bytes, novel, original: fifo-100 has forgotten everything
    "fifo-100": (40_000, 0.973, 0.009), "substrate": (300_000, 0.90, 0.88), "knn-lm": (400_000, 0.905, 0.86),
    "static-knn": (310_000, 0.0, 0.87),
}  # fmt: skip


def result(learner: str, scores: dict[str, float | None], **settings: Any) -> dict[str, Any]:
    """One seed of a learner, as a document has it."""
    values = {name: {"mean": v, "sd": None if v is None else 0.0, "values": [v]} for name, v in scores.items()}
    return {
        "learner": learner, "settings": settings, "seeds": [0], "scores": values, "measures": {}, "matrix": None,
        "p_against_best_adjusted": dict.fromkeys(scores), "gradient_steps": 0, "stored_bytes": 1, "seconds": 0.0,
    }  # fmt: skip


def document(protocol: str, results: list[dict[str, Any]], stream: str = "S") -> Results:
    return Results(protocol=protocol, stream={"name": stream, "sha256": stream}, results=results, skipped=[])


def near_future() -> Results:
    scores = {name: {"online": o, "near_future": n, "retention": 0.5} for name, (o, n) in NEAR_FUTURE.items()}
    return document("near-future", [result(name, values) for name, values in scores.items()])


def ocrr(stream: str = "S") -> Results:
    scores = {n: {"novel": a, "original": b, "worst": min(a, b)} for n, (_, a, b) in OCRR.items()}
    return document("ocrr", [result(name, values) for name, values in scores.items()], stream)


def test_the_blind_learner_is_last_and_fc_only_second() -> None:
    assert [place.name for place in ranked(near_future())] == [
        "er-online", "fc-only", "acm", "ace", "majority", "blind"
    ]  # fmt: skip


def test_who_forgot_everything_is_not_first_in_ocrr() -> None:
    assert primary_of(ocrr()).label == "min(novel, original)"
    assert [place.name for place in ranked(ocrr())] == ["substrate", "knn-lm", "fifo-100", "static-knn"]


def test_results_under_other_policies_do_not_beat_each_other_on_the_front() -> None:
    curve = {"at": [0.0], "value": [0.5], "original": [0.5]}
    rows = [("a", "oracle", 0.9), ("b", "oracle", 0.8), ("a", "random_10", 0.3)]
    results = [result(n, {"novel": v, "original": v, "worst": v}, policy=p) | {"curve": curve} for n, p, v in rows]
    firsts = [page_of(part).first(part) for part in parts(document("ocrr", results))]
    fronts = [[row[0] for row in one.picture.rows if row[-1] == "yes"] for one in firsts if one is not None]
    assert fronts == [["a"], ["a"]]


def test_dots_on_each_other_have_one_label_and_the_plane_is_no_wider_than_the_data() -> None:
    places = {"a": (0.9, 0.8, 1e5), "b": (0.9, 0.8, 1e8), "c": (0.7, 0.95, 1e6)}
    picture = scatter(places, ["a", "b", "c"], "novel", "original", "bytes kept")
    assert ">1, 2<" in picture.svg
    radii = [float(r) for r in re.findall(r"<circle [^>]*r='([\d.]+)'", picture.svg)]
    assert radii == [14, 8, 5], "bytes on a scale of logarithms, the small dot above"
    assert ">0<" not in picture.svg


def test_each_group_has_its_own_answer_note_figures_and_name(tmp_path: Path) -> None:
    """Rows of several settings of a protocol are never compared; a label keeps the registered name beside it."""
    stream = drifting(steps=1, classes=8, n=200, noise=1.5)
    for held_out in (2, 5):
        settings = {"held_out": held_out, "every": 20}
        evaluate(stream, "ocrr", ["nearest-mean", "majority"], [0, 1, 2], settings, out=tmp_path / "runs")
    (found,) = results_of([tmp_path / "runs"])
    groups = sorted(parts(found), key=lambda part: str(part["setting"]))
    assert [part["setting"] for part in groups] == ["held_out=2", "held_out=5"]
    page = write([found], tmp_path / "page").read_text()
    for part, held_out in zip(groups, (2, 5), strict=True):
        assert [(r["learner"], r["label"]) for r in part["results"]] == [(n, n) for n in ("nearest-mean", "majority")]
        section = page[page.index(f">ocrr on drifting, held_out={held_out}</h2>") :].partition("</section>")[0]
        assert f"{held_out} held-out classes" in section
        assert f"{8 - held_out} held-out classes" not in section
        assert [title for title in re.findall(r"<h3>(.*?)</h3>", section) if "ecover" in title] == [
            "Recovery", "Retention during recovery",
        ]  # fmt: skip
        assert f"{100 * part['results'][0]['scores']['worst']['mean']:.1f}" in section
    assert "one of 2 results below" in page
    text = printed(found | {"skipped": []})
    assert sorted(line for line in text.splitlines() if not line.startswith(" ")) == [
        f"ocrr on drifting, held_out={n}, in order of worst" for n in (2, 5)
    ]


def test_rows_that_differ_in_nothing_that_is_recorded_have_two_labels() -> None:
    twice = [result("er", {"next_domain": v}) for v in (0.5, 0.4)]
    (part,) = parts(document("clear-iid", twice))
    assert [r["label"] for r in part["results"]] == ["er", "er, row 2"]


def test_no_row_vanishes_from_the_table_of_seq_to_final() -> None:
    """Two rates of one learner, and a learner that trains a network of its own."""
    base = {"network": "conv-1", "fidelity": "clean", "budget": "small", "epochs": 10}
    rows = [result("ft", {"final": v}, lr=lr, **base) for v, lr in ((0.61, 0.1), (0.52, 0.2))]
    rows.append(result("nearest-mean", {"final": 0.43}, **base) | {"rules": "own"})
    tables = [figure.picture.svg for figure in PAGE.whole(document("seq-to-final", rows))]
    assert [[v for v in (".610", ".520", ".430") if v in table] for table in tables] == [[".610", ".520"], [".430"]]
    assert "ft, lr=0.1" in tables[0]
    assert ">conv-1<" in tables[0]
    assert ">own<" in tables[1]
    assert "conv-1" not in tables[1]


def test_results_name_the_best_learner_and_have_it_first_in_their_frame() -> None:
    assert near_future().best == "er-online"
    assert near_future().frame()["learner"].unique().tolist()[-1] == "blind"
    assert ocrr().best == "substrate"
    assert Results(near_future(), results=[]).best is None


def test_an_upper_bound_is_listed_last_and_never_the_best() -> None:
    """`joint` has learned the steps that `next_domain` tests."""
    values = {"joint": 0.9, "joint(epochs=3)": 0.8, "er": 0.7, "nap": 0.6}
    bounds = {"standing": "bound"}
    results = [result(n, {"next_domain": v}) | (bounds if n.startswith("joint") else {}) for n, v in values.items()]
    one = document("clear-iid", results)
    assert [(place.name, place.best) for place in ranked(one)] == [
        ("er", True), ("nap", False), ("joint", False), ("joint(epochs=3)", False)
    ]  # fmt: skip
    assert one.best == "er"


def test_results_under_other_settings_of_the_protocol_are_no_rivals() -> None:
    same = {"scenario": "auto", "held_out": 10, "order": "shuffled", "every": 50, "tests": 400, "mix": 0.0}
    easy, hard = ({**same, "policy": policy} for policy in ("oracle", "random_10"))
    rows = [("a", 0.9, easy), ("b", 0.8, easy), ("a", 0.5, hard), ("b", 0.6, hard)]
    mixed = document("ocrr", [result(n, {"novel": v, "original": 1.0, "worst": v}, **s) for n, v, s in rows])
    assert [[r["learner"] for r in group] for group in comparable(mixed)] == [["a", "b"], ["b", "a"]]
    assert differing(mixed) == ["policy=oracle", "policy=random_10"]
    assert [place.name for place in ranked(mixed) if place.best] == ["a, policy=oracle", "b, policy=random_10"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_setting_but_the_marked_ones_separates(protocol: str) -> None:
    kind = PROTOCOLS[protocol]
    free = {"also", "points", "abreast", "ledger", "per_step", "compile"}
    primary = kind.primary
    for field in dataclasses.fields(kind):
        rows = [result(learner, {primary: 0.5}, **{field.name: value}) for learner, value in (("a", 1), ("b", 2))]
        assert len(comparable(document(protocol, rows))) == (1 if field.name in free else 2), field.name


def test_one_seed_has_no_deviation_and_missing_seeds_are_counted() -> None:
    score = score_of(PROTOCOLS["ocrr"], "corrections_to_50")
    one = {"scores": {score.name: {"mean": 40.0, "sd": 0.0, "values": [40.0]}}}
    some = {"scores": {score.name: {"mean": 40.0, "sd": 0.0, "values": [40.0, None, None]}}}
    none = {"scores": {score.name: {"mean": None, "sd": None, "values": [None, None]}}}
    assert [spread(score, r) for r in (one, some, none, {"scores": {}})] == ["40", "40 (1/3)", "– (0/2)", "–"]


def test_learners_that_train_another_network_than_the_protocols_stand_apart() -> None:
    stream = drifting(steps=3, n=40)
    found = evaluate(stream, "seq-to-final", ["ft", "nearest-mean"], settings={"network": "linear", "val_share": 0.2})
    assert [[r["learner"] for r in group] for group in comparable(found)] == [["ft"], ["nearest-mean"]]
    assert differing(found) == ["", "rules=own"]
    assert all(place.best for place in ranked(found))


def test_a_bound_is_one_only_where_others_do_not_get_the_same_data() -> None:
    """Under seq-to-final every method learns from all steps at once."""
    stream = drifting(steps=3, n=40)
    of_clear, to_final = (
        evaluate(stream, protocol, ["joint(epochs=2)", "majority"], settings=settings)
        for protocol, settings in (("clear-iid", {}), ("seq-to-final", {"network": "linear", "val_share": 0.2}))
    )
    assert [result["standing"] for result in of_clear["results"]] == ["bound", "blind"]
    assert [result["standing"] for result in to_final["results"]] == ["", "blind"]
    assert of_clear.best == "majority"


def test_a_bound_with_a_setting_in_its_label_stays_one() -> None:
    pairs = ((0.9, "stream"), (0.8, "seeded"))
    rows = [result("joint", {"next_domain": v}, splits=s) | {"standing": "bound"} for v, s in pairs]
    one = document("clear-iid", [*rows, result("er", {"next_domain": 0.5}, splits="seeded")])
    assert not [place for place in ranked(one) if place.best and place.result["learner"] == "joint"]


def test_rows_with_the_same_answers_under_two_names_compete_once() -> None:
    """On vectors of three classes `substrate-count-only` answers as `substrate` does."""
    stream = drifting(steps=3, n=60)
    names = ["substrate", "substrate-count-only", "nearest-mean", "majority"]
    found = evaluate(stream, "clear-iid", names, seeds=[0, 1, 2])
    same = {r["learner"]: r["same_as"] for r in found["results"] if "same_as" in r}
    assert same in ({"substrate-count-only": "substrate"}, {"substrate": "substrate-count-only"})
    assert sum(map(rival, found["results"])) == 3


@pytest.mark.parametrize("protocol", ["clear-iid", "clear-streaming", "ocrr", "seq-to-final", "near-future"])
def test_an_online_head_is_tuned_where_settings_can_be_chosen(protocol: str) -> None:
    settings: dict[str, Any] = {"shift": 20, "batch": 10, "prefix": 60} if protocol == "near-future" else {}
    settings |= {"val_share": 0.2} if protocol == "seq-to-final" else {}
    (head,) = evaluate(drifting(), protocol, ["fc-only"], settings=settings)["results"]
    assert head["chosen"][0]["lr"] in RATES
    (given,) = evaluate(drifting(), protocol, ["fc-only(lr=0.5)"], settings=settings)["results"]
    assert "chosen" not in given


def test_a_row_that_is_not_tuned_is_marked_beside_those_that_are() -> None:
    learners = ["fc-only", "finetune", "majority", "random-features"]
    both = evaluate(drifting(steps=2), "clear-iid", learners, settings={"epochs": 1})
    marks = {place.name: place.mark for place in ranked(both)}
    assert marks == {"fc-only": "", "finetune": "lr not tuned", "majority": "", "random-features": ""}
    assert "  (lr not tuned)" in next(line for line in printed(both).splitlines() if "finetune " in line)
    assert "finetune (lr not tuned)" in both._repr_html_()
    assert "finetune (lr not tuned) & " in scores_tex([both])
    alone = evaluate(drifting(steps=2), "clear-iid", ["finetune"], settings={"epochs": 1})
    assert [place.shown for place in ranked(alone)] == ["finetune"]


@pytest.mark.parametrize("protocol", ["clear-iid", "clear-streaming", "near-future", "ocrr", "seq-to-final"])
def test_the_reference_of_a_table_is_what_the_learner_majority_reaches(protocol: str) -> None:
    """Every result has it, and the table shows it unless that learner is among them."""
    unequal = drifting(steps=3, n=90)
    rows = {name: np.flatnonzero(np.arange(len(unequal.steps[0][name])) % 9 != 2) for name in ("train", "test")}
    steps = [replace(s, splits={name: s[name].take(rows[name]) for name in rows}) for s in unequal.steps]
    settings = {
        "near-future": {"batch": 10, "shift": 15, "delay": 1},
        "seq-to-final": {"val_share": 0.2, "epochs": 1, "fits": 1},
    }.get(protocol, {})
    stream = replace(unequal, steps=steps)
    document = evaluate(stream, protocol, ["nearest-mean", "majority"], [0, 1], settings=settings)
    other, majority = document["results"]
    reached = majority["scores"][primary_of(document).name]["mean"]
    assert majority["references"][MAJORITY] == pytest.approx(reached)
    if protocol != "ocrr":  # where what a learner is shown depends on its errors
        assert other["references"][MAJORITY] == pytest.approx(reached)
    assert MAJORITY not in references([other, majority])
    assert MAJORITY in printed({**document, "results": [other]})
