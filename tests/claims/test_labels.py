"""What the labels of a run claim, each as the experiment that would show the opposite."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from support.campaigns import answers_table, simulated

from driftline.curate.core.seeding import rng_for
from driftline.curate.retrieval.candidates import Lookup, choose
from driftline.curate.retrieval.exact_search import Ranked
from driftline.curate.retrieval.settings import Concept, RetrieveSettings
from driftline.curate.validation.answers.agreement import Votes, dawid_skene, worker_table
from driftline.curate.validation.answers.stored import options_of, page_changes
from driftline.curate.validation.answers.verdicts import agreement, verdict
from driftline.curate.validation.asking.batches import write_batch
from driftline.curate.validation.settings import ValidationSettings

BUS, CAR, VAN, NOTHING = (frozenset({name}) for name in ("bus", "car", "van", "none"))


def votes(*sets: frozenset[str]) -> list[tuple[frozenset[str], bool]]:
    return [(ticked, False) for ticked in sets]


class TestMajority:
    """2: `agree` and a strict majority, of all who were asked and of people."""

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


class TestProbabilities:
    """3: of images with a probability of .9 and more, as many are right as it says."""

    @pytest.mark.parametrize(
        ("items", "workers", "labels"), [(100, 20, 4), (100, 60, 4), (300, 20, 11), (200, 10, 8), (60, 5, 3)]
    )
    def test_probabilities_are_calibrated(self, items: int, workers: int, labels: int) -> None:
        claimed: list[float] = []
        right: list[bool] = []
        for seed in range(8):
            answers, truth = simulated(seed, items, workers, labels, 0.25)
            p = dawid_skene(answers, 100, 1e-6)
            sure = p.max(1) >= 0.9
            claimed += p.max(1)[sure].tolist()
            right += (p.argmax(1) == truth)[sure].tolist()
        error = math.sqrt(0.05 / len(right))
        assert len(right) > 100
        assert np.mean(claimed) - np.mean(right) < 0.02 + 2 * error

    def test_the_classical_model_is_not(self) -> None:
        answers, truth = simulated(0, 300, 60, 4, 0.25)
        p = dawid_skene(answers, 100, 1e-6, prior=0)
        sure = p.max(1) >= 0.9
        assert p.max(1)[sure].mean() - (p.argmax(1) == truth)[sure].mean() > 0.1

    def test_a_worker_with_one_answer_is_the_mean_worker(self) -> None:
        """Two strangers contradict two others once: nobody can be sure of either."""
        answers, _ = simulated(1, 200, 8, 3, 0.0)
        more = Votes(
            np.append(answers.items, [200, 200]), np.append(answers.workers, [8, 9]), np.append(answers.labels, [0, 1])
        )
        assert dawid_skene(more)[200].max() < 0.75

    def test_a_model_of_workers_keeps_nothing_without_the_vote_of_a_person(self) -> None:
        rules = ValidationSettings(aggregate="dawid-skene")
        joint = {BUS: 0.99, CAR: 0.01}
        assert verdict(votes(CAR, CAR, VAN, BUS, BUS), "bus", rules, joint, people=3) == "unsure"


class TestAgreement:
    """4: agreement is measured on a random or weighted sample, without the own answer, without gold, in order."""

    def test_a_worker_without_others_has_no_agreement(self) -> None:
        alone = Votes(np.arange(20), np.zeros(20, np.int64), np.zeros(20, np.int64))
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


# ---- which candidates are asked: shares of a bucket's span, and what later rounds ask


def lists(n: int) -> list[Ranked]:
    return [Ranked(np.arange(n), np.linspace(1, 0, n, dtype=np.float32))]


def rules_of(**values: Any) -> RetrieveSettings:
    return RetrieveSettings.model_validate(
        {"concepts": [{"name": "bus", "prompts": ["bus"]}], "background_share": 0, "depth": 400, **values}
    )


class TestLaterRounds:
    """7: what later rounds ask obeys the rules of the first."""

    def test_no_further_image_is_a_near_copy_of_another(self) -> None:
        vectors = np.eye(40, dtype=np.float32)[np.arange(400) % 40]
        lookup = Lookup(vectors=lambda rows: vectors[rows])
        chosen = choose(lists(400), [], rules_of(per_class=10, near_copy_cosine=0.9), lookup, reserve=True)
        fates = chosen.fates[0]
        assert [i % 40 for i, f in enumerate(fates) if f in ("kept", "surplus")] == list(range(40))
        assert fates.count("kept") == 10

    @pytest.mark.parametrize("overlap", ["highest", "discard", "allow"])
    def test_no_uploader_exceeds_the_cap_in_all_rounds(self, overlap: str) -> None:
        users = [f"u{min(i % 7, 3)}" for i in range(400)]  # heavy: most photos are of one
        lookup = Lookup(users=lambda rows: [users[r] for r in rows])
        chosen = choose(lists(400), [], rules_of(per_class=4, per_user=3, overlap=overlap), lookup, reserve=True)
        asked = Counter(users[i] for i, f in enumerate(chosen.fates[0]) if f in ("kept", "surplus"))
        assert asked == {"u0": 3, "u1": 3, "u2": 3, "u3": 3}


class TestShares:
    """8: equal parts of a bucket's span give equal shares, and what remains is drawn."""

    def shares(self, per_class: int, parts: int, seed: int, n: int = 200) -> list[int]:
        strata = np.sort(np.arange(n) % parts)[::-1]  # the best scores are in the last part
        lookup = Lookup(strata=lambda rows: np.asarray(strata[rows]), seed=seed)
        fates = choose(lists(n), [], rules_of(per_class=per_class, strata=parts), lookup).fates[0]
        asked = Counter(int(strata[i]) for i, f in enumerate(fates) if f == "kept")
        return [asked[k] for k in range(parts)]

    @pytest.mark.parametrize(("per_class", "parts"), [(12, 10), (7, 3), (30, 10), (5, 8)])
    def test_shares_differ_by_one_at_most(self, per_class: int, parts: int) -> None:
        shares = self.shares(per_class, parts, 0)
        assert sum(shares) == per_class
        assert max(shares) - min(shares) <= 1

    def test_the_remainder_is_drawn_by_the_seed(self) -> None:
        total = np.sum([self.shares(12, 10, seed) for seed in range(200)], 0)
        assert np.abs(total / 200 - 1.2).max() < 4 * math.sqrt(0.16 / 200)

    def test_a_part_without_images_gives_its_share_to_the_best_scores(self) -> None:
        assert sum(self.shares(12, 10, 0, n=8)) == 8
