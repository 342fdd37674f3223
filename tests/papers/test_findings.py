"""docs/studies/findings.md: a row for each learner, tests that exist, and what no other test repeats of it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from support.helpers import example

from driftline.curate.core.registry import HOME
from driftline.eval.answers import answers
from driftline.eval.learner import Task
from driftline.eval.learners import LEARNERS
from driftline.eval.learners.river_logreg import RiverLogreg
from driftline.eval.run import evaluate

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "studies" / "findings.md").read_text(encoding="utf-8")
HEAD = "| {} | published | seen |"
SAID = ("**yes**", "**no**", "**in part**", "not run", "–")
DEFINED = {"majority", "random", "self-training"}  # definitions, and one that is seen on made data only
AGREES = {  # file → test against an independent implementation or the algorithm → learners
    "eval/test_closed_form.py": {
        "test_nearest_mean_is_scikit_learns": "nearest-mean",
        "test_simple_cil_is_the_mean_of_the_largest_cosine": "simple-cil",
        "test_slda_is_scikit_learns_lda": "slda",
        "test_slda_answers_as_the_papers_recursion": "slda",
        "test_ridge_is_scikit_learns": "ridge",
        "test_ridge_that_forgets_is_recursive_least_squares_with_a_forgetting_factor": "ridge",
        "test_random_features_approach_kernel_ridge_regression": "random-features",
        "test_ranpac_is_its_algorithm_with_the_penalty_of_its_held_out_samples": "ranpac",
        "test_fecam_is_its_algorithm": "fecam",
        "test_knn_without_decay_and_with_one_neighbour_is_the_nearest_and_with_decay_the_newest_wins": "knn",
    },
    "eval/test_linear.py": {
        "test_equals_the_loop_a_user_would_write": "joint scratch",
        "test_replay_fills_half_of_every_batch_and_uses_all_of_the_memory": "er",
    },
    "eval/test_zero_shot.py": {
        "test_zero_shot_is_the_largest_cosine_with_the_mean_text": "zero-shot",
        "test_wise_ft_lies_between_the_zero_shot_head_and_the_trained_one": "text-probe wise-ft",
    },
    "eval/test_late_classes.py": {
        "test_napping_never_answers_with_it": "nap",
    },
    "papers/test_avalanche.py": {
        "test_each_learner_is_nearest_to_avalanches_of_the_same_name": (
            "finetune cumulative er gdumb agem ewc si lwf cwr"
        ),
    },
    "eval/test_memory.py": {
        "test_the_biased_reservoir_keeps_what_algorithm_1_keeps": "reservoir",
    },
    "eval/test_replay.py": {
        "test_der_is_the_gradient_of_its_loss": "der der++",
        "test_herding_is_algorithm_4": "icarl",
        "test_icarl_keeps_its_memory_and_answers_with_the_nearest_mean_of_exemplars": "icarl",
    },
    "eval/test_methods.py": {
        "test_the_projection_never_points_against_the_memory": "agem",
        "test_fisher_is_the_mean_of_squared_single_sample_gradients": "ewc si",
        "test_the_path_integral_is_what_the_loss_fell_by": "ewc si",
        "test_the_distillations_gradient": "lwf",
        "test_cwr_star_merges_by_how_often_a_class_was_seen": "cwr",
    },
    "eval/test_online.py": {
        "test_it_is_the_mode_of_the_last_k": "blind",
        "test_float32_equals_linear_and_sgd": "overadapt fc-only er-online",
        "test_the_gradient_of_angles_is_autograds": "cosine-fc",
        "test_an_update_of_ace_follows_its_two_losses": "ace",
        "test_it_is_scikit_learns": "acm",
    },
    "papers/test_ocrr.py": {
        "test_what_is_trained_is_near": "static-linear online-linear bounded-reservoir knn-lm",
        "test_what_draws_nothing_is_the_references_to_the_last_digit": (
            "substrate substrate-k1 substrate-sumsim substrate-count-only substrate-no-recency static-knn bounded-fifo"
        ),
    },
    "papers/test_findings.py": {
        "test_rivers_weights_answer_as_river": "river-logreg",
    },
    "eval/test_knn.py": {
        "test_faiss_names_the_same_neighbours": "knn",
    },
    "eval/test_texts.py": {
        "test_scores_and_a_correction_are_those_of_the_plain_network_with_w_plus_ba": "lora",
        "test_only_adapters_and_the_classifier_learn": "lora",
        "test_it_shows_the_nearest_examples_and_reads_the_class": "llm",
    },
    "papers/test_seq_to_final.py": {
        "test_after_red_tints_history_is_nearly_as_good_as_the_oracle": "baseline oracle",
        "test_learning_all_history_then_adapting_is_no_worse_than_step_after_step": "ft",
        "test_a_probe_then_fine_tuning_is_among_the_best_after_a_label_flip": "lp-ft",
    },
    "eval/test_finetuning.py": {
        "test_weights_of_samples_weigh_their_losses": "erm",
        "test_irm_is_its_definition": "irm",
        "test_dro_follows_the_worst_batch_alone": "dro d-ft",
        "test_the_papers_code_shows_irm_the_final_step_as_history": "i-ft",
        "test_linear_rates_stay_positive_in_any_number_of_steps": "sft sft-linear sft-exponential",
        "test_as_many_stages_are_made_as_are_counted": "sft sft-linear sft-exponential",
        "test_fisher_of_single_samples_is_the_mean_squared_gradient": "seq-ewc",
        "test_a_pull_adds_the_gradient_of_its_term": "seq-ewc",
        "test_tied_times_are_erm_on_all_steps": "jm",
        "test_times_without_a_tie_are_the_baseline": "jm",
        "test_parts_that_do_not_go_together": "to-final",
    },
    "eval/test_nets.py": {
        "test_side_modules_at_zero_leave_the_frozen_network": "st-1 sst-1 jst-1 st-b sst-b jst-b",
    },
}


def rows(kind: str) -> list[list[str]]:
    """The cells of all tables of a kind."""
    parts = PAGE.split(HEAD.format(kind) + "\n")[1:]
    lines = [line for part in parts for line in part.partition("\n\n")[0].splitlines()[1:]]
    return [[cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split(" | ")] for line in lines]


def test_every_learner_has_its_row() -> None:
    named = [name for cells in rows("learner") for name in re.findall(r"`([^`]+)`", cells[0])]
    assert sorted(named) == sorted(name for name in LEARNERS if LEARNERS.entry(name).origin == HOME)


def test_every_learner_agrees_with_an_implementation_or_its_algorithm_in_a_test_that_exists() -> None:
    compared = set()
    for file, tests in AGREES.items():
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        for test, names in tests.items():
            assert f"def {test}(" in text, (file, test)
            compared |= set(names.split())
    named = [name for cells in rows("learner") for name in re.findall(r"`([^`]+)`", cells[0])]
    assert compared | DEFINED == set(named)


def test_every_row_says_what_is_published_and_what_was_seen() -> None:
    for name, published, seen in rows("learner"):
        assert published, name
        assert seen.startswith(SAID), (name, seen)


def test_what_was_seen_names_a_command_of_the_page() -> None:
    commands = set(re.findall(r"^### (\w+)", PAGE, re.MULTILINE))
    for name, _, seen in rows("learner"):
        if not seen.startswith(("not run", "–")):
            named = re.findall(r"\(([A-Z][a-z]+)\)", seen)
            assert named, (name, seen)
            assert set(named) <= commands, (name, named)


@pytest.mark.shared(twin="tests/eval/test_replay.py::test_replay_forgets_less_than_finetuning")
def test_er_ace_keeps_old_classes_where_er_gives_them_up(shared: Path) -> None:
    """Caccia et al. 2022, abstract: gains where new classes appear. One of three seeds, a fifth of the samples."""
    stream = example("findings").intents(shared)
    names = [f"{name}(sampler=mixed,memory=77,batch=20,lr={lr})" for name in ("er-online", "ace") for lr in (10, 30)]
    results = evaluate(stream, "clear-iid", names)["results"]
    of = [result["scores"]["accuracy"]["mean"] for result in results]
    assert max(of[2:]) > max(of[:2]) + 0.03, of


def test_rivers_weights_answer_as_river() -> None:
    """`river-logreg` reads river's weights for a whole batch; river itself answers one sample after the other."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 5)).astype(np.float32), rng.integers(0, 3, 60)
    learner = RiverLogreg()
    learner.begin(Task(3, (5,)), rng)
    learner.learn(x, y)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    alone = [learner.model.predict_one(dict(enumerate(row.tolist()))) for row in unit]
    assert answers(learner, x, len(x)).tolist() == alone
