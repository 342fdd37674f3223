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
from support.console import document, driftline, handed
from support.helpers import drifting
from support.worlds import across_seeds

from driftline.curate.core.errors import BadConfig, BadInput, IncompatibleStream, MissingFile
from driftline.curate.core.files import code_of
from driftline.eval.leaderboard import verification
from driftline.eval.leaderboard.board import board
from driftline.eval.leaderboard.repeating import reach, repeat
from driftline.eval.leaderboard.submission import opened, pack, runs_of, with_records
from driftline.eval.leaderboard.verification import drawn, verify
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


def edited(path: Path, out: Path, member: str, change: Callable[[bytes], bytes], hashed: bool) -> Path:
    """The submission with one member changed; hashed: its hash in the manifest too, as somebody would who cheats."""

    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    members[member] = change(members[member])
    if hashed:
        manifest = json.loads(members["manifest.json"])
        manifest["files"][member] = hashlib.sha256(members[member]).hexdigest()
        members["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(out, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    return out


def stream_of_texts() -> Stream:
    """Two steps of texts."""
    split = Split(np.array(["a b", "c d"] * 4), np.array([0, 1] * 4))
    return Stream("texts", [Step(t, str(t), {"train": split, "test": split}) for t in range(2)], ["a", "b"])


def rows_member(path: Path, learner: str) -> str:
    members, _ = opened(path)
    return next(
        name.replace("run.json", "rows.parquet")
        for name in members
        if name.endswith("run.json") and json.loads(members[name])["learner"] == learner
    )


def better(data: bytes, **fields: Any) -> bytes:
    """Rows in which everything is right, or whose fields are others."""
    rows = pq.read_table(io.BytesIO(data))
    told = [row | (fields or {"n_correct": row["n"], "class_correct": row["class_n"]}) for row in rows.to_pylist()]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(told, schema=rows.schema), sink)
    return sink.getvalue()


def test_what_was_submitted_holds_and_comes_out_again(made: tuple[Path, Path]) -> None:
    stream, path = made

    verdict = verify(path, [stream], again=2, public_value="drawn")

    assert verdict.problems == []
    assert len(verdict.again) == 2
    assert {run["because"] for run in verdict.not_again} == {"it was not drawn"}
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
    same = {"differs": "", "because": "", "share": 0.0}
    monkeypatch.setattr(verification, "repeat", lambda run, stream: asked.append(run.about["number"]) or same)

    verdict = verify(tmp_path / "a.zip", [tmp_path / "S"], public_value="public")

    chosen = drawn(verdict.sha256, "public", 31)[:4]
    assert [run["run"] for run in verdict.again] == asked == chosen
    others = {run["run"]: run["because"] for run in verdict.not_again}
    assert set(others) == set(range(34)) - set(chosen)
    assert [others.pop(number) for number in (31, 32, 33)] == [because for because, _ in cases[31:]]
    assert set(others.values()) == {"it was not drawn"}
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
    assert repeat(run, Stream.load(tmp_path / "S")) == {"differs": "", "because": "", "share": 0.0}


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
        records = pq.read_table(path := rows.with_name("outcomes.parquet"))
        pq.write_table(records.set_column(3, "predicted", records["label"]), path)
    pack([cheat], "cheat", tmp_path / "cheat.zip")

    verdict = verify(tmp_path / "cheat.zip", [stream], again=1)

    alone = verify(tmp_path / "cheat.zip")
    assert alone.holds
    assert {run["because"] for run in alone.unverified} == {"its stream is not here"}
    assert verdict.unverified == []
    assert "submitted" in verdict.problems[0]
    with pytest.raises(IncompatibleStream, match="'cheat' does not hold"):
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
    with pytest.raises(BadInput, match="is damaged"):
        verify(edited(path, tmp_path / "a.zip", rows_member(path, "majority"), lambda data: b"PAR1", hashed=True))
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
    evaluate(texts, "clear-streaming", ["llm(endpoint=http://127.0.0.1:1,model=a,retries=0)"], out=tmp_path / "runs")
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


@pytest.mark.parametrize(("key", "name"), [("protocol", "trap:Protocol"), ("learner", "trap:Learner(k=1)")])
def test_a_module_that_a_submission_names_is_not_imported(made, tmp_path, monkeypatch, key, name):
    stream, path = made
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    member = rows_member(path, "majority").replace("rows.parquet", "run.json")

    def named(data: bytes) -> bytes:
        return json.dumps(json.loads(data) | {key: name}).encode()

    verdict = verify(edited(path, tmp_path / "a.zip", member, named, hashed=True), [stream])

    assert verdict.problems == [
        f"run {member[5:9]}: the {key} {name.partition('(')[0]!r} names a Python module, which is not imported from a "
        f"submission. {'Submit its code (--code), or register' if key == 'learner' else 'Register'} the {key} in an "
        f"installed package (entry point driftline.{key}s)."
    ]
    assert verdict.again == []


def test_the_leaderboard_ranks_by_the_direction_of_the_primary_score(made, monkeypatch):
    fewer = replace(score_of(Iid, Iid.primary), higher_is_better=False)
    monkeypatch.setattr(Iid, "scores", tuple(fewer if s.name == Iid.primary else s for s in Iid.scores))

    table = board([verify(made[1])], True).partition("## clear-iid on drifting")[2].partition("##")[0]

    learners = [line.split(" | ")[0].strip("| ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert learners[0] == "majority"


def test_the_commands(made: tuple[Path, Path], tmp_path: Path) -> None:
    stream, path = made

    done = driftline("submit", str(path.parent / "runs"), "--name", "ours", "--out", str(tmp_path / "s.zip"))
    assert "7 runs" in done.stdout
    done = driftline("verify", str(tmp_path / "s.zip"), "--stream", str(stream), "--json")
    assert json.loads(done.stdout)["reproduces"]
    done = driftline("leaderboard", str(tmp_path / "s.zip"), "--out", str(tmp_path / "board.md"))
    assert "is not verified: its stream is not here. Expected every stream (--stream) and outcomes." in done.stderr
    assert not (tmp_path / "board.md").exists()
    words = ["--unverified", "--out", str(tmp_path / "board.md")]
    driftline("leaderboard", str(tmp_path / "s.zip"), *words)
    assert "**Unverified**" in (tmp_path / "board.md").read_text()
    words = ["--stream", str(stream), "--again", "0", "--out", str(tmp_path / "board.md")]
    driftline("leaderboard", str(tmp_path / "s.zip"), *words)
    assert "nverified" not in (tmp_path / "board.md").read_text()
    assert "not re-run" in (tmp_path / "board.md").read_text()
    assert (tmp_path / "board.md").read_text().startswith("# Leaderboard")
    bad = edited(path, tmp_path / "a.zip", rows_member(path, "majority"), better, hashed=True)
    done = driftline("verify", str(bad))
    assert (done.returncode, "does not hold" in done.stderr) == (1, True)


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


def test_a_submission_names_its_contact(made: tuple[Path, Path], tmp_path: Path) -> None:
    stream, path = made
    document("submit", path.parent / "runs", "--name", "n", "--contact", "a@b.test", "--out", tmp_path / "s.zip")
    assert opened(tmp_path / "s.zip")[1]["contact"] == "a@b.test"
    check = "driftline.eval.leaderboard.verification.verify"
    again = ("--again", 3, "--public-value", "p")
    for words in ("verify", path), ("leaderboard", path, "--out", tmp_path / "b.md"):
        found = handed(check, *words, "--stream", stream, *again)
        assert list(found.values())[:4] == [path, [stream], 3, "p"]
