"""What the labels of a run claim, each as the experiment that would show the opposite."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.campaigns import Campaign, answers_table, coverage

from driftline.curate.core.seeding import rng_for
from driftline.curate.retrieval.settings import Concept
from driftline.curate.store.answers import options_of, page_changes
from driftline.curate.validation.answers.agreement import Answers, dawid_skene, one_coin, worker_table
from driftline.curate.validation.answers.answers import ANSWERS, read_answers
from driftline.curate.validation.answers.verdicts import agreement, people_say, tally, verdict
from driftline.curate.validation.asking.batches import write_batch
from driftline.curate.validation.judging.guarantee import Sample, recall
from driftline.curate.validation.judging.opinions import opinion, table_of
from driftline.curate.validation.judging.panel import Panel
from driftline.curate.validation.judging.settings import JudgeSettings
from driftline.curate.validation.judging.student import cross_fitted
from driftline.curate.validation.judging.trust import judge_table
from driftline.curate.validation.settings import ValidationSettings

BUS, CAR, VAN, NOTHING = (frozenset({name}) for name in ("bus", "car", "van", "none"))


def votes(*sets: frozenset[str]) -> list[tuple[frozenset[str], bool]]:
    return [(ticked, False) for ticked in sets]


class TestGuarantee:
    """1: the precision of labels that nobody saw is the share that people would keep."""

    def test_the_bound_holds_in_95_percent_of_campaigns(self) -> None:
        """Ambiguous and sensitive photos, spammers, a judge that leans and one that drifts. Criterion: a bound that
        holds with probability .95 fails this test with a chance below 1 in 1,000."""
        cells, held, _ = coverage(80)
        chance, lost = 0.0, cells - held
        for k in range(lost, cells + 1):
            chance += math.comb(cells, k) * 0.05**k * 0.95 ** (cells - k)
        assert cells > 100
        assert chance > 0.001

    def test_photos_on_which_people_do_not_agree_are_not_left_out(self) -> None:
        campaign = Campaign(1, ambiguous=0.6, skip_confidence=0.51, audit_share=0.5)
        rows, table = campaign.run()
        for row in rows:
            if row["unseen"]:
                assert row["precision_low"] <= row["true_precision"] <= row["precision_high"]
                assert row["true_precision"] < 0.85
        assert all(row["agreement"] < 0.8 for row in table), "a judge is not right where people do not agree"

    def test_sensitive_photos_count_as_labels_that_people_would_not_keep(self) -> None:
        campaign = Campaign(3, ambiguous=0.0)
        calm, _ = campaign.run()
        place = campaign.everything.schema.get_field_index("sensitive")
        flags = pc.equal(campaign.everything["worker"], "w1")  # who answers three of ten photos
        campaign.everything = campaign.everything.set_column(place, "sensitive", flags)
        for before, after in zip(calm, campaign.run()[0], strict=True):
            assert not after["unseen"] or after["precision"] < before["precision"] - 0.05

    def test_an_audited_photo_that_nobody_answered_counts_against_judges(self) -> None:
        campaign = Campaign(4, ambiguous=0.0)
        every = campaign.everything
        campaign.everything = every.slice(0, 0)
        rows, _ = campaign.run()
        assert all(row["precision"] in (None, 0.0) or row["unseen"] == 0 for row in rows)


class TestMajority:
    """2: `agree` and a strict majority, of all who were asked and of people."""

    def test_two_of_nine_are_no_majority(self) -> None:
        rules = ValidationSettings()
        assert verdict(votes(BUS, BUS, *[CAR] * 7), "bus", rules) == "wrong_concept"
        assert verdict(votes(BUS, BUS, CAR, VAN), "bus", rules) == "no_majority"
        assert verdict(votes(BUS, BUS, CAR), "bus", rules) == "kept"

    @pytest.mark.parametrize("rule", ["exact", "per-option"])
    def test_judges_that_always_say_yes_keep_nothing_that_people_doubt(self, rule: str) -> None:
        rules = ValidationSettings.model_validate({"rule": rule})
        for n in range(1, 8):
            assert verdict(votes(BUS, CAR, VAN, *[BUS] * n), "bus", rules, people=3) != "kept"
            assert verdict(votes(BUS, BUS, VAN, *[BUS] * n), "bus", rules, people=3) == "kept"

    def test_precision_does_not_fall_with_the_number_of_judges(self) -> None:
        rng = rng_for(0, "judges")
        truth = rng.random(1500) < 0.6
        people = [[BUS if t == (rng.random() < 0.8) else CAR for _ in range(3)] for t in truth]
        shares = []
        for n in range(4):
            kept = []
            for t, said in zip(truth, people, strict=True):
                judges = [BUS if rng.random() < 0.8 else CAR for _ in range(n)]
                if verdict(votes(*said, *judges), "bus", ValidationSettings(), people=3) == "kept":
                    kept.append(t)
            shares.append(np.mean(kept))
        assert min(shares) >= shares[0] - 0.01

    def test_the_audit_and_the_verdict_are_one_function(self) -> None:
        rng = rng_for(1, "sets")
        items = [{"id": f"p{i}", "bucket": 0, "concept": "bus"} for i in range(300)]
        rows = [(f"p{i}", w, sorted((BUS, CAR, NOTHING)[int(rng.integers(3))])) for i in range(300) for w in "abcd"]
        for agree in (1, 2, 3, 4):
            rules = ValidationSettings(workers=4, agree=agree)
            kept = [v == "kept" for v in tally(items, answers_table(rows), rules)["verdict"].to_pylist()]
            said = people_say(answers_table(rows), rules)
            assert kept == [said[item["id"]] == BUS for item in items]


def simulated(seed: int, items: int, workers: int, labels: int, spam: float) -> tuple[Answers, Any]:
    """Three answers an item; spammers guess, the others are right with .7 to .95."""
    rng = rng_for(seed, "workers")
    truth = rng.integers(0, labels, items)
    skill = np.where(rng.random(workers) < spam, 1 / labels, rng.uniform(0.7, 0.95, workers))
    rows = []
    for i in range(items):
        for w in rng.choice(workers, 3, replace=False).tolist():
            right = rng.random() < skill[w]
            rows.append((i, w, truth[i] if right else (truth[i] + rng.integers(1, labels)) % labels))
    return Answers(*np.array(rows, np.int64).T), truth


class TestProbabilities:
    """3: of images with a probability of .9 and more, as many are right as it says."""

    @pytest.mark.parametrize(
        ("items", "workers", "labels"), [(100, 20, 4), (100, 60, 4), (300, 20, 11), (200, 10, 8), (60, 5, 3)]
    )
    @pytest.mark.parametrize("model", [dawid_skene, one_coin])
    def test_probabilities_are_calibrated(self, model: Any, items: int, workers: int, labels: int) -> None:
        claimed: list[float] = []
        right: list[bool] = []
        for seed in range(8):
            answers, truth = simulated(seed, items, workers, labels, 0.25)
            p = model(answers, 100, 1e-6).probabilities
            sure = p.max(1) >= 0.9
            claimed += p.max(1)[sure].tolist()
            right += (p.argmax(1) == truth)[sure].tolist()
        error = math.sqrt(0.05 / len(right))
        assert len(right) > 100
        assert np.mean(claimed) - np.mean(right) < 0.02 + 2 * error

    def test_the_classical_model_is_not(self) -> None:
        answers, truth = simulated(0, 300, 60, 4, 0.25)
        p = dawid_skene(answers, 100, 1e-6, prior=0).probabilities
        sure = p.max(1) >= 0.9
        assert p.max(1)[sure].mean() - (p.argmax(1) == truth)[sure].mean() > 0.1

    def test_a_worker_with_one_answer_is_the_mean_worker(self) -> None:
        """Two strangers contradict two others once: nobody can be sure of either."""
        answers, _ = simulated(1, 200, 8, 3, 0.0)
        more = Answers(
            np.append(answers.items, [200, 200]), np.append(answers.workers, [8, 9]), np.append(answers.labels, [0, 1])
        )
        assert dawid_skene(more).probabilities[200].max() < 0.75

    @pytest.mark.parametrize("aggregate", ["one-coin", "dawid-skene"])
    def test_a_model_of_workers_keeps_nothing_without_the_vote_of_a_person(self, aggregate: str) -> None:
        rules = ValidationSettings.model_validate({"aggregate": aggregate})
        joint = {BUS: 0.99, CAR: 0.01}
        assert verdict(votes(CAR, CAR, VAN, BUS, BUS), "bus", rules, joint, people=3) == "unsure"


class TestAgreement:
    """4: agreement is measured on a random or weighted sample, without the own answer, without gold, in order."""

    def test_judges_agreement_is_that_of_all_images_and_not_of_hard_ones(self) -> None:
        """Two judges, right on 90 %: people see what they disagree on, and a tenth of the others."""
        errors = []
        for seed in range(12):
            rng = rng_for(seed, "routing")
            n = 600
            items = [{"id": f"p{i:04d}", "bucket": i % 2, "concept": "bus"} for i in range(n)]
            truth = {item["id"]: "bus" if rng.random() < 0.8 else "car" for item in items}
            other = {"bus": "car", "car": "bus"}
            rows = [
                opinion(i["id"], int(i["bucket"]), j, [truth[i["id"]] if rng.random() < 0.9 else other[truth[i["id"]]]],
                        confidence=0.9)
                for i in items for j in ("a", "b")
            ]  # fmt: skip
            rules = ValidationSettings.model_validate(
                {"workers": 1, "agree": 1, "skip_people": "confident", "skip_confidence": 0.7,
                 "judges": [{"name": "a", "kind": "margin"}, {"name": "b", "kind": "margin"}]}
            )  # fmt: skip
            panel = Panel(rules, ("bus", "car"), table_of(rows), lambda ids: np.zeros((len(ids), 1)), seed)
            routes = panel.routes(items)
            seen = {i for i, r in routes.items() if r.to in ("people", "audit")}
            audited = {i for i, r in routes.items() if r.to == "audit"}
            answers = answers_table([(i, "w", [truth[i]]) for i in sorted(seen)])
            _, table, _ = panel.final_routes(items, answers, seen, audited)
            errors += [row["agreement"] - 0.9 for row in table]
            plain = judge_table(table_of(rows), people_say(answers, rules))
            assert np.mean([row["agreement"] for row in plain]) < 0.75, "people see hard images"
        assert abs(np.mean(errors)) < 0.02

    def test_a_worker_is_compared_with_others_only(self) -> None:
        """A spammer who answers everything, where two others of many answer each image."""
        rng = rng_for(0, "spammer")
        rows = []
        for i in range(300):
            rows.append((i, 0, int(rng.integers(4))))
            rows += [(i, 1 + int(w), i % 4) for w in rng.choice(100, 2, replace=False)]
        row = worker_table(Answers(*np.array(rows, np.int64).T))[0]
        assert row["agreement"] == pytest.approx(0.25, abs=0.06)

    def test_a_worker_without_others_has_no_agreement(self) -> None:
        alone = Answers(np.arange(20), np.zeros(20, np.int64), np.zeros(20, np.int64))
        assert worker_table(alone)[0]["agreement"] is None
        rows = answers_table([(f"p{i}", "only", ["bus"]) for i in range(20)])
        report = agreement(rows)
        assert report["fleiss_kappa"] is None
        assert report["workers"][0]["suggest_reject"] is False

    def test_leave_one_out_equals_a_loop(self) -> None:
        answers, _ = simulated(3, 80, 12, 4, 0.3)
        for row in worker_table(answers):
            shares = []
            own = answers.workers == row["worker"]
            for item, label in zip(answers.items[own], answers.labels[own], strict=True):
                others = Counter(answers.labels[(answers.items == item) & ~own].tolist())
                best = [name for name, n in others.items() if n == max(others.values())]
                shares.append((label in best) / len(best))
            assert row["agreement"] == pytest.approx(np.mean(shares))

    def test_kappa_and_alpha_are_of_images_without_known_answers(self) -> None:
        rng = rng_for(2, "gold")
        hard = [(f"p{i}", w, [("bus", "car")[int(rng.integers(2))]]) for i in range(100) for w in "abc"]
        easy = [(f"g{i}", w, ["none"]) for i in range(50) for w in "abc"]
        gold = {f"g{i}": NOTHING for i in range(50)}
        assert agreement(answers_table(hard + easy), gold)["krippendorff_alpha"] == pytest.approx(
            agreement(answers_table(hard))["krippendorff_alpha"]
        )
        assert agreement(answers_table(easy), gold)["krippendorff_alpha"] is None, "nothing but gold"

    def test_the_longest_run_is_in_the_order_of_answering(self) -> None:
        batch = {"batch": "b", "items": {f"i{n}": f"p{n}" for n in range(12)}, "concepts": ["bus", "car"]}
        order = rng_for(0, "order").permutation(12).tolist()
        lines = [
            ("f, line 1", {"Input.item": f"i{n}", "WorkerId": "w", "Answer.labels": "bus" if k < 6 else "car",
                           "SubmitTime": f"Thu Oct 09 07:30:{k:02d} PDT 2025"})
            for k, n in enumerate(order)
        ]  # fmt: skip
        table = read_answers(lines, batch, "k")
        assert agreement(table)["workers"][0]["longest_run"] == 6
        unknown = table.set_column(table.schema.get_field_index("time"), "time", pa.nulls(12, pa.float64()))
        assert agreement(unknown)["workers"][0]["longest_run"] is None, "a file that does not say when"


class TestPages:
    """6: an answer to another page is an answer to another question."""

    CONCEPTS = (Concept(name="bus", prompts=("bus",)), Concept(name="car", prompts=("car",)))

    def test_a_batch_has_another_name_if_the_page_offers_other_options(self, tmp_path: Any) -> None:
        asked, plan = [("p1", b"1", "jpg")], ValidationSettings()
        pages = [
            self.CONCEPTS[:1],
            self.CONCEPTS,
            (self.CONCEPTS[0], Concept(name="car", prompts=("x",), option="a car")),
        ]
        names = {write_batch(asked, page, tmp_path / str(n), 0, plan)["batch"] for n, page in enumerate(pages)}
        assert len(names) == 3
        assert write_batch(asked, pages[0], tmp_path / "again", 0, plan)["batch"] in names

    def test_who_did_not_see_an_option_has_not_answered_it(self) -> None:
        old, new = options_of(self.CONCEPTS[:1]), options_of(self.CONCEPTS)
        assert page_changes(old, new) == "'car' is new"
        assert not page_changes(new, new)
        assert not page_changes(new, old), "ticks of an option that is gone are left out"

    def test_another_text_is_another_option(self) -> None:
        other = options_of((self.CONCEPTS[0], Concept(name="car", prompts=("car",), examples=("taxi",))))
        assert page_changes(other, options_of(self.CONCEPTS)) == "the text of 'car' has changed"


class TestStudent:
    """9: a student has not seen an image's near copies, and recall counts what nobody decided."""

    def skill(self, groups: np.ndarray | None, seed: int) -> float:
        """Share right on noise, where each image has four copies with its label: without the copies there is nothing
        to learn."""
        rng = rng_for(seed, "copies")
        x = np.repeat(rng.normal(size=(50, 64)), 4, axis=0) + rng.normal(size=(200, 64)) * 0.01
        y = np.repeat(rng.integers(0, 2, 50), 4)
        said = cross_fitted(x, np.zeros(200, int), y, 2, 5, 10, seed, groups)
        return float((said.argmax(1) == y)[said.sum(1) > 0].mean())

    def test_near_copies_tell_nothing(self) -> None:
        groups = np.repeat(np.arange(50), 4)
        assert np.mean([self.skill(None, s) for s in range(5)]) > 0.75
        assert np.mean([self.skill(groups, s) for s in range(5)]) == pytest.approx(0.5, abs=0.08)

    def test_copies_that_nobody_answered_are_judged_without_their_copy(self) -> None:
        rng = rng_for(0, "unanswered")
        x = np.repeat(rng.normal(size=(60, 64)), 2, axis=0)
        y = np.repeat(rng.integers(0, 2, 60), 2)
        known = np.where(np.arange(120) % 2 == 0, y, -1)
        said = cross_fitted(x, np.zeros(120, int), known, 2, 5, 10, 0, np.repeat(np.arange(60), 2))
        assert np.allclose(said[::2], said[1::2]), "both copies by the same classifier, which saw neither"

    def test_one_uploader_of_everything_teaches_nothing(self) -> None:
        x = rng_for(0, "one").normal(size=(60, 4))
        said = cross_fitted(x, np.zeros(60, int), np.arange(60) % 2, 2, 5, 10, 0, np.zeros(60, int))
        assert (said == 0).all()

    def test_folds_of_heavy_uploaders_hold_every_group_once(self) -> None:
        rng = rng_for(0, "heavy")
        groups = np.minimum(rng.zipf(1.6, 300), 40)
        y = rng.integers(0, 3, 300)
        x = rng.normal(size=(300, 8)) + 4 * np.eye(8)[y]
        said = cross_fitted(x, np.zeros(300, int), y, 3, 5, 10, 0, groups)
        assert (said.argmax(1) == y).mean() > 0.9

    def test_recall_counts_images_that_nobody_could_pay(self) -> None:
        nothing = Sample(np.zeros(0), np.zeros(0), np.zeros(0))
        assert recall(40, nothing, nothing).value == 1
        half = recall(40, nothing, nothing, undecided=80, share=0.5)
        assert (half.value, half.low, half.high) == (0.5, pytest.approx(1 / 3), 1.0)
        assert math.isnan(recall(40, nothing, nothing, undecided=80).value), "nobody knows"


class TestBadInput:
    def test_all_answers_ambiguous_keep_nothing_and_claim_nothing(self) -> None:
        campaign = Campaign(0, ambiguous=1.0)
        rows, table = campaign.run()
        assert all(row["precision_low"] < 0.6 for row in rows if row["unseen"])
        assert all(row["agreement"] < 0.7 for row in table)

    def test_ids_in_any_order_give_the_same_labels(self) -> None:
        one, two = Campaign(2), Campaign(2)
        two.items = two.items[::-1]
        key = ("bucket", "labels", "unseen", "audited", "precision", "recall_low")
        first, second = ([[row[k] for k in key] for row in c.run()[0]] for c in (one, two))
        assert first == second

    def test_only_judges_decide_no_label_without_people(self) -> None:
        items = [{"id": "a", "bucket": 0, "concept": "bus"}]
        opinions = table_of(opinion("a", 0, j, ["bus"]) for j in "jkl")
        assert tally(items, ANSWERS.empty_table(), ValidationSettings(), opinions)["verdict"].to_pylist() == ["pending"]
        assert judge_table(opinions, {}) == []

    def test_one_class_alone_teaches_no_student(self) -> None:
        said = cross_fitted(np.ones((40, 2)), np.zeros(40, int), np.zeros(40, int), 1, 5, 10, 0)
        assert (said == 0).all()

    def test_many_classes_with_three_photos_are_named_wide(self) -> None:
        judges = [JudgeSettings(name="j", kind="margin")]
        rules = ValidationSettings(
            judges=tuple(judges), skip_people="confident", skip_confidence=0.6, workers=1, agree=1
        )
        items = [{"id": f"p{c}-{k}", "bucket": 0, "concept": f"c{c}"} for c in range(1000) for k in range(3)]
        rows = table_of(opinion(i["id"], 0, "j", [i["concept"]], confidence=0.9) for i in items)
        panel = Panel(rules, tuple(f"c{c}" for c in range(1000)), rows, lambda ids: np.zeros((len(ids), 1)), 0)
        routes = panel.routes(items)
        seen = {i for i, r in routes.items() if r.to == "audit"}
        answers = answers_table([(i, "w", [i.split("-")[0].replace("p", "c")]) for i in sorted(seen)])
        final = panel.final_routes(items, answers, seen, seen)
        guarantees = panel.guarantee(items, answers, seen, seen, final)
        assert len(guarantees) == 1000
        assert all(
            row["audited"] == 1 and row["precision"] is None and row["precision_low"] < 0.5 for row in guarantees
        )
