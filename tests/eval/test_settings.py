"""Settings of learners and protocols are checked against their dataclass fields, before any work."""

from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

import numpy as np
import pytest
from pydantic import AfterValidator, Field
from support.console import handed, inside
from support.helpers import correlated, drifting

from driftline.curate.core.errors import BadConfig, Diverged
from driftline.curate.core.seeding import rng_for
from driftline.eval.experiment.presets import PRESETS
from driftline.eval.experiment.tune import choice_text
from driftline.eval.learner import Array, Labels, Learner, Task
from driftline.eval.learners import LEARNERS
from driftline.eval.learners.online import FcOnly
from driftline.eval.protocol import PROTOCOLS
from driftline.eval.protocols.clear import Iid
from driftline.eval.protocols.ocrr.protocol import Ocrr
from driftline.eval.run import evaluate
from driftline.eval.settings import Setting, check_instance, check_settings, described, setting_names
from driftline.eval.training.sgd_learner import RATES
from driftline.stream_builder.stream import Stream

if TYPE_CHECKING:
    from nowhere import Missing  # type: ignore[import-not-found]


def even(value: int) -> int:
    if value % 2:
        raise ValueError("an even number")
    return value


class Plain:
    pass


@dataclass
class Kind:
    memory: Annotated[int, Field(ge=0)] = 0
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    mode: Literal["online", "separate"] = "online"
    lr: float | None = None
    shift: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    size: Annotated[int, AfterValidator(even)] = 2
    name: str = ""
    model: Plain | None = None
    sloppy: list[str] = None  # type: ignore[assignment]
    names: list[str] = field(default_factory=list)
    counted: int = field(default=0, init=False)


@dataclass
class Unresolved:
    other: "Missing" = None


GOOD = {
    "memory": [0, 5],
    "share": [1, 0.25],
    "mode": ["separate"],
    "lr": [None, 1, 0.1],
    "shift": [0, "auto"],
    "model": [Plain(), None],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in GOOD.items() for value in values])
def test_a_value_that_fits_is_returned_unchanged(key: str, value: Any) -> None:
    found = check_settings(Kind, {key: value})[key]
    assert found is value


BAD = [
    ("memory", -5, "memory is -5. Expected a number greater than or equal to 0."),
    ("memory", "abc", "memory is 'abc'. Expected a valid integer."),
    ("memory", "5", "memory is '5'. Expected a valid integer."),
    ("memory", True, "memory is True. Expected a valid integer."),
    ("share", 2, "share is 2. Expected a number less than or equal to 1."),
    ("share", float("nan"), "share is nan. Expected a finite number."),
    ("mode", "offline", "mode is 'offline'. Expected 'online' or 'separate'."),
    ("lr", "fast", "lr is 'fast'. Expected a valid number."),
    ("shift", "far", "shift is 'far'. Expected a valid integer or 'auto'."),
    ("size", 3, "size is 3. Expected an even number."),
    ("name", 3, "name is 3. Expected a valid string."),
    ("model", 3, "model is 3. Expected an instance of Plain."),
]


@pytest.mark.parametrize(("key", "value", "said"), BAD)
def test_a_value_that_does_not_fit_is_one_sentence(key: str, value: Any, said: str) -> None:
    with pytest.raises(BadConfig) as error:
        check_settings(Kind, {"lr": 0.1, key: value}, "kind")
    assert str(error.value) == f"kind: {said}"


def test_an_unknown_setting_is_answered_with_the_nearest() -> None:
    with pytest.raises(BadConfig, match=r"Kind: Unknown setting 'memry'\. Did you mean 'memory'\? Available: lr, mem"):
        check_settings(Kind, {"memry": 5})
    with pytest.raises(BadConfig, match=r"Unknown setting 'counted'\."):
        check_settings(Kind, {"counted": 1})
    with pytest.raises(BadConfig, match=r"Plain: Unknown setting 'x'\. Available: none\."):
        check_settings(Plain, {"x": 1})


def test_an_instance_is_checked_but_its_defaults_are_not() -> None:
    check_instance(Kind(names=["a"]))
    check_instance(Plain())
    with pytest.raises(BadConfig, match="mine: memory is -5"):
        check_instance(Kind(memory=-5), "mine")
    with pytest.raises(BadConfig, match=r"names is \[1\]"):
        check_instance(Kind(names=[1]))  # type: ignore[list-item]


def test_an_annotation_that_cannot_be_resolved_allows_every_value() -> None:
    assert check_settings(Unresolved, {"other": 3}) == {"other": 3}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_values_that_its_learners_and_protocols_take(name: str) -> None:
    for owners, settings in PRESETS[name].items():
        kinds = [PROTOCOLS[owner] if owner in PROTOCOLS else LEARNERS[owner] for owner in owners]
        for key, value in settings.items():
            takers = [kind for kind in kinds if key in setting_names(kind)]
            assert takers, key
            for taker in takers:
                check_settings(taker, {key: value})


def test_settings_are_described_by_the_docstrings_below_their_fields() -> None:
    @dataclass
    class Parent:
        """Parent."""

        lr: float = 0.5
        """learning
        rate"""
        notes: list[str] = field(default_factory=list)
        """no docstring of `made` below"""
        made: int = field(init=False, default=0)

    @dataclass
    class Child(Parent):
        """Child."""

        lr: float = 0.1
        must: int = field(kw_only=True)
        """has no default"""

    found = [(s.name, s.default, s.meaning) for s in described(Child)]

    notes = ("notes", "[]", "no docstring of `made` below")
    assert found == [("lr", "0.1", "learning rate"), notes, ("must", "required", "has no default")]
    assert described(make_dataclass("Bare", [("x", int, field(default=1))])) == [Setting("x", "1", "")]
    assert described(int) == []


# ---- tuning looks at samples that are not scored and at nothing else, and says what it chose


@dataclass
class Looks(Learner):
    """Right with knob 2; remembers everything that it was ever shown."""

    knob: int = 0
    seen: ClassVar[list[bytes]] = []

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.n = task.n_classes
        self.means: Any = None

    def predict(self, x: Array) -> Labels:
        if self.knob != 2 or self.means is None:
            return np.zeros(len(x), np.int64)
        return ((x[:, None] - self.means) ** 2).sum(-1).argmin(1)

    def learn(self, x: Array, y: Labels) -> None:
        Looks.seen += [row.tobytes() for row in x]
        self.means = np.stack([x[y == c].mean(0) for c in range(self.n)])


@pytest.mark.parametrize("splits", ["stream", "seeded"])
def test_the_best_candidate_is_chosen_and_recorded(splits: str) -> None:
    stream = drifting(steps=3)
    found = evaluate(stream, "clear-iid", [Looks()], [0, 1], {"splits": splits}, tune={"knob": [0, 2, 1]})["results"]
    assert [r["chosen"] for r in found] == [[{"knob": 2}, {"knob": 2}]]
    assert found[0]["settings"]["tune"] == {"knob": [0, 2, 1]}
    assert found[0]["scores"]["in_domain"]["mean"] > 0.6


@pytest.mark.parametrize(
    ("values", "chosen", "default"), [([3, 1, 2, 0], 2, False), ([3, 0, 1], 0, True), ([3, 1], 3, False)]
)
def test_among_equals_the_default_stays(values: list[int], chosen: int, default: bool) -> None:
    """Knob 2 is the best; all others give the same answers."""
    (found,) = evaluate(drifting(steps=3), "clear-iid", [Looks()], tune={"knob": values})["results"]
    assert found["chosen"] == [{"knob": chosen}]
    (selection,) = found["selection"]
    assert (selection["equal"], selection["default"]) == (1 if 2 in values else len(values), default)
    assert bool(choice_text(found)) is (2 not in values)


def test_a_rate_that_is_chosen_has_a_default_too() -> None:
    """Tests that every rate passes: the rate that a learner has by itself is kept."""
    stream = drifting(steps=3, drift=0, noise=0.01)
    (found,) = evaluate(stream, "clear-iid", ["finetune"], settings={"lr": "auto", "epochs": 20})["results"]
    assert found["chosen"] == [{"lr": 1.0}]
    assert found["selection"][0]["candidates"][0]["lr"] != 1
    assert found["selection"][0]["default"]


@pytest.mark.parametrize("name", ["clear-iid", "clear-streaming"])
def test_only_training_data_of_the_first_step_is_looked_at(name: str) -> None:
    stream = drifting(steps=3)
    ((_, part),) = PROTOCOLS[name]().trials(stream, rng_for(0), 0)
    first = stream.steps[0] if name == "clear-iid" else stream.steps[0].past()
    allowed = {row.tobytes() for row in first["train"].x}
    parts = [split.x for step in part.steps for split in step.splits.values()]
    assert {row.tobytes() for x in parts for row in x} == allowed
    assert sum(map(len, parts)) == len(allowed), "train and test of all parts are disjoint"
    assert [step["train"].time.max() for step in part.steps] == sorted(step["train"].time.max() for step in part.steps)


def test_with_seeded_splits_no_test_sample_is_tuned_on() -> None:
    """The split that tuning sees is the one that the protocol draws."""
    stream, protocol = drifting(steps=3), Iid("seeded")
    ((_, part),) = protocol.trials(stream, rng_for(4, "clear-iid", "walk"), 4)
    tuned_on = {row.tobytes() for step in part.steps for split in step.splits.values() for row in split.x}
    Looks.seen.clear()
    learner = Looks()
    learner.begin(protocol.task(stream), rng_for(0))
    rows = protocol.run(stream, learner, rng_for(4, "clear-iid", "walk"))
    while not Looks.seen:
        next(rows)
    assert set(Looks.seen) == tuned_on


def test_the_primary_score_decides() -> None:
    """Trained to a step and tested on the next: what a memory of earlier steps is good for shows."""
    found = evaluate(drifting(steps=3), "clear-iid", ["ewc"], settings={"epochs": 3}, tune={"lr": [1e-6, 1.0]})
    (selection,) = found["results"][0]["selection"]
    assert selection["score"] == Iid.primary == "next_domain"
    scores = [candidate["next_domain"] for candidate in selection["candidates"]]
    assert scores[0] != scores[1]
    assert found["results"][0]["chosen"] == [{"lr": [1e-6, 1.0][int(np.argmax(scores))]}]


def test_a_first_step_of_few_samples_is_no_ground_for_a_choice() -> None:
    found = evaluate(drifting(steps=2, n=6), "clear-iid", ["finetune"], tune={"lr": [0.1, 1.0]})
    assert "would be chosen on 6 training samples" in found["skipped"][0]["because"]


@dataclass
class Explodes(Looks):
    """Diverges with knob 1."""

    def learn(self, x: Array, y: Labels) -> None:
        if self.knob == 1:
            raise Diverged("It is not finite.")
        super().learn(x, y)


def test_a_candidate_that_diverges_is_skipped() -> None:
    stream = drifting(steps=2)
    found = evaluate(stream, "clear-iid", [Explodes()], tune={"knob": [1, 2]})["results"][0]
    assert found["chosen"] == [{"knob": 2}]
    bad = evaluate(stream, "clear-iid", [Explodes()], tune={"knob": [1]})
    assert "diverged" in bad["skipped"][0]["because"]


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(BadConfig, match="--tune: Unknown setting 'knob'"):
        evaluate(drifting(steps=2), "clear-iid", ["majority"], tune={"knob": [1]})


def test_candidates_of_the_command_are_values_by_setting(tmp_path: Path) -> None:
    drifting().save(tmp_path / "S")
    words = ("eval", tmp_path / "S", "--protocol", "clear-iid", "--learners", "reservoir", "--out", tmp_path / "runs")
    found = handed("driftline.eval.run.plan", *words, "--tune", "lr=0.1, 1", "--tune", "reservoir.epochs=3")
    assert found["tune"] == {"lr": [0.1, 1], "reservoir.epochs": [3]}
    assert "Expected KEY=VALUE,VALUE" in inside(*words, "--tune", "lr=0.1,").stderr


class TestOcrr:
    def test_online_heads_choose_theirs_on_seed_data_and_the_papers_systems_keep_theirs(self) -> None:
        found = evaluate(correlated(steps=1), "ocrr", ["fc-only", "online-linear"], settings={"held_out": 3})
        results = {result["learner"]: result for result in found["results"]}
        assert results["fc-only"]["selection"][0]["score"] == "worst"
        assert results["online-linear"]["settings"]["lr"] == 0.01
        assert "chosen" not in results["online-linear"]

    @pytest.mark.parametrize("stream", [correlated(timed=False), correlated()], ids=["categorical", "temporal"])
    def test_what_they_choose_on_is_neither_novel_nor_a_test(self, stream: Stream) -> None:
        protocol = Ocrr()
        ((within, part),) = protocol.trials(stream, rng_for(0), 3)
        scenario, again = protocol.cut(stream, 3), cast(Ocrr, within).cut(part, 3)
        seed = set(map(bytes, scenario.seed.x))
        assert all(set(map(bytes, split.x)) <= seed for step in part.steps for split in step.splits.values())
        assert min(len(again.stream), len(again.novel)) > 0


def test_on_images_candidates_are_the_papers_rate_and_its_tenfolds() -> None:
    """[Near-future accuracy, supplement B.2 and figure 12]"""
    assert FcOnly(net="resnet18", lr="auto").candidates() == {"lr": [0.005, 0.05, 0.0005]}
    assert FcOnly(lr="auto").candidates() == {"lr": list(RATES)}
    assert FcOnly(lr=0.3).candidates() == {}
