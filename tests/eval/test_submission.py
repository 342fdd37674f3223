"""Submissions: packed, checked, scored again, run again; edited ones are caught."""

import hashlib
import io
import json
import socket
import subprocess
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.chat_server import chat_server
from support.console import driftline
from support.helpers import drifting
from support.submissions import Members, members_of, written
from support.worlds import across_seeds

from driftline.curate.core.errors import BadConfig, BadInput, DriftlineError, IncompatibleStream, MissingFile
from driftline.curate.core.files import code_of
from driftline.eval.leaderboard import verification
from driftline.eval.leaderboard.repeating import reach, repeat, rescored
from driftline.eval.leaderboard.submission import opened, pack, runs_of, with_records
from driftline.eval.leaderboard.verification import Verdict, board, drawn, examined, verify
from driftline.eval.learners import LEARNERS as REGISTERED
from driftline.eval.protocol import score_of
from driftline.eval.protocols.clear import Iid
from driftline.eval.rows import Run
from driftline.eval.run import evaluate
from driftline.stream_builder.stream import Split, Step, Stream

LEARNERS = ["nearest-mean", "er(memory=30)", "majority"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A stream and a submission of runs on it."""
    here = tmp_path_factory.mktemp("submission")
    stream = drifting(drift=0.2).save(here / "S")
    evaluate(stream, "clear-iid", LEARNERS, [0, 1], {"epochs": 3}, out=here / "runs")
    evaluate(stream, "near-future", ["fc-only"], [0], {"batch": 20, "shift": 40}, out=here / "runs")
    pack([here / "runs"], "ours", here / "ours.zip")
    return here / "S", here / "ours.zip"


def stream_of_texts() -> Stream:
    """Two steps of texts."""
    split = Split(np.array(["a b", "c d"] * 4), np.array([0, 1] * 4))
    return Stream("texts", [Step(t, str(t), {"train": split, "test": split}) for t in range(2)], ["a", "b"])


def better(data: bytes) -> bytes:
    """Rows in which everything is right."""
    rows = pq.read_table(io.BytesIO(data))
    told = [row | {"n_correct": row["n"], "class_correct": row["class_n"]} for row in rows.to_pylist()]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(told, schema=rows.schema), sink)
    return sink.getvalue()


def test_what_was_submitted_holds_and_comes_out_again(made: tuple[Path, Path]) -> None:
    stream, path = made
    verdict = verify(path, [stream], again=2, public_value="drawn")
    assert verdict.problems == []
    assert len(verdict.again) == 2
    assert {run["because"] for run in verdict.not_again} == {"it was not chosen"}
    assert verdict.plain()["reproduces"]
    assert {d["protocol"] for d in verdict.documents} == {"clear-iid", "near-future"}


def test_the_draw_follows_from_the_file_and_a_public_value(made: tuple[Path, Path]) -> None:
    assert drawn("file", "value", 50) == drawn("file", "value", 50)
    assert sorted(drawn("file", "value", 50)) == list(range(50))
    across_seeds(lambda k: drawn(f"file {k}", "value", 50)[:15], list(range(50)))
    across_seeds(lambda k: drawn("file", f"value {k}", 50)[:15], list(range(50)))
    assert verify(made[1]).public_value != verify(made[1]).public_value


def test_a_tenth_is_drawn_of_the_runs_that_may_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = drifting().save(tmp_path / "S").sha256
    (tmp_path / "a.zip").write_bytes(b"a submission")
    facts = {"learner": "er", "protocol": "ocrr", "seed": 0, "digest": "d", "unverified": ""}
    cases = [*[("", "")] * 31, ("weights names a file", ""), (verification.OWN_CODE, "own"), ("elsewhere", "")]
    runs = [
        facts | {"run": i, "because": because, "code": code, "stream": here if i < 33 else "elsewhere"}
        for i, (because, code) in enumerate(cases)
    ]
    submitted = [Run({"number": i}, []) for i in range(34)]
    found = {"name": "ours", "problems": [], "documents": [], "runs": runs, "submitted": submitted}
    monkeypatch.setattr(verification, "examined", lambda *given: found)
    asked: list[int] = []
    same = "", "", 0.0
    monkeypatch.setattr(verification, "repeat", lambda run, stream: asked.append(run.about["number"]) or same)
    verdict = verify(tmp_path / "a.zip", [tmp_path / "S"], public_value="public")
    chosen = drawn(verdict.sha256, "public", 31)[:4]
    assert [run["run"] for run in verdict.again] == asked == chosen
    others = {run["run"]: run["because"] for run in verdict.not_again}
    assert set(others) == set(range(34)) - set(chosen)
    assert [others.pop(number) for number in (31, 32, 33)] == [because for because, _ in cases[31:]]
    assert set(others.values()) == {"it was not chosen"}
    assert verdict.plain()["reproduces"]


def test_a_run_is_repeated_with_all_of_its_settings(tmp_path: Path) -> None:
    """Also those of the protocol, and candidates."""
    drifting(steps=3, n=40).save(tmp_path / "S")
    settings = {"epochs": 1, "variant": "reference", "weight_decay": 0.5, "splits": "random", "test_share": 0.4}
    evaluate(
        Stream.load(tmp_path / "S"), "clear-iid", ["ewc"], [3], settings, tmp_path / "runs", tune={"lr": [0.1, 1.0]}
    )
    pack([tmp_path / "runs"], "ours", tmp_path / "a.zip")
    members = opened(tmp_path / "a.zip")[0]
    run = with_records(runs_of(members)[0], members, 0)
    assert repeat(run, Stream.load(tmp_path / "S")) == ("", "", 0.0)


def test_the_same_runs_give_the_same_bytes(made: tuple[Path, Path], tmp_path: Path) -> None:
    _, path = made
    pack([path.parent / "runs"], "ours", tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == path.read_bytes()


def test_scores_that_are_edited_as_well_do_not_come_out_again(made: tuple[Path, Path], tmp_path: Path) -> None:
    """A cheat that is consistent in itself: only doing it again shows it."""
    stream, path = made
    runs = path.parent / "runs"
    cheat = tmp_path / "runs"
    subprocess.run(["cp", "-r", str(runs), str(cheat)], check=True)
    for rows in cheat.rglob("rows.parquet"):
        rows.write_bytes(better(rows.read_bytes()))
        record = rows.with_name("run.json")
        digest = hashlib.sha256(rows.read_bytes()).hexdigest()
        record.write_text(json.dumps(json.loads(record.read_text()) | {"rows_sha256": digest}))
        records = pq.read_table(path := rows.with_name("predictions.parquet"))
        pq.write_table(records.set_column(3, "predicted", records["label"]), path)
    pack([cheat], "cheat", tmp_path / "cheat.zip")
    verdict = verify(tmp_path / "cheat.zip", [stream], again=1)
    alone = verify(tmp_path / "cheat.zip")
    assert alone.holds
    assert {run["because"] for run in alone.unverified} == {"its stream is not here"}
    assert verdict.unverified == []
    assert "submitted" in verdict.problems[0]
    with pytest.raises(IncompatibleStream, match="'cheat' fails verification"):
        board([verdict])


def test_files_that_are_no_submissions(made: tuple[Path, Path], tmp_path: Path) -> None:
    _, path = made
    with pytest.raises(MissingFile, match="driftline submit"):
        verify(tmp_path / "none.zip")
    (tmp_path / "text.zip").write_text("text")
    with pytest.raises(BadInput, match="cannot be read"):
        verify(tmp_path / "text.zip")
    with zipfile.ZipFile(tmp_path / "empty.zip", "w") as file:
        file.writestr("runs/0000/run.json", "{}")
    with pytest.raises(BadInput, match="manifest"):
        verify(tmp_path / "empty.zip")
    with pytest.raises(BadInput, match="printable"):
        pack([path.parent / "runs"], "a\nb", tmp_path / "b.zip")


def test_a_stream_that_no_run_names_is_told(made: tuple[Path, Path], tmp_path: Path) -> None:
    other = drifting(steps=3).save(tmp_path / "other")
    verdict = verify(made[1], [tmp_path / "other"])
    assert other.sha256
    assert verdict.problems == ["No run is on one of the given streams."]


@pytest.mark.parametrize(
    ("change", "which"),
    [
        ({"learner": "llm(endpoint =http://127.0.0.1:1/v1,model=a)"}, "endpoint names an address"),
        ({"learner": "llm( key_env = HOME )"}, "key_env names a key"),
        ({"learner": "llm", "settings": {"tune": {"endpoint": ["http://127.0.0.1:1"]}}}, "endpoint names an address"),
        ({"learner": "llm"}, "key_env names a key"),
        ({"settings": {"weights": "/etc/passwd"}}, "weights names a file"),
        ({"settings": {"tune": {"weights": ["/etc/passwd"]}}}, "weights names a file"),
        ({"learner": "er(weights\t=\t/etc/passwd)"}, "weights names a file"),
        ({"protocol": "ocrr", "protocol_settings": {"ledger": "/tmp/x"}}, "ledger names a folder"),
        ({"learner": "lora(model = a)"}, "model names a model"),
        ({"learner": "fc-only(sampler=mine:Ärmel)"}, "sampler names a Python module"),
        ({"learner": "fc-only", "settings": {"tune": {"sampler": ["fifo", "a.b:Sampler"]}}}, "sampler names a Python"),
        (
            {"protocol": "seq-to-final", "protocol_settings": {"network": "mine:blocks"}},
            "network names a Python module",
        ),
        ({"learner": "reservoir(alpha=dynamic:0.5)"}, ""),
        ({"protocol": "ocrr", "protocol_settings": {"policy": "random_50+delayed:20"}}, ""),
        ({}, ""),
    ],
)
def test_runs_that_reach_outside_are_never_run_again(change: dict[str, Any], which: str) -> None:
    about = {"learner": "er", "settings": {}, "protocol": "clear-iid", "protocol_settings": {}}
    reached = reach(about | change)
    assert reached.startswith(which)
    assert bool(reached) == bool(which)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learner": "er(endpoint=http://127.0.0.1)"}, "Er has no setting 'endpoint'"),
        ({"settings": {"llm.endpoint": "http://127.0.0.1"}}, "Er has no setting 'llm.endpoint'"),
        ({"protocol_settings": {"llm.endpoint": "http://127.0.0.1"}}, "Iid has no setting 'llm.endpoint'"),
        ({"settings": {"tune": {"er.weights": ["a"]}}}, "Er has no setting 'er.weights'"),
        ({"settings": {"tune": "weights"}}, "tune is 'weights'"),
    ],
)
def test_settings_of_somebody_else_are_refused(change: dict[str, Any], message: str) -> None:
    about = {"learner": "er", "settings": {}, "protocol": "clear-iid", "protocol_settings": {}}
    with pytest.raises(BadConfig, match=message):
        reach(about | change)


def test_a_strangers_address_is_never_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "key")
    texts = stream_of_texts().save(tmp_path / "S")
    with chat_server() as chat:
        evaluate(texts, "clear-streaming", [f"llm(endpoint={chat.url},model=a,workers=1)"], out=tmp_path / "runs")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        (path,) = (tmp_path / "runs").rglob("run.json")
        about = json.loads(path.read_text())
        about |= {"learner": f"llm(endpoint ={address}, model=a, key_env =SECRET)", "settings": {}}
        path.write_text(json.dumps(about))
        pack([tmp_path / "runs"], "spy", tmp_path / "s.zip")
        verdict = verify(tmp_path / "s.zip", [tmp_path / "S"])
        with pytest.raises(TimeoutError):
            server.accept()
    assert verdict.again == []
    assert verdict.not_again[0]["because"] == "endpoint names an address"


def test_the_leaderboard_ranks_by_the_direction_of_the_primary_score(made, monkeypatch):
    fewer = replace(score_of(Iid, Iid.primary), higher_is_better=False)
    monkeypatch.setattr(Iid, "scores", tuple(fewer if s.name == Iid.primary else s for s in Iid.scores))
    table = board([verify(made[1])], True).partition("## clear-iid on drifting")[2].partition("##")[0]
    learners = [line.split(" | ")[0].strip("| ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert learners[0] == "majority"


def test_the_commands(made: tuple[Path, Path], tmp_path: Path) -> None:
    stream, path = made
    words = ["--name", "ours", "--contact", "a@b.test", "--out", str(tmp_path / "s.zip")]
    assert "7 runs" in driftline("submit", str(path.parent / "runs"), *words).stdout
    assert opened(tmp_path / "s.zip")[1]["contact"] == "a@b.test"
    done = driftline("verify", str(tmp_path / "s.zip"), "--stream", str(stream), "--json")
    assert json.loads(done.stdout)["reproduces"]
    done = driftline("leaderboard", str(tmp_path / "s.zip"), "--out", str(tmp_path / "board.md"))
    assert (
        "is not verified: its stream is not here. Expected every stream (--stream) and the per-sample predictions."
        in done.stderr
    )
    assert not (tmp_path / "board.md").exists()
    words = ["--unverified", "--out", str(tmp_path / "board.md")]
    driftline("leaderboard", str(tmp_path / "s.zip"), *words)
    assert "**Unverified**" in (tmp_path / "board.md").read_text()
    words = ["--stream", str(stream), "--again", "0", "--out", str(tmp_path / "board.md")]
    driftline("leaderboard", str(tmp_path / "s.zip"), *words)
    assert "nverified" not in (tmp_path / "board.md").read_text()
    assert "not re-run" in (tmp_path / "board.md").read_text()
    assert (tmp_path / "board.md").read_text().startswith("# Leaderboard")
    all_right(members := members_of(path))
    done = driftline("verify", str(written(tmp_path / "a.zip", members)))
    assert (done.returncode, "fails verification" in done.stderr) == (1, True)
    assert done.stdout.count("not re-run: its stream is not here") == 7


def test_streams_of_one_name_have_tables_of_their_own(tmp_path: Path) -> None:
    for sha in ("one", "two"):
        evaluate(replace(drifting(), sha256=sha), "clear-iid", ["majority"], out=tmp_path / "runs")
    pack([tmp_path / "runs"], "ours", tmp_path / "s.zip")
    assert board([verify(tmp_path / "s.zip")], True).count("## clear-iid on drifting") == 2


def tables(page: str) -> list[str]:
    return page.split("\n## ")[1:]


@pytest.mark.parametrize(
    ("protocol", "setting", "values"),
    [
        ("clear-iid", "splits", ("stream", "seeded")), ("near-future", "updates", (1.0, 2.0)),
        ("ocrr", "policy", ("oracle", "random_50")), ("ocrr", "held_out", (1, 2)),
    ],
)  # fmt: skip
def test_runs_under_other_settings_of_the_protocol_have_tables_of_their_own(tmp_path, protocol, setting, values):
    base = {"near-future": {"batch": 20, "shift": 40}, "ocrr": {"every": 20, "held_out": 1}}.get(protocol, {})
    for value in values:
        stream = drifting(steps=1 if protocol == "ocrr" else 3, classes=4)
        evaluate(stream, protocol, ["nearest-mean", "majority"], [0], {**base, setting: value}, tmp_path / "runs")
    pack([tmp_path / "runs"], "ours", tmp_path / "s.zip")
    page = tables(board([verify(tmp_path / "s.zip")], True))
    assert len(page) == 2
    for table, value in zip(page, sorted(values, key=str), strict=True):
        assert f"{setting}={value}" in table
        assert table.count("| ours |") == 2
        assert table.count("**") == 2


def test_one_stream_under_two_names_is_one_table(tmp_path: Path) -> None:
    for name in ("a", "b"):
        evaluate(replace(drifting(), name=name, sha256="same"), "clear-iid", ["majority"], out=tmp_path / name)
    for name in ("a", "b"):
        pack([tmp_path / name], name, tmp_path / f"{name}.zip")
    assert len(tables(board([verify(tmp_path / f"{name}.zip") for name in ("a", "b")], True))) == 1


def test_the_page_says_seeds_draws_and_code(tmp_path: Path) -> None:
    stream = drifting().save(tmp_path / "S")
    for splits in ("stream", "seeded"):
        evaluate(stream, "clear-iid", ["majority"], [0, 1, 2], {"splits": splits}, tmp_path / "runs")
    pack([tmp_path / "runs"], "ours", tmp_path / "s.zip")
    verdict = verify(tmp_path / "s.zip", [tmp_path / "S"])
    assert verdict.problems == []
    page = tables(board([verdict]))
    assert [("| 0–2 | 1 |" in table, "| 0–2 | 3 |" in table) for table in page] == [(False, True), (True, False)]
    assert all(f"Code: {code_of()}." in table for table in page)


# ---- attacks on submissions: each is named in one sentence, and none gets onto a board


SENT = ["nearest-mean", "majority"]


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
    parquet(members, "runs/0000/predictions.parquet", change)
    samples = pq.read_table(io.BytesIO(members["runs/0000/predictions.parquet"]))["sample"].to_numpy().astype(np.int64)
    about = json.loads(members["runs/0000/run.json"])
    about["tests"] = hashlib.sha256(samples.tobytes()).hexdigest()[:12]  # invented records name them, too
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
    for name in ("rows.parquet", "predictions.parquet"):
        members[f"runs/0000/{name}"] = members[f"runs/0004/{name}"]


def twice(members: Members) -> None:
    """One run twice, to narrow the deviation."""
    for name in ("run.json", "rows.parquet", "predictions.parquet"):
        members[f"runs/0009/{name}"] = members[f"runs/0000/{name}"]


def labels_of_its_own(members: Members) -> None:
    """Labels that are what was answered."""

    def change(all_of_them: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [record | {"label": record["predicted"]} for record in all_of_them]

    records(members, change)
    counts = pq.read_table(io.BytesIO(members["runs/0000/predictions.parquet"])).to_pylist()

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
    "other tests in a record": (
        lambda m: about(m, tests="x"),
        "its record names other test samples than its predictions",
    ),
    "one row more": (lambda m: rows(m, lambda r: [*r, r[-1]]), "a test result with right answers has no predictions"),
    "a negative count": (lambda m: rows(m, cell(n_correct=-1)), "row 0 has a count that is negative"),
    "not a number": (lambda m: rows(m, cell(recall=float("nan"))), "row 0 has a number that is not finite"),
    "infinite": (lambda m: rows(m, cell(seconds=float("inf"))), "row 0 has a number that is not finite"),
    "more right than tested": (lambda m: rows(m, cell(n_correct=31)), "31 right of 30"),
    "counts of classes": (lambda m: rows(m, cell(class_n=[30])), "counts of classes are not those of its records"),
    "learned later than it says": (lambda m: rows(m, cell(learned_to=3)), "its learned_to is 3; the protocol gives 0"),
    "tested on another step": (lambda m: rows(m, cell(tested_on="1")), "its tested_on is '1'"),
    "no predictions of one row": (lambda m: records(m, lambda r: [x for x in r if x["row"]]), "has no predictions"),
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
def test_an_attack_is_named(name: str, sent: Path, tmp_path: Path) -> None:
    attack, message = ATTACKS[name]
    members = members_of(sent / "ours.zip")
    attack(members)
    said = found(written(tmp_path / "a.zip", members), sent / "S")
    assert message in said
    assert len(said.replace(", ".join(sorted(REGISTERED)), "")) < 700, "besides the names of all that are known"
    assert "Traceback" not in said


def test_what_is_honest_holds(sent: Path, tmp_path: Path) -> None:
    assert found(written(tmp_path / "a.zip", members_of(sent / "ours.zip")), sent / "S") == ""


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


def test_a_changed_member_with_the_old_hash(sent: Path, tmp_path: Path) -> None:
    members = members_of(sent / "ours.zip")
    all_right(members)
    assert "was changed after it was packed" in found(written(tmp_path / "a.zip", members, hashed=False), sent / "S")


def test_a_member_that_the_manifest_does_not_list(sent: Path, tmp_path: Path) -> None:
    members = members_of(sent / "ours.zip")
    members["runs/0099/run.json"] = b"{}"
    assert "is not in both manifest and file" in found(written(tmp_path / "a.zip", members, hashed=False), sent / "S")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_one_name_twice(sent: Path, tmp_path: Path) -> None:
    written(tmp_path / "a.zip", members_of(sent / "ours.zip"))
    with zipfile.ZipFile(tmp_path / "a.zip", "a") as file:
        file.writestr("runs/0000/run.json", "{}")
    assert "has runs/0000/run.json twice" in found(tmp_path / "a.zip", sent / "S")


def test_a_link(sent: Path, tmp_path: Path) -> None:
    members = members_of(sent / "ours.zip")
    members.pop("runs/0000/rows.parquet")
    written(tmp_path / "a.zip", members)
    link = zipfile.ZipInfo("runs/0000/rows.parquet")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "a") as file:
        file.writestr(link, "/etc/passwd")
    assert "is not in both manifest and file" in found(tmp_path / "a.zip", sent / "S")


def test_a_zip_bomb(sent: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("runs/0000/rows.parquet", bytes(300 * 2**20))
    assert (tmp_path / "a.zip").stat().st_size < 2**19
    assert "is too large" in found(tmp_path / "a.zip", sent / "S")


@pytest.mark.parametrize(
    "name", ["a\r\n# b", "a | b", "[x](http://evil)", "<img src=x>", "a\u202eb", "`x`", "www.e.vil", "@all"]
)
def test_a_name_is_no_markup(name: str, sent: Path) -> None:
    page = board([Verdict(name, examined(sent / "ours.zip", {})["documents"])])
    for payload in ("\r", "\n# b", "](http", "<img", "\u202e", "www.", "@"):
        assert payload not in page.replace(r"\]", "] ")
    assert len({line.count(" | ") for line in page.splitlines() if line.startswith("| nearest-mean")}) == 1
