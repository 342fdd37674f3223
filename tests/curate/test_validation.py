"""Validation: what workers see, what they answer, and CLEAR's verdict in each of its interpretations."""

import csv
import io
import json
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from support.campaigns import answers_table
from support.pages import chromium_browser
from support.worlds import across_seeds, opaque, permuted, third_value

from driftline.curate.core.errors import BadConfig, BadInput
from driftline.curate.core.parsing import rows_of
from driftline.curate.retrieval.settings import BACKGROUND, Concept
from driftline.curate.validation.answers.answers import ANSWERS, read_answers, read_lines, uncounted
from driftline.curate.validation.answers.verdicts import (
    agreement,
    suggested_rejections,
    tally,
    verdict,
    verdicts_from_labels,
)
from driftline.curate.validation.asking.batches import question_html, question_page, read_batch, read_gold, write_batch
from driftline.curate.validation.asking.crowd import next_candidates, short_cells
from driftline.curate.validation.settings import ValidationSettings

CONCEPTS = [
    Concept(name="bus", prompts=("bus",), option="bus (exterior/interior)"),
    Concept(name="car", prompts=("car",), option="car"),
]
BATCH = {"batch": "b1", "items": {"i1": "p1", "i2": "p2"}, "concepts": ["bus", "car"]}


def read(paths: Sequence[Path], batch: dict[str, Any], key: str = "k") -> pa.Table:
    """Files → table, as in the tally stage."""
    lines = read_lines(paths)
    return read_answers(lines.get(batch["batch"], []), batch, key)


def results(path: Path, lines: Sequence[dict[str, str]]) -> Path:
    buffer = io.StringIO(newline="")
    header = list(dict.fromkeys(k for line in lines for k in line))
    writer = csv.DictWriter(buffer, header, quoting=csv.QUOTE_ALL)
    writer.writeheader()
    writer.writerows(lines)
    path.write_text(buffer.getvalue(), encoding="utf-8")
    return path


def line(item: str = "i1", worker: str = "W1", **answers: str) -> dict[str, str]:
    return {"WorkerId": worker, "Input.batch": "b1", "Input.item": item, **answers}


class TestBatch:
    def write(self, folder: Path, **settings: Any) -> dict[str, Any]:
        items = [(f"p{i}", f"image {i}".encode(), "jpg") for i in range(20)]
        plan = ValidationSettings(image_base_url="https://example.org/i/", **settings)
        return write_batch(items, CONCEPTS, folder, 0, plan, {"p3": frozenset({"bus"})})

    def test_no_file_for_workers_shows_the_expected_class(self, tmp_path: Path) -> None:
        self.write(tmp_path)
        rows = list(csv.DictReader((tmp_path / "batch.csv").open(newline="")))
        assert set(rows[0]) == {"batch", "item", "image_url"}
        for row in rows:
            assert not {"bus", "car"} & set(row["image_url"].replace("/", " ").replace(".", " ").split())
            assert (tmp_path / "images" / row["image_url"].rpartition("/")[2]).is_file()

    def test_rows_are_in_a_seeded_random_order(self, tmp_path: Path) -> None:
        self.write(tmp_path / "a")
        facts = self.write(tmp_path / "b")
        first, second = ((tmp_path / n / "batch.csv").read_bytes() for n in "ab")
        assert first == second
        rows = list(csv.DictReader((tmp_path / "a" / "batch.csv").open(newline="")))
        order = [facts["items"][row["item"]] for row in rows]
        assert len(set(order)) == 20
        assert read_batch(tmp_path / "a") == facts

    def test_the_order_of_rows_is_a_draw(self, tmp_path: Path) -> None:
        asked = [(id_, b"1", "jpg") for id_ in opaque(40, "batch")]

        def first_half(seed: int) -> list[str]:
            facts = write_batch(asked, CONCEPTS, tmp_path / str(seed), seed, ValidationSettings())
            rows = list(csv.DictReader((tmp_path / str(seed) / "batch.csv").open(newline="")))
            return [facts["items"][row["item"]] for row in rows[:20]]

        across_seeds(first_half, [id_ for id_, _, _ in asked])

    def test_the_page_has_plain_inputs_and_escapes_text(self) -> None:
        hostile = Concept(name="x", prompts=("x",), option='<script>alert(1)</script> "${env}"')
        page = question_page([*CONCEPTS, hostile])
        assert "<script" not in page
        assert page.count("${") == 1, "the address of the image is the only variable"
        names: list[str] = []

        class Reader(HTMLParser):
            def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
                if tag == "input":
                    names.append(f"{dict(attrs)['name']}={dict(attrs)['value']}")

        Reader().feed(page)
        assert names == ["labels=bus", "labels=car", "labels=x", "labels=none", "sensitive=yes", "sensitive=no"]
        assert "https:" not in page, "no script, style or font from another host"

    def test_none_of_the_above_excludes_all_others(self) -> None:
        """As in the paper's interface; both together would be a contradiction, and a lost vote."""
        with chromium_browser() as browser:
            page = browser.new_page()
            page.set_content(question_html(CONCEPTS))
            for tick, left in (("bus", ["bus"]), ("car", ["bus", "car"]), ("none", ["none"]), ("car", ["car"])):
                page.check(f"input[value={tick}]")
                ticked = page.eval_on_selector_all("input[name=labels]:checked", "boxes => boxes.map(b => b.value)")
                assert ticked == left

    def test_a_concept_may_not_have_the_name_of_the_exclusive_checkbox(self, tmp_path: Path) -> None:
        with pytest.raises(BadConfig, match="named 'none'"):
            write_batch([], [Concept(name="none", prompts=("x",))], tmp_path, 0, ValidationSettings())

    def test_a_gold_question_looks_like_other_questions(self, tmp_path: Path) -> None:
        facts = self.write(tmp_path)
        (item,) = facts["gold"]
        assert facts["items"][item] == "p3"
        for name in ("batch.csv", "page.html"):
            assert "gold" not in (tmp_path / name).read_text()

    def test_examples_are_shown_below_the_option(self) -> None:
        page = question_page(
            [Concept(name="bus", prompts=("bus",), option="bus", examples=("double-decker", "<b>coach</b>"))]
        )
        assert "for example double-decker, &lt;b&gt;coach&lt;/b&gt;" in page


class TestGold:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("id,label\np1,bus\n", "has no column labels"),
            ("id,labels\np1,plane\n", r"line 2: labels is 'plane'\. Expected some of bus, car"),
            ("id,labels\np1,none|bus\n", "line 2"),
            ("id,labels\np1,bus\np1,car\n", r"line 3: 'p1' has other labels in an earlier line"),
        ],
    )
    def test_a_bad_file_is_an_error_with_the_line(self, tmp_path: Path, text: str, message: str) -> None:
        (tmp_path / "gold.csv").write_text(text)
        with pytest.raises(BadInput, match=message):
            read_gold(tmp_path / "gold.csv", ["bus", "car"])

    def test_workers_who_fail_are_suggested_for_rejection(self) -> None:
        answers = answers_table(
            [(f"p{n}", w, [said]) for n in range(4) for w, said in (("ann", "bus"), ("eve", "car"))]
        )
        report = agreement(answers, {f"p{n}": frozenset({"bus"}) for n in range(4)})
        by = {row["worker"]: row for row in report["workers"]}
        assert (by["ann"]["gold_right"], by["eve"]["gold_right"]) == (1.0, 0.0)
        assert [a for a, _ in suggested_rejections(answers, report)] == [f"p{n} eve" for n in range(4)]
        few = agreement(answers, {"p0": frozenset({"bus"})})
        assert not suggested_rejections(answers, few), "one wrong answer is not evidence"

    def test_bots_are_suggested_for_rejection_with_the_reason(self) -> None:
        rows = [
            {"item": f"i{n}", "id": f"p{n}", "worker": w, "assignment": f"A{w}", "sensitive": False, "fault": None,
             "labels": ["car" if w == "line" else ("bus", "van")[n % 2]], "seconds": 0 if w == "fast" else 5}
            for n in range(12) for w in ("ann", "bob", "eve", "fast", "line")
        ]  # fmt: skip
        answers = pa.Table.from_pylist(rows, ANSWERS)
        assert dict(suggested_rejections(answers, agreement(answers))) == {
            "Afast": "0 seconds for an image, where 5 are typical",
            "Aline": "the same answer to all 12 images; 0% agree with others",
        }


class TestRounds:
    """Further candidates for classes with too few accepted images."""

    VERDICTS = pa.table(
        {
            "id": ["a", "b", "c", "d", "x", "x"],
            "bucket": [1, 1, 1, 1, 2, 2],
            "concept": ["bus", "bus", "car", "car", "bus", "car"],
            "decision": ["kept", "wrong_concept", "kept", "kept", "kept", "kept"],
        }
    )

    def test_an_image_of_two_concepts_counts_for_neither_cell(self) -> None:
        short = short_cells(self.VERDICTS, {"bus": 2, "car": 2}, [1, 2])
        assert short == {(1, "bus"): (1, 0.5), (2, "bus"): (2, 0.0), (2, "car"): (2, 0.0)}

    def test_the_number_of_next_candidates_follows_from_the_share_accepted(self) -> None:
        candidates = pa.table(
            {
                "id": ["b", "e", "f", "c", "u", "o", "g", "h", "n1", "n2"],
                "bucket": [1] * 10,
                "concept": ["bus"] * 8 + [BACKGROUND] * 2,
                "score": [0.5, 0.4, 0.38, 0.36, 0.34, 0.32, 0.2, 0.1, -0.2, -0.1],
                "rank": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
                "fate": ["kept", "surplus", "ambiguous", "near_copy", "user_cap", "unchecked", *["surplus"] * 2,
                         *["reserve"] * 2],
            }
        )  # fmt: skip
        found = next_candidates(candidates, {"b"}, {(1, "bus"): (1, 0.5), (1, BACKGROUND): (1, 1.0)})
        assert [(row["id"], row["concept"]) for row in found] == [("n1", BACKGROUND), ("e", "bus"), ("g", "bus")]
        assert next_candidates(candidates, {"b", "e", "g", "h"}, {(1, "bus"): (1, 0.5)}) == [], "no candidates remain"


class TestAnswers:
    @pytest.mark.parametrize(
        "answers",
        [
            {"Answer.labels": "bus|car"},
            {"Answer.labels.bus": "true", "Answer.labels.car": "on", "Answer.labels.x": "false"},
            {"Answer.labels": "['bus', 'car']"},
            {"Answer.taskAnswers": json.dumps([{"labels": {"bus": True, "car": True, "x": False}}])},
            {"Answer.taskAnswers": json.dumps([{"labels.bus": {"on": True}, "labels.car": {"on": True}}])},
            {"Answer.taskAnswers": json.dumps([{"labels": {"labels": ["bus", "car"]}}])},
        ],
    )
    def test_every_form_of_a_multiple_choice_answer_gives_the_same_labels(self, tmp_path, answers):
        table = read([results(tmp_path / "r.csv", [line(**answers)])], BATCH, "k")
        assert table["labels"].to_pylist() == [["bus", "car"]]
        assert table["id"].to_pylist() == ["p1"]

    def test_answers_that_do_not_count_keep_their_row_with_a_reason(self, tmp_path: Path) -> None:
        lines = [
            line(worker="A", **{"Answer.labels": "bus"}),
            line(worker="A", **{"Answer.labels": "car"}),
            line(worker="B", **{"Answer.labels": "none|bus"}),
            line(worker="C", **{"Answer.labels": ""}),
            line(worker="D", **{"Answer.labels": "plane"}),
            line(worker="E", **{"Answer.labels": "bus", "AssignmentStatus": "Rejected"}),
        ]
        table = read([results(tmp_path / "r.csv", lines)], BATCH, "k")
        faults = table["fault"].to_pylist()
        assert sorted(map(str, faults)) == ["None", "contradiction", "duplicate", "empty", "rejected", "unknown_label"]
        assert uncounted(read_lines([tmp_path / "r.csv"])["b1"], BATCH, "k") == (
            "6 read, 5 do not count: duplicate (1), first 'car' in r.csv, line 3; contradiction (1), "
            "first 'bus|none' in r.csv, line 4; empty (1), first '' in r.csv, line 5; "
            "unknown_label (1), first 'plane' in r.csv, line 6; rejected (1), first 'bus' in r.csv, line 7"
        )

    @pytest.mark.parametrize(
        ("text", "labels", "fault"),
        [
            (" Bus |CAR", ["bus", "car"], None),
            ("None", ["none"], None),
            ("nan", [], "empty"),
            ("car;bus", ["car;bus"], "unknown_label"),
        ],
    )
    def test_blanks_and_case_that_fit_one_option_are_read(self, text, labels, fault, tmp_path):
        table = read([results(tmp_path / "r.csv", [line(**{"Answer.labels": text})])], BATCH, "k")
        assert (table["labels"].to_pylist(), table["fault"].to_pylist()) == ([labels], [fault])

    @pytest.mark.parametrize("worker", ["", " ", "nan", "None"])
    def test_answers_without_a_worker_stand_alone(self, worker: str, tmp_path: Path) -> None:
        lines = [line(worker=w, **{"Answer.labels": "bus", "AssignmentId": str(n)}) for n, w in enumerate([worker] * 2)]
        table = read([results(tmp_path / "r.csv", lines), results(tmp_path / "again.csv", lines)], BATCH)
        assert sorted(map(str, table["fault"].to_pylist())) == ["None", "None", "duplicate", "duplicate"]

    @pytest.mark.parametrize(
        ("text", "said"), [("1.0", True), ("T", True), ("No", False), ("", False), ("nan", False), ("maybe", None)]
    )
    def test_a_truth_is_no_other_word(self, text: str, said: bool | None, tmp_path: Path) -> None:
        answers = {"Answer.labels": "bus", "Answer.sensitive": text}
        table = read([results(tmp_path / "r.csv", [line(**answers)])], BATCH)
        fault = "unreadable" if said is None else None
        assert (table["sensitive"].to_pylist(), table["fault"].to_pylist()) == ([bool(said)], [fault])

    def test_worker_ids_are_stored_only_as_keyed_hashes(self, tmp_path: Path) -> None:
        path = results(tmp_path / "r.csv", [line(worker="A1B2C3", **{"Answer.labels": "bus"})])
        one, two = (read([path], BATCH, key)["worker"][0].as_py() for key in ("k1", "k2"))
        assert "A1B2C3" not in one
        assert one != two

    def test_an_image_never_asked_is_refused(self, tmp_path: Path) -> None:
        path = results(tmp_path / "r.csv", [line(item="zzz", **{"Answer.labels": "bus"})])
        with pytest.raises(BadInput, match="'zzz' was never asked"):
            read([path], BATCH, "k")

    def test_missing_columns_are_named(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("HITId,WorkerId\n1,2\n")
        with pytest.raises(BadInput, match=r"no column Input\.batch"):
            read([tmp_path / "a.csv"], BATCH, "k")
        (tmp_path / "b.csv").write_text("Input.batch,Input.item,Input.image_url\nb1,i1,u\n")
        with pytest.raises(BadInput, match=r"no Answer\.\* column.*the batch and not its results"):
            read([tmp_path / "b.csv"], BATCH, "k")

    def test_a_line_without_a_cell_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "r.csv").write_text("Input.batch,Input.item,Answer.labels\nb1,i1\n")
        with pytest.raises(BadInput, match=r"line 2: wrong column count"):
            read([tmp_path / "r.csv"], BATCH)

    def test_columns_may_come_in_any_order(self, tmp_path: Path) -> None:
        one = line(**{"Answer.labels": "bus", "Answer.sensitive": "yes"})
        a = read([results(tmp_path / "a.csv", [one])], BATCH)
        b = read([results(tmp_path / "b.csv", [dict(reversed(one.items()))])], BATCH)
        assert a.equals(b)
        assert a["sensitive"].to_pylist() == [True]

    @pytest.mark.parametrize("value", [{"yes": True, "no": False}, "yes"])
    def test_both_forms_of_sensitive_in_crowd_elements_are_read(self, tmp_path: Path, value: object) -> None:
        text = json.dumps([{"labels": {"bus": True}, "sensitive": value}])
        table = read([results(tmp_path / "r.csv", [line(**{"Answer.taskAnswers": text})])], BATCH)
        assert table["sensitive"].to_pylist() == [True]


def ticks(*sets: str, sensitive: int = 0) -> list[tuple[frozenset[str], bool]]:
    return [(frozenset(s.split("+")) if s else frozenset(), i < sensitive) for i, s in enumerate(sets)]


class TestVerdict:
    @pytest.mark.parametrize(
        ("answers", "expected"),
        [
            (ticks("bus", "bus", "bus"), "kept"),
            (ticks("bus", "bus", "car"), "kept"),
            (ticks("bus", "car", "none"), "no_majority"),
            (ticks("bus", "bus", "car", "van"), "no_majority"),
            (ticks("bus", "bus", *["car"] * 7), "wrong_concept"),
            (ticks("car", "car", "bus"), "wrong_concept"),
            (ticks("none", "none", "bus"), "wrong_concept"),
            (ticks("bus", "bus+car", "bus+car"), "several_concepts"),
            (ticks("bus", "bus"), "pending"),
            (ticks("bus", "bus", "bus", sensitive=1), "held_for_review"),
            (ticks("bus", "bus", "bus", sensitive=2), "sensitive"),
        ],
    )
    def test_two_of_three_must_agree_on_the_single_expected_label(self, answers, expected):
        assert verdict(answers, "bus", ValidationSettings()) == expected

    def test_the_rules_exact_and_per_option_differ(self) -> None:
        answers = ticks("bus", "bus+car", "bus+lamp")
        assert verdict(answers, "bus", ValidationSettings(rule="exact")) == "no_majority"
        assert verdict(answers, "bus", ValidationSettings(rule="per-option")) == "kept"

    def test_half_of_people_and_judges_is_no_majority(self) -> None:
        assert verdict(ticks("bus", "bus", "car", "car"), "bus", ValidationSettings(), people=3) == "no_majority"

    def test_the_literal_text_keeps_images_that_two_workers_call_sensitive(self) -> None:
        literal = ValidationSettings(sensitive_drop=3, sensitive_hold=3)
        assert verdict(ticks("bus", "bus", "bus", sensitive=2), "bus", literal) == "kept"
        assert verdict(ticks("bus", "bus", "bus", sensitive=3), "bus", literal) == "sensitive"

    def test_background_is_none_of_the_above(self) -> None:
        assert verdict(ticks("none", "none", "bus"), BACKGROUND, ValidationSettings()) == "kept"

    def test_votes_and_agreement_stay_with_the_verdict(self) -> None:
        answers = answers_table([("p1", "a", ["bus"]), ("p1", "b", ["bus"]), ("p1", "c", ["car"])])
        (row,) = tally([{"id": "p1", "bucket": 1, "concept": "bus"}], answers, ValidationSettings()).to_pylist()
        assert json.loads(row["votes"]) == {"bus": 2, "car": 1}
        assert row["agreement"] == pytest.approx(2 / 3)

    def test_labels_of_the_source_can_replace_workers(self) -> None:
        items = [
            {"id": i, "bucket": 0, "concept": c}
            for i, c in (("a", "bus"), ("b", "bus"), ("c", BACKGROUND), ("d", BACKGROUND), ("e", "bus"))
        ]
        known = {"a": "Busse", "b": "Wagen", "c": "Hund", "d": "Busse", "e": None}
        found = verdicts_from_labels(items, known, {"bus": "Busse", "car": "Wagen"})["decision"].to_pylist()
        assert found == ["kept", "wrong_concept", "kept", "wrong_concept", "unlabelled"]


class TestThirdValue:
    """No majority, ties, missing answers: each image has one verdict, whatever the order of images and answers."""

    VERDICTS: ClassVar = {
        "agreed": "kept", "tie": "pending", "three ways": "no_majority", "none of them": "wrong_concept",
        "unclear": "wrong_concept", "sensitive": "sensitive", "one answer": "pending", "no answer": "pending",
    }  # fmt: skip

    def test_votes_give_each_kind_its_verdict(self) -> None:
        items, kinds, answers = third_value()
        found = dict(rows_of(tally(items, answers, ValidationSettings()), "id", "decision"))
        assert found == {id_: self.VERDICTS[kind] for id_, kind in kinds.items()}

    @pytest.mark.parametrize("aggregate", ["votes", "dawid-skene"])
    def test_nothing_is_kept_without_a_majority_and_order_does_not_matter(self, aggregate: str) -> None:
        items, kinds, answers = third_value()
        rules = ValidationSettings.model_validate({"aggregate": aggregate})
        first = dict(rows_of(tally(items, answers, rules), "id", "decision"))
        assert {kinds[id_] for id_, said in first.items() if said == "kept"} <= {"agreed"}
        assert {id_ for id_, said in first.items() if said == "pending"} == {
            id_ for id_, kind in kinds.items() if self.VERDICTS[kind] == "pending"
        }
        for other in permuted(range(len(answers))):
            found = tally(items[::-1], answers.take(other), rules)
            assert dict(rows_of(found, "id", "decision")) == first


class TestWeightedVerdicts:
    """Dawid–Skene instead of counting votes."""

    def many(self) -> tuple[list[dict[str, object]], pa.Table]:
        """Ann and Bob are always right on 40 images; Eve and Max say "car" to everything; on b0 they outvote Ann."""
        items = [{"id": f"b{n}", "bucket": 1, "concept": "bus"} for n in range(40)]
        rows = []
        for n, item in enumerate(items):
            who = ["ann", "eve", "max"] if n == 0 else ["ann", "bob", "eve"] if n % 2 else ["ann", "bob", "max"]
            truth = "bus" if n % 4 or n == 0 else "car"
            rows += [(str(item["id"]), w, [truth if w in ("ann", "bob") else "car"]) for w in who]
        return items, answers_table(rows)

    def test_workers_who_always_give_one_label_do_not_outvote_a_good_one(self) -> None:
        items, answers = self.many()
        votes = tally(items, answers, ValidationSettings())["decision"].to_pylist()
        weighed = tally(items, answers, ValidationSettings(aggregate="dawid-skene"))["decision"].to_pylist()
        assert (votes[0], weighed[0]) == ("wrong_concept", "kept")
        assert weighed[1:] == votes[1:]

    def test_an_expected_answer_that_is_not_probable_enough_is_unsure(self) -> None:
        yes, no = frozenset({"bus"}), frozenset({"car"})
        given = [(yes, False), (yes, False), (no, False)]
        rules = ValidationSettings(aggregate="dawid-skene", confidence=0.9)
        for p, found in ((0.9, "kept"), (0.9 - 1e-9, "unsure"), (0.3, "wrong_concept")):
            assert verdict(given, "bus", rules, {yes: p, no: 1 - p}) == found


def test_half_of_at_least_three_known_answers_right_is_no_reason_to_reject() -> None:
    def suspected(right: int, wrong: int) -> bool:
        said = ["bus"] * right + ["car"] * wrong
        rows = [(f"p{n}", w, [label]) for n, eve in enumerate(said) for w, label in (("ann", "bus"), ("eve", eve))]
        report = agreement(answers_table(rows), {f"p{n}": frozenset({"bus"}) for n in range(len(said))})
        return next(bool(row["suggest_reject"]) for row in report["workers"] if row["worker"] == "eve")

    assert not suspected(2, 2)
    assert suspected(1, 2)
    assert not suspected(0, 2)
    assert suspected(0, 3)


def test_judges_decide_nothing_that_people_answered_and_agreement_is_of_whole_answers() -> None:
    answers = answers_table([("p", "a", ["bus", "car"]), ("p", "b", ["bus", "car"]), ("p", "c", ["bus"])])
    items = [{"id": "p", "bucket": 0, "concept": "bus"}]
    (row,) = tally(items, answers, ValidationSettings(), decided={"p": frozenset({"bus"})}).to_pylist()
    assert row["decision"] == "several_concepts"
    assert row["agreement"] == pytest.approx(2 / 3)
