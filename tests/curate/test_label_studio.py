"""Label Studio both ways: what we write follows its task format, and what it exports becomes answers."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from support.label_studio import FOLDER

from driftline.curate.core.errors import BadInput
from driftline.curate.retrieval.settings import Concept
from driftline.curate.validation.answers.answers import read_answers, read_lines
from driftline.curate.validation.asking.platforms import label_studio

CONCEPTS = [Concept(name="bus", prompts=("bus",), option='bus <"&>'), Concept(name="car", prompts=("car",))]
BATCH: dict[str, Any] = {"batch": "b1", "items": {"i1": "p1", "i2": "p2"}, "concepts": ["bus", "car"], "workers": 1}
ADDRESSES = {"i1": "https://x.example/i1.jpg", "i2": "https://x.example/i2.jpg"}


def written(folder: Path) -> list[dict[str, Any]]:
    label_studio(BATCH, ADDRESSES, CONCEPTS, folder)
    tasks: list[dict[str, Any]] = json.loads((folder / "tasks.json").read_text())
    return tasks


def annotated(task: dict[str, Any], labels: list[str], **values: Any) -> dict[str, Any]:
    """A task as Label Studio exports it [labelstud.io/guide/task_format]."""
    result = [
        {"id": "a", "from_name": name, "to_name": "image", "type": "choices", "origin": "manual",
         "value": {"choices": choices}}
        for name, choices in (("labels", labels), ("sensitive", ["no"]))
    ]  # fmt: skip
    annotation = {"id": 7, "completed_by": 10, "result": result, "was_cancelled": False, "ground_truth": False,
                  "lead_time": 4.288, "task": 1} | values  # fmt: skip
    return task | {"id": 1, "project": 83, "annotations": [annotation], "predictions": []}


def votes(folder: Path) -> list[tuple[str, list[str]]]:
    """(item, labels) of what counts in the exports of a folder."""
    table = read_answers(read_lines(folder.glob("*.json"))["b1"], BATCH, "k")
    rows = zip(*(table[name].to_pylist() for name in ("item", "labels", "fault")), strict=True)
    return [(item, labels) for item, labels, fault in rows if fault is None]


def one(who: int, label: str, day: int, number: int, **values: Any) -> dict[str, Any]:
    """An annotation of one person, changed last on a day of March."""
    times = {"created_at": "2026-03-01T08:00:00Z", "updated_at": f"2026-03-{day:02d}T09:30:00.123456Z"}
    task = annotated({}, [label], id=number, completed_by=who, **times, **values)
    return dict(task["annotations"][0])


@pytest.mark.parametrize("changed_first", [False, True])
def test_case_35_a_person_has_one_vote_for_a_task_the_newest(tmp_path: Path, changed_first: bool) -> None:
    tasks = written(tmp_path / "batch")
    both = [one(3, "bus", 1, 1), one(3, "car", 2, 2)]
    people = [*(both[::-1] if changed_first else both), one(4, "bus", 1, 3), one(5, "bus", 9, 4, was_cancelled=True)]
    guess = {"model_version": "m", "score": 1.0, "result": one(6, "bus", 1, 5)["result"]}
    task = tasks[0] | {"id": 1, "annotations": people, "predictions": [guess]}
    (tmp_path / "a.json").write_text(json.dumps([task]))
    counted = votes(tmp_path)
    assert sorted(counted) == [("i1", ["bus"]), ("i1", ["car"])]
    (tmp_path / "b.json").write_text(json.dumps([task]))
    assert sorted(votes(tmp_path)) == sorted(counted), "a second export that has them again adds nothing"


def test_answers_of_deleted_accounts_are_those_of_different_people(tmp_path: Path) -> None:
    """Nulls and any Unicode in the fields of an export."""
    people = [one(3, "bus", 1, 1) | {"completed_by": None}, one(3, "car", 2, 2) | {"completed_by": {"email": None}}]
    odd = {"lead_time": None, "updated_at": None}
    people += [one(3, "car", 2, n) | odd | {"completed_by": f"Zoë\x00\u202e{n}"} for n in (8, 9)]
    task = written(tmp_path / "batch")[0] | {"annotations": people, "predictions": None, "meta": None}
    (tmp_path / "a.json").write_text(json.dumps([task]))
    assert sorted(votes(tmp_path)) == [("i1", ["bus"]), *[("i1", ["car"])] * 3]


def exported(folder: Path, **people: list[dict[str, Any]]) -> None:
    task = written(folder / "batch")[0]
    for name, given in people.items():
        (folder / f"{name}.json").write_text(json.dumps([task | {"id": 1, "annotations": given}]))


def test_a_project_exported_with_numbers_and_with_addresses_is_counted_once(tmp_path: Path) -> None:
    numbers = [one(3, "bus", 1, 7), one(4, "car", 1, 8)]
    later = one(3, "bus", 3, 9) | {"completed_by": {"id": 3, "email": "a@x.example"}}
    named = [annotation | {"completed_by": {"email": f"{annotation['id']}@x.example"}} for annotation in numbers]
    exported(tmp_path, a=numbers, b=named)
    assert sorted(votes(tmp_path)) == [("i1", ["bus"]), ("i1", ["car"])]
    exported(tmp_path, b=[named[0] | {"completed_by": later["completed_by"]}, named[1], later])
    assert sorted(votes(tmp_path)) == [("i1", ["bus"]), ("i1", ["car"])], "also what only one of them has"


@pytest.mark.parametrize(
    "again",
    [
        {"completed_by": 3.0},
        {"completed_by": "3"},
        {"completed_by": {"id": 3, "email": ""}},
        {"completed_by": {"id": 3, "email": "A@x.example"}},
        {"created_at": "2026-03-01T08:00:00.000000Z"},
        {"created_at": "2026-03-01T09:00:00+01:00", "completed_by": {"id": 3, "email": "a@x.example"}},
    ],
)
def test_a_project_exported_twice_has_each_person_once(tmp_path: Path, again: dict[str, Any]) -> None:
    numbers = [one(3, "bus", 1, 7), one(4, "car", 1, 8)]
    exported(tmp_path, a=numbers, b=[numbers[0] | again, numbers[1]], c=[numbers[0] | {"completed_by": "a@X.example"}])
    assert sorted(votes(tmp_path)) == [("i1", ["bus"]), ("i1", ["car"])]


@pytest.mark.parametrize(
    ("other", "votes_of"),
    [
        (one(3, "car", 5, 8), None),
        (one(3, "car", 2, 7), None),
        (one(3, "car", 2, 7) | {"created_at": "2026-03-01T08:00:01Z"}, None),
        (one(3, "car", 1, 7), [["bus"]]),  # changed between the exports: the newer one counts
        (one(3, "car", 5, 7), [["car"]]),
        (one(3, "bus", 5, 8), [["bus"]]),
        (one(4, "car", 5, 7), [["bus"], ["car"]]),
    ],
)
def test_a_number_that_answers_twice_may_be_two_people(tmp_path: Path, other: Any, votes_of: Any) -> None:
    exported(tmp_path, a=[one(3, "bus", 2, 7)], b=[other])
    if votes_of is None:
        with pytest.raises(BadInput, match=r"studio 3 answers 'bus' to the image i1 in .*a.json, .*the same person"):
            votes(tmp_path)
    else:
        assert sorted(labels for _, labels in votes(tmp_path)) == votes_of


def test_case_35_regions_of_another_kind_are_no_choice(tmp_path: Path) -> None:
    region = {"from_name": "labels", "type": "labels", "value": {"labels": ["bus"]}}
    task = written(tmp_path / "batch")[0] | {"annotations": [one(3, "bus", 1, 1) | {"result": [region]}]}
    (tmp_path / "a.json").write_text(json.dumps([task]))
    assert votes(tmp_path) == []


def test_label_studios_own_sdk_accepts_these_files_and_its_export_becomes_answers(tmp_path: Path) -> None:
    """The SDK checked the fixture's tasks and interface, and wrote its export: support/label_studio.py."""
    written(tmp_path)
    for name in ("tasks.json", "config.xml"):
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()
    table = read_answers(read_lines([FOLDER / "export.json"])["b1"], BATCH, "k")
    assert table["labels"].to_pylist() == [["bus"], ["none"]]
    assert table["sensitive"].to_pylist() == [False, True]
    assert table["seconds"].to_pylist() == [4, 4]
    assert table["fault"].to_pylist() == [None, None]


def test_the_interface_names_what_is_read(tmp_path: Path) -> None:
    written(tmp_path)
    view = ElementTree.parse(tmp_path / "config.xml").getroot()
    questions = {c.get("name"): [o.get("alias") for o in c] for c in view.iter("Choices")}
    assert questions == {"labels": ["bus", "car", "none"], "sensitive": ["no", "yes"]}
    assert next(view.iter("Choice")).get("value") == 'bus <"&>'
    assert {c.get("toName") for c in view.iter("Choices")} == {view.find("Image").get("name")}  # type: ignore[union-attr]


def test_a_skipped_task_is_no_answer_and_an_odd_result_does_not_count(tmp_path: Path) -> None:
    tasks = written(tmp_path)
    odd = annotated(tasks[1], ["bus"], result=[{"from_name": "labels", "value": {"choices": "bus"}}, 3])
    (tmp_path / "e.json").write_text(json.dumps([annotated(tasks[0], ["bus"], was_cancelled=True), odd]))
    table = read_answers(read_lines([tmp_path / "e.json"])["b1"], BATCH, "k")
    assert table["fault"].to_pylist() == ["empty"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no", "is not JSON"),
        ("<!doctype html><title>Log in</title>", "is not JSON"),
        ('{"detail": "Invalid token.", "status_code": 401}', "holds no list"),
        ("[null]", "task 1 has no data.batch and data.item"),
        ("{}", "holds no list"),
        ('[{"data": {"image": "x"}, "annotations": []}]', "task 1 has no data.batch and data.item"),
        ('[{"data": {"batch": "b1", "item": "i1"}}]', "has no annotations"),
        ('[{"data": {"batch": "b1", "item": "i1"}, "annotations": [{}]}]', "an annotation has no result"),
    ],
)
def test_what_is_no_export_of_this_batch_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "e.json").write_text(text)
    with pytest.raises(BadInput, match=message):
        read_lines([tmp_path / "e.json"])
