"""Attacks on submissions: each is named in one sentence, and none gets onto a board."""

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.helpers import drifting
from support.submissions import Members, members_of, written

from driftline.curate.core.errors import DriftlineError
from driftline.eval.leaderboard.board import board
from driftline.eval.leaderboard.repeating import rescored
from driftline.eval.leaderboard.submission import pack
from driftline.eval.leaderboard.verification import Verdict, examined
from driftline.eval.learners import LEARNERS
from driftline.eval.run import evaluate
from driftline.stream_builder.stream import Stream

SENT = ["nearest-mean", "majority"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a stream and a submission of runs on it."""
    here = tmp_path_factory.mktemp("attacks")
    stream = drifting(drift=0.2).save(here / "S")
    evaluate(stream, "clear-iid", SENT, [0, 1], out=here / "runs")
    evaluate(stream, "ocrr", ["substrate"], [0], {"every": 20, "tests": 20}, out=here / "runs")
    pack([here / "runs"], "ours", here / "ours.zip")
    return here


def found(path: Path, stream: Path) -> str:
    """What the check says: its first problem, or its error."""
    loaded = Stream.load(stream)
    try:
        problems = examined(path, {loaded.sha256: loaded})["problems"]
    except DriftlineError as error:
        return str(error)
    return problems[0] if problems else ""


def about(members: Members, number: str = "0000", **changes: Any) -> None:
    name = f"runs/{number}/run.json"
    members[name] = json.dumps(json.loads(members[name]) | changes).encode()


def parquet(members: Members, name: str, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    table = pq.read_table(io.BytesIO(members[name]))
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(change(table.to_pylist()), schema=table.schema), sink)
    members[name] = sink.getvalue()


def rows(members: Members, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    parquet(members, "runs/0000/rows.parquet", change)


def records(members: Members, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    parquet(members, "runs/0000/outcomes.parquet", change)
    samples = pq.read_table(io.BytesIO(members["runs/0000/outcomes.parquet"]))["sample"].to_numpy().astype(np.int64)
    about = json.loads(members["runs/0000/run.json"])
    about["tests"] = hashlib.sha256(samples.tobytes()).hexdigest()[:12]  # whoever invents records names them, too
    members["runs/0000/run.json"] = json.dumps(about).encode()


def cell(**fields: Any) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    """The first row or record with other fields."""
    return lambda all_of_them: [all_of_them[0] | fields, *all_of_them[1:]]


def one_sample(members: Members) -> None:
    """Each test has one sample, which is right: an accuracy of 1."""
    kept: dict[int, dict[str, Any]] = {}

    def first(all_of_them: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for record in all_of_them:
            kept.setdefault(record["row"], record | {"predicted": record["label"]})
        return list(kept.values())

    def counts(all_of_them: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row | {"n": 1, "n_correct": 1, "class_n": [], "class_correct": []} for row in all_of_them]

    records(members, first)
    rows(members, counts)


def all_right(members: Members) -> None:
    """Invented rows, without records."""
    rows(members, lambda r: [row | {"n_correct": row["n"], "class_correct": row["class_n"]} for row in r])


def swapped(members: Members) -> None:
    """The rows and records of another learner."""
    for name in ("rows.parquet", "outcomes.parquet"):
        members[f"runs/0000/{name}"] = members[f"runs/0004/{name}"]


def twice(members: Members) -> None:
    """One run twice, to narrow the deviation."""
    for name in ("run.json", "rows.parquet", "outcomes.parquet"):
        members[f"runs/0009/{name}"] = members[f"runs/0000/{name}"]


def labels_of_its_own(members: Members) -> None:
    """Labels that are what was answered."""

    def change(all_of_them: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [record | {"label": record["predicted"]} for record in all_of_them]

    records(members, change)
    counts = pq.read_table(io.BytesIO(members["runs/0000/outcomes.parquet"])).to_pylist()

    def right(all_of_them: list[dict[str, Any]]) -> list[dict[str, Any]]:
        out = []
        for i, row in enumerate(all_of_them):
            labels = [record["label"] for record in counts if record["row"] == i]
            of_class = [labels.count(c) for c in range(max(labels, default=-1) + 1)]
            out.append(row | {"n_correct": row["n"], "class_n": of_class, "class_correct": of_class})
        return out

    rows(members, right)


def bomb(members: Members) -> None:
    """A file of a few kB with fifty million rows."""
    schema = pq.read_schema(io.BytesIO(members["runs/0000/rows.parquet"]))
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        row = {"tested_on": "0", "n": 1, "n_correct": 1, "class_n": [], "class_correct": []}
        whole = {name: row.get(name, 0) for name in schema.names}
        writer.write_table(pa.Table.from_pylist([whole], schema=schema).take(pa.array([0] * 300_000)))
    members["runs/0000/rows.parquet"] = sink.getvalue()


ATTACKS: dict[str, tuple[Callable[[Members], Any], str]] = {
    "invented rows": (all_right, "it says 30 right answers, its records have"),
    "one sample in each test": (one_sample, "its n is 1; the protocol gives 30"),
    "labels of its own": (labels_of_its_own, "its labels are not those of the stream"),
    "other samples": (lambda m: records(m, cell(sample=0)), "its samples are not those of the stream"),
    "rows of another learner": (swapped, "0000: "),
    "one row less": (
        lambda m: (rows(m, lambda r: r[:-1]), records(m, lambda r: [x for x in r if x["row"] < 19])),
        "0000: ",
    ),
    "other tests in a record": (lambda m: about(m, tests="x"), "its record names other tests than its outcomes"),
    "one row more": (lambda m: rows(m, lambda r: [*r, r[-1]]), "a row with right answers has no records"),
    "a negative count": (lambda m: rows(m, cell(n_correct=-1)), "row 0 has a count that is negative"),
    "not a number": (lambda m: rows(m, cell(recall=float("nan"))), "row 0 has a number that is not finite"),
    "infinite": (lambda m: rows(m, cell(seconds=float("inf"))), "row 0 has a number that is not finite"),
    "more right than tested": (lambda m: rows(m, cell(n_correct=31)), "31 right of 30"),
    "counts of classes": (lambda m: rows(m, cell(class_n=[30])), "counts of classes are not those of its records"),
    "learned later than it says": (lambda m: rows(m, cell(learned_to=3)), "its learned_to is 3; the protocol gives 0"),
    "tested on another step": (lambda m: rows(m, cell(tested_on="1")), "its tested_on is '1'"),
    "no outcomes of one row": (lambda m: records(m, lambda r: [x for x in r if x["row"]]), "has no records"),
    "swapped seed": (lambda m: about(m, "0004", seed=1), "not those of the stream"),
    "the same run twice": (twice, "is a run that is there twice"),
    "other protocol settings": (
        lambda m: about(m, protocol_settings={"splits": "seeded", "test_share": 0.3}),
        "its n is 30; the protocol gives",
    ),
    "unknown protocol setting": (lambda m: about(m, protocol_settings={"x": 1}), "Iid has no setting 'x'"),
    "other protocol": (lambda m: about(m, protocol="clear-streaming", protocol_settings={}), "the protocol gives"),
    "unknown learner": (lambda m: about(m, learner="winner"), "Unknown learner 'winner'"),
    "unknown protocol": (
        lambda m: about(m, protocol="clear-id"),
        "Unknown protocol 'clear-id'. Did you mean 'clear-iid'",
    ),
    "a module as learner": (lambda m: about(m, learner="os:system"), "names a Python module, which is not imported"),
    "a learner that is a book": (lambda m: about(m, learner="er" * 200), "a name of more than 300 characters"),
    "settings that are a list": (lambda m: about(m, settings=[]), "has no valid 'settings'"),
    "steps that are true": (lambda m: about(m, steps=True), "has no valid 'steps'"),
    "a million steps": (lambda m: about(m, steps=10**6), "has no valid 'timeline'"),
    "a stream without name": (lambda m: about(m, stream={}), "names no stream"),
    "a stream of a family that is a list": (
        lambda m: about(m, stream=json.loads(m["runs/0000/run.json"])["stream"] | {"family": []}),
        "cannot be scored",
    ),
    "a run that is no JSON": (lambda m: m.update({"runs/0000/run.json": b"{"}), "missing or no JSON"),
    "a run that is a list": (lambda m: m.update({"runs/0000/run.json": b"[]"}), "is no object"),
    "brackets": (lambda m: m.update({"runs/0000/run.json": b"[" * 10**5}), "missing or no JSON"),
    "rows that are no Parquet": (lambda m: m.update({"runs/0000/rows.parquet": b"PAR1"}), "is damaged"),
    "no rows": (lambda m: m.pop("runs/0000/rows.parquet"), "is missing"),
    "bytes that are a text": (lambda m: about(m, stored_bytes="5"), "has no valid 'stored_bytes'"),
    "no time at all": (lambda m: about(m, seconds=float("nan")), "has no valid 'seconds'"),
    "time that runs backwards": (lambda m: about(m, seconds=-1), "has no valid 'seconds'"),
    "millions of rows": (bomb, "has 300,000 rows. Expected at most 200,000"),
    "a path upwards": (lambda m: m.update({"../evil": b""}), "has a member '../evil'"),
    "an absolute path": (lambda m: m.update({"/etc/evil": b""}), "has a member '/etc/evil'"),
    "a path upwards within": (lambda m: m.update({"runs/0000/../../run.json": b""}), "has a member"),
    "a further file": (lambda m: m.update({"runs/0000/evil.py": b""}), "has a member 'runs/0000/evil.py'"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_named(name: str, made: Path, tmp_path: Path) -> None:
    attack, message = ATTACKS[name]
    members = members_of(made / "ours.zip")
    attack(members)
    said = found(written(tmp_path / "a.zip", members), made / "S")
    assert message in said
    assert len(said.replace(", ".join(sorted(LEARNERS)), "")) < 700, "besides the names of all that are known"
    assert "Traceback" not in said


def test_what_is_honest_holds(made: Path, tmp_path: Path) -> None:
    assert found(written(tmp_path / "a.zip", members_of(made / "ours.zip")), made / "S") == ""


@pytest.mark.parametrize(
    ("protocol", "learner", "settings"),
    [
        ("ocrr", "substrate", {"every": 20, "held_out": 1, "policy": "random_50+delayed:3"}),
        ("ocrr", "nearest-mean", {"every": 20, "held_out": 1, "policy": "random_50+wrong:0.2", "mix": 0.5}),
        ("near-future", "blind", {"shift": 30, "batch": 20, "prefix": 20, "delay": 1, "also": 60}),
        ("clear-streaming", "nearest-mean", {}),
        ("clear-iid", "nearest-mean", {"splits": "seeded"}),
    ],
)  # fmt: skip
def test_an_honest_run_under_any_protocol_is_what_its_answers_give(protocol, learner, settings):
    stream, runs = drifting(drift=0.3, classes=5, n=80, noise=1.5), []
    evaluate(stream, protocol, [learner], [3], settings, keep_run=runs.append)
    assert rescored(runs[0], stream) == ""


def test_a_changed_member_with_the_old_hash(made: Path, tmp_path: Path) -> None:
    members = members_of(made / "ours.zip")
    all_right(members)
    assert "was changed after it was packed" in found(written(tmp_path / "a.zip", members, hashed=False), made / "S")


def test_a_member_that_the_manifest_does_not_list(made: Path, tmp_path: Path) -> None:
    members = members_of(made / "ours.zip")
    members["runs/0099/run.json"] = b"{}"
    assert "is not in both manifest and file" in found(written(tmp_path / "a.zip", members, hashed=False), made / "S")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_one_name_twice(made: Path, tmp_path: Path) -> None:
    written(tmp_path / "a.zip", members_of(made / "ours.zip"))
    with zipfile.ZipFile(tmp_path / "a.zip", "a") as file:
        file.writestr("runs/0000/run.json", "{}")
    assert "has runs/0000/run.json twice" in found(tmp_path / "a.zip", made / "S")


def test_a_link(made: Path, tmp_path: Path) -> None:
    members = members_of(made / "ours.zip")
    members.pop("runs/0000/rows.parquet")
    written(tmp_path / "a.zip", members)
    link = zipfile.ZipInfo("runs/0000/rows.parquet")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "a") as file:
        file.writestr(link, "/etc/passwd")
    assert "is not in both manifest and file" in found(tmp_path / "a.zip", made / "S")


def test_a_zip_bomb(made: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("runs/0000/rows.parquet", bytes(300 * 2**20))
    assert (tmp_path / "a.zip").stat().st_size < 2**19
    assert "is too large" in found(tmp_path / "a.zip", made / "S")


def test_another_stream(made: Path, tmp_path: Path) -> None:
    """Its runs are not on it: they are unverified, and no board shows them as anything else."""
    other = drifting(steps=3).save(tmp_path / "other")
    runs = examined(made / "ours.zip", {other.sha256: other})["runs"]
    assert {run["unverified"] for run in runs} == {"its stream is not here"}


@pytest.mark.parametrize(
    "name",
    ["a\r\n# b", "a | b", "[x](http://evil)", "<img src=x>", "a\u202eb", "`x`", "www.e.vil", "@all"],
)
def test_a_name_is_no_markup(name: str, made: Path) -> None:
    page = board([Verdict(name, examined(made / "ours.zip", {})["documents"])])
    for payload in ("\r", "\n# b", "](http", "<img", "\u202e", "www.", "@"):
        assert payload not in page.replace(r"\]", "] ")
    assert len({line.count(" | ") for line in page.splitlines() if line.startswith("| nearest-mean")}) == 1
