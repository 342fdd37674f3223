"""The near-future protocol against a literal loop; budgets, delays, resuming, and every bad stream."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from support.helpers import correlated, described, few_of

from driftline.curate.core.errors import BadConfig, IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.eval import checkpoint
from driftline.eval.history import Past
from driftline.eval.learner import Array, Labels, Learner, Task
from driftline.eval.learners import LEARNERS
from driftline.eval.learners.online import FcOnly
from driftline.eval.learners.references import GRID
from driftline.eval.protocols.near_future.protocol import NearFuture
from driftline.eval.run import evaluate
from driftline.eval.settings import setting_names
from driftline.stream_builder.measures.label_correlation import blind_curve_of, modes
from driftline.stream_builder.stream import Split, Step, Stream

STREAM = correlated()
TEXTS = described(STREAM)
OTHERS = ("whole_steps", "first_step", "texts", "images")  # needs that the stream or the protocol does not meet
ONLINE = [n for n in LEARNERS if not any(getattr(LEARNERS[n].needs, need) for need in OTHERS)]
QUICK = {"shift": 50, "batch": 20, "points": 5, "prefix": 0}
NARROW = {n: f"{n}(width=50)" if "width" in setting_names(LEARNERS[n]) else n for n in ONLINE}  # 1000 take seconds


def rows_of(learner: Learner, stream: Stream = STREAM, **settings: object) -> list[tuple[str, int, int, int]]:
    protocol = NearFuture(**{**QUICK, **settings})  # type: ignore[arg-type]
    protocol.check(stream)
    learner.begin(protocol.task(stream), rng_for(0))
    return [(r.tested_on, r.n, r.n_correct, r.seen) for r in protocol.run(stream, learner, rng_for(0))]


@dataclass
class Diary(Learner):
    """Writes down what it was asked and what it was given; answers the last label it learned."""

    log: list[tuple[str, list[float]]] = field(default_factory=list)
    last: int = 0

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.log.clear()
        self.last = 0

    def predict(self, x: Array) -> Labels:
        self.log.append(("asked", x[:, 0].tolist()))
        return np.full(len(x), self.last, np.int64)

    def learn(self, x: Array, y: Labels) -> None:
        self.log.append(("learned", x[:, 0].tolist()))
        self.last = int(y[-1])


class TestTheLoop:
    @pytest.mark.parametrize("delay", [0, 2])
    @pytest.mark.parametrize("shift", [0, 7, 50])
    def test_counts_equal_a_literal_loop(self, shift: int, delay: int) -> None:
        train = STREAM.flat("train")
        batch, n = 20, len(train)
        right = {"online": 0, "near_future": 0}
        total = {"online": 0, "near_future": 0}
        last = 0
        for t in range(-(-n // batch)):
            for name, s in () if t <= delay else (("online", 0), ("near_future", shift)):
                labels = train.y[s + t * batch : s + (t + 1) * batch]
                right[name] += int((labels == last).sum())
                total[name] += len(labels)
            if t >= delay:
                last = int(train.y[(t - delay) * batch : (t - delay + 1) * batch][-1])
        rows = rows_of(Diary(), shift=shift, delay=delay)
        for name in right:
            mine = [(n, k) for where, n, k, _ in rows if where == name]
            assert sum(k for _, k in mine) == right[name]
            assert sum(n for n, _ in mine) == total[name]
            assert total[name] == n - (1 + delay) * batch - (shift if name == "near_future" else 0)

    @pytest.mark.parametrize(
        ("points", "seen"), [(5, [*range(200, 1001, 200), 1080]), (1, [1080]), (1000, [*range(40, 1081, 20)])]
    )
    def test_a_score_has_as_many_rows_as_points_and_the_rest(self, points: int, seen: list[int]) -> None:
        """54 batches of 20 samples, of which the first is not scored."""
        rows = rows_of(Diary(), points=points)
        assert [at for name, _, _, at in rows if name == "online"] == seen
        assert sum(n for name, n, _, _ in rows if name == "online") == 1060

    def test_retention_is_tested_on_every_period_so_far(self) -> None:
        rows = [r for r in NearFuture(**QUICK).run(STREAM, _begun("majority"), rng_for(0)) if "/" in r.tested_on]  # type: ignore[arg-type]
        expected = [(i, f"retention/{j}") for i in range(3) for j in range(i + 1)]
        assert [(r.learned_to, r.tested_on) for r in rows] == expected
        assert [r.n for r in rows if r.learned_to == 2] == [len(s["test"]) for s in STREAM.steps]

    def test_further_shifts_are_scored_in_the_same_pass(self) -> None:
        both = evaluate(STREAM, "near-future", ["nearest-mean"], settings={**QUICK, "also": "0+200"})["results"][0]
        alone = evaluate(STREAM, "near-future", ["nearest-mean"], settings={**QUICK, "shift": 200})["results"][0]
        assert both["measures"]["shift_0"]["mean"] == both["scores"]["online"]["mean"]
        assert both["measures"]["shift_200"]["mean"] == alone["scores"]["near_future"]["mean"]

    def test_learners_that_walk_together_have_the_rows_of_each_alone(self) -> None:
        together = evaluate(STREAM, "near-future", ["fc-only", "ace", "acm"], seeds=[0, 1], settings=QUICK)
        for i, name in enumerate(["fc-only", "ace", "acm"]):
            alone = evaluate(STREAM, "near-future", [name], seeds=[0, 1], settings={**QUICK, "abreast": 1})
            assert alone["results"][0]["scores"] == together["results"][i]["scores"]
            assert alone["results"][0]["matrix"] == together["results"][i]["matrix"]

    @pytest.mark.proof("matrix")
    def test_one_batch_of_one_is_rivers_delayed_progressive_validation(self) -> None:
        """Delay 8 there is S = 7 here; a delay of 1 is S = 0 [spec: near-future, section 1]."""
        from river.dummy import NoChangeClassifier
        from river.evaluate import progressive_val_score
        from river.metrics import Accuracy

        train = STREAM.flat("train")
        for shift in (0, 7):
            samples = (({"i": i}, int(label)) for i, label in enumerate(train.y))
            stored = progressive_val_score(
                samples, NoChangeClassifier(), Accuracy(), moment=None, delay=shift + 1 if shift else None
            ).get()
            mine = [
                (n, k)
                for where, n, k, _ in rows_of(LEARNERS["blind"](k=1), shift=shift, batch=1, points=1000)
                if where == "near_future"
            ]
            n, right = sum(n for n, _ in mine), sum(k for _, k in mine)
            # river also asks the first S + 1 samples, of which it knows nothing and scores none or one.
            assert right / n == pytest.approx(stored, abs=1.5 * (shift + 1) / n)


def _blind_twin(y: np.ndarray, shift: int) -> list[int]:
    """For every sample from `shift` on, the mode of the last k labels before the shift, with the k that would have been
    right most often on the samples whose labels are known by then; 0 before any label."""
    known = [modes(y, k) for k in GRID]
    answers = []
    for i in range(shift, len(y)):
        last = i - shift - 1  # newest revealed label
        right = [sum(int(mode[j - shift - 1] == y[j]) for j in range(shift + 1, last + 1)) for mode in known]
        answers.append(int(known[int(np.argmax(right))][last]) if last >= 0 else 0)
    return answers


class TestBlind:
    LABELS = STREAM.flat("train").y[:300]

    def stream(self) -> Stream:
        train, test = STREAM.flat("train").part(0, 300), STREAM.steps[0]["test"]
        return Stream("start", [Step(0, "0", {"train": train, "test": test})], STREAM.classes, sha256="start")

    @pytest.mark.parametrize("delay", [0, 2])
    def test_it_uses_every_label_revealed_so_far_and_the_best_k_for_the_shift(self, delay: int) -> None:
        rows = rows_of(LEARNERS["blind"](), self.stream(), shift=7, also=40, batch=20, delay=delay)
        for name, shift in (("online", 0), ("near_future", 7), ("shift/40", 40)):
            unscored = shift + 20 * delay + 20  # asked before the first batch is learned
            twin = _blind_twin(self.LABELS, shift + 20 * delay)[20:]
            right = sum(a == b for a, b in zip(twin, self.LABELS[unscored:], strict=True))
            assert sum(k for where, _, k, _ in rows if where == name) == right, name


def _begun(name: str) -> Learner:
    learner: Learner = LEARNERS[name]()
    learner.begin(NearFuture(**QUICK).task(STREAM), rng_for(0))  # type: ignore[arg-type]
    return learner


class TestTheShift:
    def test_auto_is_the_smallest_at_which_labels_alone_do_not_help(self) -> None:
        found = evaluate(STREAM, "near-future", ["majority"])["results"][0]
        curve = blind_curve_of(STREAM)
        assert found["settings"]["shift"] == curve.suggested
        before = curve.shifts.index(curve.suggested) - 1 if curve.suggested is not None else 0
        assert curve.best[before] + curve.half_width[before] > curve.chance + 0.02
        assert found["told"]["blind"]["suggested_shift"] == curve.suggested

    def test_a_shift_at_which_labels_still_tell_is_warned_of(self) -> None:
        found = evaluate(STREAM, "near-future", ["majority"], settings={"shift": 2})["results"][0]
        assert found["told"]["shift_text"].startswith("At S = 2, labels alone help: ")
        assert "rewards learners that never look" in found["told"]["warning"]

    def test_a_stream_shorter_than_its_correlation_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        nowhere = dataclasses.replace(blind_curve_of(STREAM), suggested=None)
        monkeypatch.setattr("driftline.eval.protocols.near_future.protocol.blind_curve_of", lambda stream: nowhere)
        with pytest.raises(IncompatibleStream, match="above chance .* at every lookahead up to .*Set shift"):
            evaluate(STREAM, "near-future", ["majority"])


class TestBudgets:
    @pytest.mark.parametrize(
        ("name", "updates"),
        [
            *((name, updates) for name in ("agem", "fc-only", "ace", "finetune") for updates in (0.5, 1, 6)),
            *((name, updates) for name in ("ewc", "si", "lwf") for updates in (3, 6.5)),
        ],
    )
    def test_no_learner_takes_more_than_was_paid_for(self, name: str, updates: float) -> None:
        budget = evaluate(STREAM, "near-future", [name], settings={**QUICK, "updates": updates})["results"][0]["budget"]
        assert "overspent" not in budget
        cost = LEARNERS[name]().cost + LEARNERS[name]().batch_cost
        assert budget["updates_paid"] - cost < budget["updates_taken"] <= budget["updates_paid"]

    @pytest.mark.parametrize(("name", "least"), [("ewc", 3), ("si", 2), ("lwf", 2.67)])
    def test_a_pull_that_one_update_a_batch_cannot_feel_is_refused(self, name: str, least: float) -> None:
        """It would be finetuning under another name."""
        (skipped,) = evaluate(STREAM, "near-future", [name], settings={**QUICK, "updates": least - 0.1})["skipped"]
        assert skipped["because"].startswith("It pulls towards the weights from before a batch")
        assert f"Expected at least {least}, of which it makes two." in skipped["because"]

    @pytest.mark.parametrize(("name", "strength"), [("ewc", "strength"), ("si", "strength"), ("lwf", "weight")])
    def test_with_two_updates_a_batch_the_pull_is_felt(self, name: str, strength: str) -> None:
        settings = {**QUICK, "updates": 3, "lr": 1.0}
        free, pulled = (
            evaluate(STREAM, "near-future", [name], settings=settings | {f"{name}.{strength}": value})["results"][0]
            for value in (0.0, 100.0)
        )
        assert abs(free["scores"]["retention"]["mean"] - pulled["scores"]["retention"]["mean"]) > 0.1

    def test_ewc_pays_for_its_fisher_information_once_a_batch(self) -> None:
        learner = LEARNERS["ewc"]()
        learner.begin(Task(12, (8,), None, 64, 10), rng_for(0))
        train = STREAM.steps[0]["train"].part(0, 64)
        learner.learn(train.x, train.y)
        assert (learner.gradient_steps, learner.extra) == (9, 1)

    def test_larger_batches_of_its_own_buy_fewer_updates(self) -> None:
        settings = {**QUICK, "updates": 2, "fc-only.batch": 400}
        (found,) = evaluate(STREAM, "near-future", ["fc-only"], settings=settings)["results"]
        assert found["gradient_steps"] == 54 * 2 * 20 // 400
        assert "overspent" not in found["budget"]

    @pytest.mark.parametrize(("taken", "word"), [(3, "overspent"), (0.5, "underspent"), (0.95, ""), (0, "")])
    def test_one_that_takes_more_or_less_than_its_share_is_reported(self, taken: float, word: str) -> None:
        class Own(FcOnly):
            def learn_from(self, past: Past) -> None:
                self.extra += taken

        budget = evaluate(STREAM, "near-future", [Own], settings=QUICK)["results"][0]["budget"]
        assert {key: value for key, value in budget.items() if key.endswith("spent")} == ({word: taken} if word else {})

    @pytest.mark.parametrize(("name", "cost"), [("finetune", 1.0), ("lwf", 4 / 3), ("agem", 2.0), ("ewc", 2.0)])
    def test_what_an_update_costs_is_what_it_computes(self, name: str, cost: float) -> None:
        """In products of a two-layer network: forward 2, backward 3 (the first layer's inputs need no gradient)."""
        from torch.utils.flop_counter import FlopCounterMode

        from driftline.eval.engine.linear import LinearSettings, fit
        from driftline.eval.learners.regularised import Distil
        from driftline.eval.learners.replay import Project

        assert LEARNERS[name]().cost + LEARNERS[name]().batch_cost == cost
        train = STREAM.steps[0]["train"].part(0, 64)
        learner = LEARNERS[name](net="mlp", hidden=32, **({"mode": "separate"} if name == "ewc" else {}))
        learner.begin(Task(12, (8,), None, 64, cost if name == "ewc" else 10), rng_for(0))
        plain = LinearSettings(batch=64, epochs=1)
        with FlopCounterMode(display=False) as base:
            fit(learner.head, train.x, train.y, plain, rng_for(0))
        rules = {
            "lwf": lambda: Distil(learner.head.copy(), 1.0, 1.0),
            "agem": lambda: Project(*map(torch.from_numpy, (train.x, train.y)), 64, rng_for(0)),
        }
        with FlopCounterMode(display=False) as counted:
            if name == "ewc":
                learner.learn(train.x, train.y)
            else:
                fit(learner.head, train.x, train.y, plain, rng_for(0), rule=rules[name]() if name in rules else None)
        assert counted.get_total_flops() / base.get_total_flops() == pytest.approx(cost, rel=0.05)


class TestThePrefix:
    """What settings are chosen on is learned, and never scored."""

    def test_it_is_never_scored_at_any_shift(self) -> None:
        for prefix in (0, 37, 200):
            rows = rows_of(Diary(), shift=50, also=300, prefix=prefix)
            n = {name: sum(row[1] for row in rows if row[0] == name) for name in ("online", "near_future", "shift/300")}
            assert n == {"online": 1080 - max(20, prefix), "near_future": 1080 - max(70, prefix), "shift/300": 760}

    def test_all_scores_after_it_are_those_of_a_run_without_one(self) -> None:
        def scored(prefix: int, after: int) -> list[tuple[str, int, int, int]]:
            return [row for row in rows_of(Diary(), prefix=prefix, points=54) if row[3] > after]

        assert scored(200, after=200) == scored(0, after=200)

    def test_auto_is_a_third_of_a_short_stream_and_what_the_stream_sets_apart(self) -> None:
        auto = NearFuture(**{**QUICK, "prefix": "auto"})  # type: ignore[arg-type]
        assert auto.resolve(STREAM).prefix == 360
        assert auto.resolve(dataclasses.replace(STREAM, facts={"pretrain": 77})).prefix == 77

    def test_too_short_a_stream_has_none(self) -> None:
        auto = NearFuture(**{**QUICK, "prefix": "auto", "batch": 91})  # type: ignore[arg-type]
        assert auto.resolve(STREAM).prefix == 0
        assert evaluate(STREAM, "near-future", ["fc-only"], settings={"batch": 91, "shift": 0})["results"]

    def test_settings_are_chosen_on_its_samples_alone_under_the_same_budget(self) -> None:
        protocol = NearFuture(**{**QUICK, "prefix": 60, "updates": 3.0})  # type: ignore[arg-type]
        (within, part), *_ = protocol.trials(STREAM, rng_for(0), 0)
        assert (part.flat("train").x == STREAM.flat("train").x[:60]).all()
        assert within == dataclasses.replace(protocol, prefix=0, shift=30)

    @pytest.mark.parametrize(("updates", "in_all"), [(1.0, [15, 54]), (3.0, [45, 100]), (7.0, [105])])
    def test_on_a_short_one_candidates_also_have_a_hundred_updates_or_those_of_the_run(self, updates, in_all):
        """In 15 updates, a network at a small learning rate stays as it was."""
        protocol = NearFuture(**{**QUICK, "prefix": 300, "updates": updates})  # type: ignore[arg-type]
        trials = protocol.trials(STREAM, rng_for(0), 0)
        assert [within.updates * 300 / 20 for within, _ in trials] == pytest.approx(in_all)  # type: ignore[attr-defined]


class TestTheLearningRate:
    def result(self, *learners: object, **settings: object) -> list[dict[str, object]]:
        return evaluate(STREAM, "near-future", learners, settings={**QUICK, "prefix": 300, **settings})["results"]  # type: ignore[arg-type]

    def test_it_is_chosen_by_default_and_the_record_says_how(self) -> None:
        (found,) = self.result("fc-only")
        tried = found["selection"][0]["candidates"]  # type: ignore[index]
        best = max(tried, key=lambda candidate: candidate["online"])
        assert found["chosen"] == [{"lr": best["lr"]}]
        assert [candidate["lr"] for candidate in tried] == found["settings"]["tune"]["lr"]  # type: ignore[index]
        assert found["selection"][0]["samples"] == 300  # type: ignore[index]
        assert found["selection"][0]["updates"] == (300 + 1080) / 20 * len(tried)  # type: ignore[index]
        assert found["settings"]["lr"] == "auto"  # type: ignore[index]

    def test_without_a_prefix_it_is_clears(self) -> None:
        (found,) = self.result("fc-only", prefix=0)
        assert found["settings"]["lr"] == 1.0  # type: ignore[index]

    @pytest.mark.proof("matrix")
    def test_all_learners_of_a_table_have_one_momentum_and_draw_uniformly(self) -> None:
        found = self.result("finetune", "er-online", "fc-only", "ace", "cosine-fc", "agem")
        assert {r["settings"]["momentum"] for r in found} == {0.0}  # type: ignore[index]
        assert {r["settings"].get("sampler", "uniform") for r in found} == {"uniform"}  # type: ignore[index,attr-defined]

    @pytest.mark.parametrize(("name", "grid"), [("ewc", {"strength": [0.0, 1e4]}), ("agem", {"lr": [1e-6, 10.0]}),
                                                ("lwf", {"weight": [0.0, 100.0]})])  # fmt: skip
    def test_tune_lets_every_learner_train_under_the_budget(self, name: str, grid: dict[str, list[float]]) -> None:
        settings = {**QUICK, "prefix": 500, "updates": 6, "lr": 3.0}
        (found,) = evaluate(STREAM, "near-future", [name], settings=settings, tune=grid)["results"]
        scores = [candidate["online"] for candidate in found["selection"][0]["candidates"]]
        assert scores[0] != scores[1]
        assert found["selection"][0]["updates"] > 0

    def test_one_that_was_not_chosen_is_refused(self) -> None:
        with pytest.raises(BadConfig, match="lr of FcOnly is 'auto'"):
            rows_of(FcOnly(lr="auto"))


@pytest.mark.parametrize("name", few_of(ONLINE, ["fc-only", "er-online", "slda", "agem"]))
class TestEveryOnlineLearner:
    def test_killed_at_any_batch_it_ends_with_the_same_rows(self, name, tmp_path, monkeypatch):
        settings = {**QUICK, "shift": 20, "batch": 40, "updates": 3}
        evaluate(TEXTS, "near-future", [NARROW[name]], settings=settings, out=tmp_path / "whole")
        monkeypatch.setattr(checkpoint, "EVERY", 0.0)
        kind, asked = LEARNERS[name], 0
        literal = kind.learn_from

        def killed(learner: Learner, past: Past) -> None:
            nonlocal asked
            asked += 1
            if asked in (9, 16):
                raise KeyboardInterrupt
            literal(learner, past)

        monkeypatch.setattr(kind, "learn_from", killed)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                evaluate(TEXTS, "near-future", [NARROW[name]], settings=settings, out=tmp_path / "killed")
        evaluate(TEXTS, "near-future", [NARROW[name]], settings=settings, out=tmp_path / "killed")
        if kind.needs.single_samples:
            assert asked == 1080 + 16, "1,080 samples; the first batch, of 40, was interrupted twice"
        else:
            assert asked == 27 + 2, "27 batches, and the two that were interrupted once more: none was repeated"
        assert _rows(tmp_path / "whole") == _rows(tmp_path / "killed")
        assert not list(tmp_path.rglob("state.*"))


def _rows(folder: Path) -> list[object]:
    from driftline.eval.rows import find

    (run,) = find([folder])
    return [dataclasses.replace(row, seconds=0.0) for row in run.rows] + [run.about["gradient_steps"]]


def test_a_state_of_other_settings_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "EVERY", 0.0)
    keep = checkpoint.Checkpoint.keep
    monkeypatch.setattr(checkpoint.Checkpoint, "keep", lambda self, *state, final=False: keep(self, *state))
    evaluate(STREAM, "near-future", ["fc-only"], settings=QUICK, out=tmp_path)
    other = evaluate(STREAM, "near-future", ["fc-only"], settings={**QUICK, "lr": 0.1}, out=tmp_path)
    fresh = evaluate(STREAM, "near-future", ["fc-only"], settings={**QUICK, "lr": 0.1})
    assert other["results"][0]["scores"] == fresh["results"][0]["scores"]


class TestBadInput:
    def test_samples_out_of_order_are_refused_and_sorted_on_request(self) -> None:
        mixed = _changed(lambda s: s.take(rng_for(0).permutation(len(s))))
        with pytest.raises(IncompatibleStream, match="is older than the one before it.*--set sort=true"):
            evaluate(mixed, "near-future", ["majority"], settings=QUICK)
        sorted_, plain = (
            evaluate(s, "near-future", ["nearest-mean"], settings={**QUICK, "sort": True})["results"][0]["scores"]
            for s in (mixed, STREAM)
        )
        assert sorted_["near_future"] == plain["near_future"]
        assert sorted_["online"] == plain["online"]

    def test_a_stream_without_time_stamps_is_walked_as_it_lies(self) -> None:
        bare, timed = (
            evaluate(s, "near-future", ["nearest-mean"], settings=QUICK)["results"][0]["scores"]
            for s in (correlated(timed=False), STREAM)
        )
        assert bare == timed

    def test_too_short(self) -> None:
        with pytest.raises(IncompatibleStream, match="1080 training samples.*first 1090 .*Expected at least 1091"):
            evaluate(STREAM, "near-future", ["majority"], settings={**QUICK, "shift": 1070})

    def test_one_class(self) -> None:
        with pytest.raises(IncompatibleStream, match="one class only"):
            evaluate(_changed(lambda s: Split(s.x, np.zeros_like(s.y), s.ids, s.time)), "near-future", ["majority"])

    def test_no_held_out_samples(self) -> None:
        steps = [Step(s.index, s.name, {"train": s["train"]}) for s in STREAM.steps]
        with pytest.raises(IncompatibleStream, match="Step '0'.*no test split.*from-table --test-share"):
            evaluate(Stream("bare", steps, STREAM.classes), "near-future", ["majority"], settings=QUICK)

    @pytest.mark.proof("matrix")
    def test_classes_that_first_come_late_are_learned_from_then_on(self) -> None:
        """None of the first two steps or the prefix has a class above 5."""
        late = _changed(lambda s: s.take(np.flatnonzero(s.y < 6)), steps=2)
        assert set(late.steps[2]["train"].y.tolist()) - set(late.steps[1]["train"].y.tolist()) == set(range(6, 12))
        seen = ["acm", "nearest-mean", "fc-only", "er-online", "ace", "cosine-fc", "substrate"]
        others = [NARROW[name] for name in ONLINE if not (LEARNERS[name].needs.class_texts or name in seen)]
        settings = {**QUICK, "prefix": 300}
        assert not evaluate(late, "near-future", others, settings={**settings, "updates": 3})["skipped"]
        found = evaluate(late, "near-future", seen, settings={**settings, "updates": 5})
        last = {r["learner"]: r["matrix"][2][2] for r in found["results"]}
        assert set(last) == set(seen)
        old = float((late.steps[2]["test"].y < 6).mean())
        assert min(last.values()) > old + 0.1, (last, old)


def _changed(change, steps: int = 3) -> Stream:  # type: ignore[no-untyped-def]
    made = [
        Step(s.index, s.name, {k: change(v) for k, v in s.splits.items()} if s.index < steps else s.splits)
        for s in STREAM.steps
    ]
    return Stream("changed", made, STREAM.classes, sha256="changed")


def test_one_instance_learns_for_one_seed_after_the_other() -> None:
    """It is handed in once: two seeds that shared a pass would both teach it."""

    class Counts(Learner):
        def begin(self, task: Task, rng: np.random.Generator) -> None:
            self.batches = 0

        def predict(self, x: Array) -> Labels:
            return np.full(len(x), self.batches % 12)

        def learn(self, x: Array, y: Labels) -> None:
            self.batches += 1

    both = evaluate(STREAM, "near-future", [Counts(), "majority"], seeds=[0, 1], settings=QUICK)["results"][0]
    alone = evaluate(STREAM, "near-future", [Counts()], seeds=[1], settings=QUICK)["results"][0]
    assert both["scores"]["near_future"]["values"] == alone["scores"]["near_future"]["values"] * 2


def test_the_recall_of_an_index_is_not_of_samples_that_find_themselves() -> None:
    for name in ("acm", "substrate"):
        learner = LEARNERS[name](k=1, exact_below=200)
        learner.begin(Task(12, (8,)), rng_for(0))
        asked: list[int] = []
        literal = learner.memory.recall
        learner.memory.recall = lambda q, k: (asked.append(learner.memory.n), literal(q, k))[1]  # noqa: B023
        train = STREAM.flat("train")
        for low in range(0, 1000, 100):
            learner.learn(train.x[low : low + 100], train.y[low : low + 100])
        assert asked == [300, 600], "before the vectors are added, whenever it has doubled"
        assert learner.metadata()["recall"][0][0] == 300
