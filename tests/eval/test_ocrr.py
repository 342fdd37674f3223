"""Online correction recovery: the loop against a literal one, policies, scenarios, votes, and every bad input."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.helpers import drifting

from driftline.curate.core.errors import BadArray, BadConfig, IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.eval.experiment.presets import fitting
from driftline.eval.learner import Array, Labels, Learner, Task
from driftline.eval.learners import LEARNERS
from driftline.eval.learners.neighbours import Substrate, votes
from driftline.eval.memory.knn_index import unit
from driftline.eval.predictions import answers, numbered, sure_answers
from driftline.eval.protocols.ocrr.loop import Kind, cut, policy_of
from driftline.eval.protocols.ocrr.protocol import Ocrr
from driftline.eval.protocols.ocrr.scale_study import Search, scale_study
from driftline.eval.reporting.protocols.ocrr import across, figures
from driftline.eval.reporting.report import write
from driftline.eval.rows import Run
from driftline.eval.run import evaluate
from driftline.eval.settings import spec_of
from driftline.stream_builder.stream import Split, Step, Stream

STREAM = drifting(steps=1, classes=8, n=400, width=8, noise=0.7)
SYSTEMS = [
    "substrate", "substrate-k1", "substrate-sumsim", "substrate-count-only", "substrate-no-recency", "static-knn",
    "bounded-reservoir(capacity=100)", "bounded-fifo(capacity=100)", "static-linear", "online-linear", "knn-lm",
]  # fmt: skip
HOLD = {"held_out": 2, "every": 20}


@dataclass
class Diary(Learner):
    """Knows what it was corrected to; writes all down."""

    log: list[tuple[str, int]] = field(default_factory=list)

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.log.clear()
        self.known: dict[bytes, int] = {}

    def predict(self, x: Array) -> Labels:
        if len(x) == 1:
            self.log.append(("asked", 0))
        return np.array([self.known.get(row.tobytes(), 0) for row in x], np.int64)

    def learn(self, x: Array, y: Labels) -> None:
        self.log.append(("seed", len(y)))

    def correct(self, x: Array, y: Labels) -> None:
        self.log.append(("corrected", int(y[0])))
        self.known[x[0].tobytes()] = int(y[0])


def diary(policy: str) -> list[tuple[str, int]]:
    learner = Diary()
    evaluate(STREAM, "ocrr", [learner], settings={**HOLD, "policy": policy})
    return learner.log


def corrected(policy: str) -> list[int]:
    return [label for what, label in diary(policy) if what == "corrected"]


class TestPolicies:
    def test_rates_budgets_and_their_repeats(self) -> None:
        whole = len(corrected("oracle"))
        assert 0.3 * whole < len(corrected("random_50")) < 0.7 * whole
        assert len(corrected("random_10")) < 0.25 * whole
        assert corrected("bernoulli:0.3") == corrected("bernoulli:0.3")
        assert corrected("bernoulli:0") == []
        assert len(corrected("budget:7")) == 7

    def test_a_delayed_correction_counts_when_it_is_received(self) -> None:
        """Every learner's record says what it got: none of those that would come after the end."""
        for policy, budget in (("delayed:9999", None), ("delayed:5", None), ("budget:7+delayed:30", 7)):
            learner = Diary()
            found = evaluate(STREAM, "ocrr", [learner], settings={**HOLD, "policy": policy})["results"][0]
            received = [what for what, _ in learner.log].count("corrected")
            assert found["measures"]["corrections"]["values"] == [received]
            assert found["curve"]["at"][-1] == received
            assert budget is None or received == budget
            assert (received == 0) == (policy == "delayed:9999")

    @pytest.mark.parametrize(
        "text", ["", "sometimes", "bernoulli:1.5", "wrong:-1", "budget:x", "budget:-3", "oracle+random_50", "oracle:2"]
    )
    def test_what_cannot_be_read_is_refused_before_any_work(self, text: str) -> None:
        with pytest.raises(BadConfig):
            evaluate(STREAM, "ocrr", ["substrate"], settings={"policy": text})

    @pytest.mark.parametrize("name", [*SYSTEMS, "river-logreg"])
    def test_sureness_is_a_share(self, name: str) -> None:
        learner = spec_of(name)()
        learner.begin(Task(8, (8,)), rng_for(0))
        train, test = STREAM.steps[0]["train"], STREAM.steps[0]["test"]
        learner.learn(train.x, train.y)
        labels, sure = sure_answers(learner, test.x, len(test))
        assert sure.shape == (len(test),)
        assert 0 <= sure.min() <= sure.max() <= 1
        right = labels == test.y
        assert right.all() or sure[right].mean() > sure[~right].mean()  # sure where it is right

    def test_parts_join(self) -> None:
        policy = policy_of("random_50+budget:9+delayed:3+wrong:0.5")
        assert (policy.rate, policy.budget, policy.delay, policy.wrong) == (0.5, 9, 3, 0.5)


class TestScenarios:
    def test_held_out_classes_are_nowhere_in_seed_and_original(self) -> None:
        for seed in range(3):
            found = cut(STREAM, "categorical", 2, 50, True, 0, seed)
            novel = set(found.stream.y.tolist())
            assert len(novel) == 2
            assert set(found.novel.y.tolist()) <= novel
            assert not novel & set(found.seed.y.tolist())
            assert not novel & set(found.original.y.tolist())

    def test_seeds_hold_others_out_and_names_not_numbers_decide(self) -> None:
        held = [set(cut(STREAM, "categorical", 2, 50, True, 0, s).stream.y.tolist()) for s in range(6)]
        assert len({tuple(sorted(h)) for h in held}) > 1
        order = rng_for(0).permutation(8)
        (step,) = STREAM.steps
        back = np.argsort(order)
        renumbered = {k: type(v)(v.x, back[v.y], v.ids, v.time) for k, v in step.splits.items()}
        other = Stream("renumbered", [Step(0, "0", renumbered)], [STREAM.classes[i] for i in order])
        names = {other.classes[i] for i in cut(other, "categorical", 2, 50, True, 0, 1).stream.y.tolist()}
        assert names == {STREAM.classes[i] for i in cut(STREAM, "categorical", 2, 50, True, 0, 1).stream.y.tolist()}

    def test_within_class_drift_has_every_class_on_both_sides(self) -> None:
        found = cut(STREAM, "within-class", 2, 400, True, 0, 0)
        assert set(found.seed.y.tolist()) == set(found.stream.y.tolist()) == set(range(8))
        assert abs(len(found.seed) - len(found.stream)) <= 8
        for label in range(8):
            a, b = (split.x[split.y == label] for split in (found.seed, found.stream))
            assert np.linalg.norm(a.mean(0) - b.mean(0)) > 0.5

    def test_what_is_said_in_other_words_is_least_like_the_rest_of_its_class(self) -> None:
        found = cut(STREAM, "paraphrase", 2, 500, True, 0, 0)
        assert set(found.stream.y.tolist()) == set(found.seed.y.tolist()) == set(range(8))
        assert len(found.stream) == pytest.approx(0.25 * (len(found.stream) + len(found.seed)), rel=0.05)
        for label in range(8):
            seed, new = (unit(part.x[part.y == label]) for part in (found.seed, found.stream))
            near = np.sort(seed @ seed.T, 1)[:, -6:-1].mean()
            assert np.sort(new @ seed.T, 1)[:, -5:].mean() < near

    def test_the_last_step_is_novel_where_there_are_several_in_its_own_order(self) -> None:
        stream = drifting(steps=3)
        found = cut(stream, "auto", 2, 400, True, 0, 0)
        assert found.stream.ids.tolist() == stream.steps[-1]["train"].ids.tolist()
        assert set(found.seed.ids.tolist()) == {i for s in stream.steps[:-1] for i in s["train"].ids.tolist()}

    @pytest.mark.parametrize("kind", ["categorical", "within-class", "paraphrase", "temporal"])
    def test_mixed_streams_bring_originals_that_were_never_taught(self, kind: Kind) -> None:
        stream = drifting(steps=3) if kind == "temporal" else STREAM
        plain, mixed = (cut(stream, kind, 2, 50, True, mix, 0) for mix in (0, 0.5))
        novel, taught, brought = (set(part.ids.tolist()) for part in (plain.stream, mixed.seed, mixed.stream))
        assert novel < brought
        assert len(brought) == len(mixed.stream) == round(1.5 * len(novel))
        assert not brought & taught
        assert (brought - novel) | taught == set(plain.seed.ids.tolist())

    def test_a_mix_that_leaves_nothing_to_teach_is_refused(self) -> None:
        with pytest.raises(IncompatibleStream, match="The seed part of .* would be empty"):
            evaluate(STREAM, "ocrr", ["substrate"], settings={**HOLD, "mix": 100})

    @pytest.mark.parametrize(
        ("settings", "words"), [({"held_out": 8}, "held_out is 8"), ({"scenario": "temporal"}, "one step")]
    )
    def test_what_leaves_a_part_empty_is_refused(self, settings: dict[str, object], words: str) -> None:
        with pytest.raises(IncompatibleStream, match=words):
            evaluate(STREAM, "ocrr", ["substrate"], settings=settings)

    def test_unknown_scenarios_and_missing_splits(self) -> None:
        with pytest.raises(BadConfig, match=r"ocrr: scenario is 'sudden'\. Expected 'auto', 'categorical'"):
            evaluate(STREAM, "ocrr", ["substrate"], settings={"scenario": "sudden"})
        bare = Stream("bare", [Step(0, "0", {"train": STREAM.steps[0]["train"]})], STREAM.classes)
        with pytest.raises(IncompatibleStream, match="no test split"):
            evaluate(bare, "ocrr", ["substrate"])


class TestThePapersSettings:
    def found(self, learners: list[str], settings: dict[str, Any], protocol: str = "ocrr") -> dict[str, dict[str, Any]]:
        stream = STREAM if protocol == "ocrr" else drifting(steps=2, n=60)
        document = evaluate(stream, protocol, learners, settings=settings)
        return {result["learner"]: result["settings"] for result in document["results"]}

    def test_they_need_no_preset(self) -> None:
        plain = self.found(["ewc", "agem", "lwf"], HOLD)
        preset = fitting("ocrr", {name: LEARNERS[name] for name in plain})
        given = {f"{name}.{key}": value for name, own in preset.items() for key, value in own.items()}
        assert plain == self.found(["ewc", "agem", "lwf"], HOLD | given)
        assert plain["ewc"]["strength"] == 1000
        assert (plain["agem"]["memory"], plain["agem"]["sample"]) == (1000, 64)
        assert (plain["lwf"]["weight"], plain["lwf"]["temperature"]) == (1, 2)
        assert {name: (own["lr"], own["epochs"]) for name, own in plain.items()} == dict.fromkeys(plain, (0.01, 30))

    def test_what_a_user_sets_stays(self) -> None:
        plain = self.found(["ewc(strength=3)", "lwf"], HOLD | {"epochs": 2})
        assert {name: own["epochs"] for name, own in plain.items()} == {"ewc(strength=3)": 2, "lwf": 2}
        assert plain["ewc(strength=3)"]["strength"] == 3
        assert plain["ewc(strength=3)"]["optimiser"] == "adamw"

    def test_other_learners_and_protocols_keep_theirs(self) -> None:
        assert self.found(["finetune"], HOLD)["finetune"]["optimiser"] == "sgd"
        assert self.found(["ewc"], {"epochs": 1}, "clear-iid")["ewc"]["strength"] == LEARNERS["ewc"]().strength


def test_rows_say_when_they_were_made_and_on_which_samples() -> None:
    runs: list[Run] = []
    evaluate(STREAM, "ocrr", [Diary()], settings=HOLD, keep_run=runs.append)
    scenario = Ocrr(**HOLD).cut(numbered(STREAM), 0)
    ends = sorted({*range(20, len(scenario.stream), 20), len(scenario.stream)})
    for name, seen, asked in (
        ("stream", ends, scenario.stream.position),
        ("novel", [0, *ends], np.tile(scenario.novel.position, 1 + len(ends))),
        ("original", [0, *ends], np.tile(scenario.original.position, 1 + len(ends))),
    ):
        rows = [row for row in runs[0].rows if row.tested_on == name]
        assert [row.seen for row in rows] == seen, name
        assert [int(i) for row in rows if row.answers for i in row.answers.sample] == asked.tolist(), name
    last = [row for row in runs[0].rows if row.tested_on == "stream"][-1]
    assert last.corrections == sum(what == "corrected" for what, _ in diary("oracle"))


class TestScores:
    def test_no_errors_no_corrections(self) -> None:
        """Where the start is above a threshold, no correction led there: null."""

        class Knows(Diary):
            def predict(self, x: Array) -> Labels:
                return np.array([self.truth[row.tobytes()] for row in x])

        knows = Knows()
        (step,) = STREAM.steps
        knows.truth = {row.tobytes(): int(y) for s in step.splits.values() for row, y in zip(s.x, s.y, strict=True)}  # type: ignore[attr-defined]
        result = evaluate(STREAM, "ocrr", [knows], settings=HOLD)["results"][0]
        assert result["measures"]["corrections"]["mean"] == 0
        assert result["measures"]["start_novel"]["mean"] == 1
        assert [result["scores"][f"corrections_to_{n}"]["mean"] for n in (50, 70, 90)] == [None] * 3

    def test_predictions_and_corrections_have_their_cost(self) -> None:
        found = evaluate(STREAM, "ocrr", ["substrate", "static-linear"], settings=HOLD)["results"]
        assert all(r["measures"]["prediction_us"]["mean"] > 0 for r in found)
        assert found[0]["measures"]["correction_us"]["mean"] > 0

    @pytest.mark.parametrize("index", ["hnsw", "ivf"])
    def test_recall_of_an_index_stands_beside_every_test(self, index: str) -> None:
        settings = HOLD | {"exact_below": 300, "index": index}
        (found,) = evaluate(STREAM, "ocrr", ["substrate"], settings=settings)["results"]
        (exact,) = evaluate(STREAM, "ocrr", ["substrate"], settings=HOLD)["results"]
        assert len(found["curve"]["recall"]) == len(found["curve"]["at"])
        assert 0.5 < found["measures"]["recall"]["mean"] <= 1
        assert exact["measures"]["recall"]["mean"] == 1
        assert set(exact["curve"]["recall"]) == {1.0}
        titles = [[figure.title for figure in figures({"results": [one | {"label": "a"}]})] for one in (found, exact)]
        assert ["Recall of the index" in names for names in titles] == [found["measures"]["recall"]["mean"] < 1, False]
        assert found["scores"]["novel"]["mean"] == pytest.approx(exact["scores"]["novel"]["mean"], abs=0.1)

    def test_brute_force_is_exact_at_any_size(self) -> None:
        (plain,) = evaluate(STREAM, "ocrr", ["substrate"], settings=HOLD)["results"]
        (brute,) = evaluate(STREAM, "ocrr", ["substrate(index=brute)"], settings=HOLD)["results"]
        assert brute["scores"] == plain["scores"]
        learner = Substrate(index="brute", exact_below=5)
        learner.begin(Task(3, (4,)), rng_for(0))
        learner.learn(rng_for(1).normal(size=(40, 4)), np.arange(40) % 3)
        assert learner.memory.index is None
        with pytest.raises(BadConfig, match="exact_below is 5, which changes nothing: index is brute"):
            evaluate(STREAM, "ocrr", ["substrate(index=brute,exact_below=5)"], settings=HOLD)

    def test_the_scale_study_compares_each_search_on_the_same_vectors(self) -> None:
        brute, ivf, hnsw = (scale_study(600, search) for search in get_args(Search))
        assert brute["recall"] == 1 > ivf["recall"] > 0
        assert hnsw["recall"] > 0.9
        assert 0 < brute["accuracy"] < 1
        assert min(cost["predict_us"] for cost in (brute, ivf, hnsw)) > 0

    def test_a_grid_of_policies_and_data(self, tmp_path: Path) -> None:
        documents = [
            evaluate(STREAM, "ocrr", ["substrate", "static-knn"], settings=HOLD | {"policy": policy})
            for policy in ("oracle", "random_10")
        ]
        page = write(documents, tmp_path / "page").read_text()
        assert "drifting<br>policy=random_10" in page
        assert across(documents[:1]) is None
        table = across(documents)
        assert table.html.count("<tr>") == 3

    def test_the_curve_has_bytes_at_every_test(self) -> None:
        curve = evaluate(STREAM, "ocrr", ["substrate"], settings=HOLD)["results"][0]["curve"]
        assert len(curve["at"]) == len(curve["value"]) == len(curve["original"]) == len(curve["stored"])
        assert curve["stored"] == sorted(curve["stored"])
        assert curve["stored"][-1] - curve["stored"][0] == curve["at"][-1] * (8 * 4 + 8)

    @pytest.mark.parametrize("name", SYSTEMS)
    def test_what_is_prepared_for_changes_no_answer(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        prepared = evaluate(STREAM, "ocrr", [name], seeds=[0, 1], settings=HOLD)["results"][0]
        kind = LEARNERS[name.partition("(")[0]]
        monkeypatch.setattr(kind, "prepare", lambda self, x: None, raising=False)
        plain = evaluate(STREAM, "ocrr", [name], seeds=[0, 1], settings=HOLD)["results"][0]
        assert prepared["scores"] == plain["scores"]
        assert prepared["curve"] == plain["curve"]


def literal(sims: list[float], labels: list[int], margin: float) -> int:
    """The reference's rule, written as its paper says: (count, best similarity, latest) of each class in the band."""
    inside = [i for i, s in enumerate(sims) if s >= sims[0] - margin]
    classes = {labels[i] for i in inside}
    return max(classes, key=lambda c: (
        sum(labels[i] == c for i in inside), max(sims[i] for i in inside if labels[i] == c),
    ))  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1000)), min_size=1, max_size=7, unique_by=lambda p: p[1]))
def test_votes_follow_the_rule(pairs: list[tuple[int, int]]) -> None:
    ordered = sorted(pairs, key=lambda p: -p[1])
    labels, sims = [p[0] for p in ordered], [p[1] / 2000 for p in ordered]
    args = np.array([sims]), np.array([labels]), np.arange(len(sims))[None], 0.05
    for rule in ("band", "count", "no-recency"):  # no two are equally similar: recency never decides
        assert votes(*args, rule)[0] == literal(sims, labels, 0.05)
    totals = {c: sum(s for s, label in zip(sims, labels, strict=True) if label == c) for c in labels}
    assert votes(*args, "sum")[0] in [c for c in totals if totals[c] >= max(totals.values()) - 1e-12]


def test_k1_answers_with_its_nearest_neighbour_only() -> None:
    train, test = (STREAM.steps[0][side] for side in ("train", "test"))
    nearest = train.y[(unit(test.x) @ unit(train.x).T).argmax(1)]
    assert answers_of("substrate-k1").tolist() == nearest.tolist()
    assert (nearest != answers_of("substrate")).any(), "the rule of five would answer otherwise"


def answers_of(name: str) -> Labels:
    train, test = (STREAM.steps[0][side] for side in ("train", "test"))
    learner = spec_of(name)()
    learner.begin(Task(8, (8,)), rng_for(0))
    learner.learn(train.x, train.y)
    return answers(learner, test.x, len(test))


def test_of_equals_the_latest_wins() -> None:
    args = np.array([[0.9, 0.9]]), np.array([[1, 2]]), np.array([[3, 7]]), 0.05
    assert votes(*args, "band")[0] == 2
    assert votes(*args, "no-recency")[0] == 1


class TestHostileVectors:
    @pytest.mark.parametrize(("side", "number"), [("train", np.nan), ("test", np.inf)])
    def test_what_is_not_finite_reaches_no_memory(self, side: str, number: float) -> None:
        splits = dict(STREAM.steps[0].splits)
        split = splits[side]
        x = np.where(np.arange(len(split))[:, None] == 3, number, split.x).astype(np.float32)
        splits[side] = Split(x, split.y, split.ids, split.time)
        bad = Stream("bad", [Step(0, "0", splits)], STREAM.classes)
        with pytest.raises(BadArray, match=f"'bad', {side} split of step '0': x at index 3 holds NaN or infinity"):
            evaluate(bad, "ocrr", ["substrate", "online-linear"], settings=HOLD)

    def test_splits_of_two_widths_are_refused(self) -> None:
        (step,) = STREAM.steps
        test = step["test"]
        splits = {"train": step["train"], "test": Split(test.x[:, :5], test.y, test.ids, test.time)}
        with pytest.raises(BadArray, match=r"test split of step '0': samples of shape \(5,\)\. Expected \(8,\)"):
            evaluate(Stream("bad", [Step(0, "0", splits)], STREAM.classes), "ocrr", ["substrate"], settings=HOLD)


class TestUndeclaredClasses:
    def test_a_closed_head_refuses_and_an_open_one_grows(self) -> None:
        train = STREAM.steps[0]["train"]
        for name, grows in (("online-linear", False), ("knn-lm", False), ("online-linear(classes=open)", True)):
            learner = spec_of(name)()
            learner.begin(Task(8, (8,)), rng_for(0))
            learner.learn(train.x, train.y)
            strange = np.full((1, 8), 9.0, np.float32)
            if not grows:
                with pytest.raises(BadArray, match="names class 11"):
                    learner.correct(strange, np.array([11]))
                continue
            for _ in range(200):
                learner.correct(strange, np.array([11]))
            assert answers(learner, strange, 1).tolist() == [11]
            assert (answers(learner, train.x, len(train)) == train.y).mean() > 0.6

    def test_memories_grow_by_themselves(self) -> None:
        train = STREAM.steps[0]["train"]
        for name in ("substrate", "bounded-reservoir(capacity=2000)"):
            learner = spec_of(name)()
            learner.begin(Task(8, (8,)), rng_for(0))
            learner.learn(train.x, train.y)
            strange = -9.0 * np.ones((1, 8), np.float32)
            for _ in range(5):
                learner.learn(strange, np.array([11]))
            assert answers(learner, strange, 1).tolist() == [11]


def test_a_wrong_correction_names_each_other_class_equally_often() -> None:
    policy, rng = policy_of("wrong:1"), rng_for(0, "wrong")
    said = Counter(policy.label(2, 5, rng) for _ in range(4000))
    assert set(said) == {0, 1, 3, 4}
    assert all(abs(n - 1000) < 5 * np.sqrt(4000 * 0.25 * 0.75) for n in said.values())
