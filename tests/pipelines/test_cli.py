"""The command line: exit codes, one clear paragraph, one JSON document; and every bad input that a user may bring."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image
from support import console
from support.console import command_tree, document, inside
from support.helpers import drifting, yfcc_line
from support.small_runs import unpacked

from driftline.curate.core.files import content_digest, listing
from driftline.curate.core.seeding import rng_for
from driftline.eval.run import evaluate
from driftline.pipelines import cli
from driftline.pipelines.actions.listing import KINDS
from driftline.pipelines.stages.state import MARKS

Write = Callable[..., Path]
CONFIG = """\
collection: {{source: {source}, path: {path}}}
filter: {{upload_after_capture: {strict}}}
buckets: {{kind: equal, count: 2, unlabelled: []}}
embed: {{model: driftline-photo-world}}
retrieve:
  per_class: 2
  depth: 50
  background_share: 0
  short: fail
  concepts:
    - {{name: car, prompts: [a photo of a car]}}
    - {{name: bus, prompts: [a photo of a bus]}}
"""


def driftline(*args: object) -> subprocess.CompletedProcess[str]:
    return console.driftline(*map(str, args))


def run_folder(folder: Path, path: Path, source: str = "yfcc", strict: str = "true") -> Path:
    folder.mkdir(exist_ok=True)
    text = CONFIG.format(source=source, path=path, strict=strict)
    (folder / "driftline.yaml").write_text(text)
    return folder


def message(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The paragraph that a user sees; never a traceback."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.strip()


class TestBadInput:
    """Each case of the issue, as a user meets it."""

    def test_missing_file(self, tmp_path: Path) -> None:
        folder = run_folder(tmp_path / "run", tmp_path / "nowhere.tsv")
        assert "There is no file" in message(driftline("run", folder), 2)

    def test_empty_file(self, tmp_path: Path, write_lines: Write) -> None:
        folder = run_folder(tmp_path / "run", write_lines())
        text = message(driftline("run", folder), 1)
        assert "dataset.tsv is empty. Expected YFCC100M records. Download it again." in text

    def test_a_folder_without_one_dated_photo(self, tmp_path: Path) -> None:
        (tmp_path / "photos").mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "a.jpg")
        folder = run_folder(tmp_path / "run", tmp_path / "photos", "folder", "false")
        text = message(driftline("run", folder), 1)
        assert "The stage filter kept none of 1 records (no_upload_date 1)" in text
        assert "driftline status DIR --dropped shows the photos" in text
        assert json.loads(driftline("status", folder, "--json").stdout)["stages"][0]["state"] == "done", (
            "ingest is not lost"
        )

    def test_unknown_key_stage_learner_and_protocol(self, tmp_path: Path, write_lines: Write) -> None:
        folder = run_folder(tmp_path / "run", write_lines(yfcc_line()))
        assert "unknown key" in message(driftline("run", folder, "--set", "fetch.thread=3"), 2)
        assert "Stages, in order: ingest, filter" in message(driftline("run", folder, "--until", "download"), 2)
        assert "Did you mean 'learners'?" in message(driftline("list", "learner"), 2)


class TestWaiting:
    """Answers of people are missing: exit code 3, the state `waiting`, and what to do."""

    @pytest.fixture(scope="class")
    def folder(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return unpacked("waiting", tmp_path_factory.mktemp("waiting"))

    @pytest.mark.parametrize("more", [(), ("--until", "ask"), ("--until", "publish")])
    def test_a_run_that_needs_answers(self, folder: Path, more: tuple[str, ...]) -> None:
        done = driftline("run", folder, *more, "--json")
        assert f"driftline annotate {folder}" in message(done, 3)
        (ask,) = [s for s in json.loads(done.stdout)["stages"] if s["stage"] == "ask"]
        assert ask["state"] == "waiting"

    def test_a_run_that_ends_before_the_answers_are_needed(self, folder: Path) -> None:
        assert driftline("run", folder, "--until", "retrieve").returncode == 0


class TestHelp:
    def test_every_help_has_an_example(self) -> None:
        for words, command in command_tree(groups=True).items():
            text = command.get_help(typer.Context(command, info_name=f"driftline {words}".rstrip()))
            assert f"Example: driftline {words}".rstrip() in text
            assert max(map(len, text.split("\n"))) <= 80

    @pytest.mark.parametrize(
        ("words", "text"),
        [
            ("eval s --learner x", "--learners). Help: driftline eval --help."),
            ("runn x", "Did you mean 'run'?"),
            ("run", "Missing argument 'DIR'."),
            ("run x y", "unexpected extra argument(s) (y)"),
            ("run x --until", "Option '--until' requires an argument."),
            ("run x --engine mpi", "'mpi' is not one of 'local', 'ray', 'slurm'."),
            ("export x --format clear --out y --dry-run", "--dry-run was given without --to."),
        ],
    )
    def test_wrong_words_are_one_paragraph_with_the_way_out(self, words: str, text: str) -> None:
        error = message(inside(*words.split()), 2)
        assert error.startswith("driftline: ")
        assert text in error
        assert "\n" not in error

    def test_names_are_completed_from_the_registries(self) -> None:
        def completed(words: str) -> list[str]:
            asked = {"_DRIFTLINE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
            code = "import sys; from driftline.pipelines.cli import app; app(prog_name='driftline')"
            environment = os.environ | asked
            return subprocess.check_output([sys.executable, "-c", code], env=environment, text=True).split()

        assert "learners" in completed("driftline list le")
        assert completed("driftline run x --until ta") == ["tally"]
        assert completed("driftline export x --format clear,web") == ["clear,webdataset"]
        assert completed("driftline run x --set release.per_cl") == ["release.per_class="]
        asked = "driftline eval s --protocol near-future --learners er --set "
        assert {"shift=", "memory="} <= {*completed(asked)}


class TestOutput:
    def test_quiet_prints_the_result_only(self, tmp_path: Path, write_lines: Write) -> None:
        folder = run_folder(tmp_path / "run", write_lines(yfcc_line(1)))
        done = driftline("-q", "run", folder, "--until", "ingest")
        assert done.stderr == ""
        assert done.stdout.startswith("stage ")
        assert "Next: " not in done.stdout

    def test_verbose_prints_every_event_of_the_log(self, tmp_path: Path, write_lines: Write) -> None:
        folder = run_folder(tmp_path / "run", write_lines(yfcc_line(1)))
        done = driftline("-v", "run", folder, "--until", "ingest")
        events = [json.loads(line)["event"] for line in (folder / "log.jsonl").read_text().splitlines()]
        lines = [match[1] for line in done.stderr.splitlines() if (match := re.match(r"\d\d:\d\d:\d\d (\w+): ", line))]
        assert lines == [event for event in events if event != "said"]

    @pytest.mark.parametrize("words", [("-q", "-v", "list"), ("-q", "list", "-v"), ("list", "--quiet", "--verbose")])
    def test_quiet_and_verbose_exclude_each_other(self, words: tuple[str, ...]) -> None:
        assert "--quiet and --verbose" in message(driftline(*words), 2)

    def test_they_are_also_understood_after_the_command(self, tmp_path: Path, write_lines: Write) -> None:
        folder = run_folder(tmp_path / "run", write_lines(yfcc_line(1)))
        assert driftline("run", folder, "--until", "ingest", "-q").stderr == ""
        assert "done: stage filter" in driftline("run", folder, "--until", "filter", "-v").stderr

    @pytest.mark.parametrize("words", [("status", "nowhere"), ("plan",), ("status", "nowhere", "--nonsense")])
    def test_with_json_an_error_is_the_document(self, words: tuple[str, ...]) -> None:
        done = inside(*words, "--json")
        assert done.returncode == 2
        assert json.loads(done.stdout)["error"] in done.stderr
        assert inside(*words).stdout == ""

    def test_debug_shows_the_traceback_with_the_same_exit_code(self, tmp_path: Path) -> None:
        done = driftline("--debug", "status", tmp_path)
        assert done.returncode == 2
        assert "Traceback" in done.stderr
        assert "MissingFile" in done.stderr


class TestList:
    @pytest.mark.parametrize("kind", list(KINDS))
    def test_every_kind_has_entries_with_summary_and_origin(self, kind: str) -> None:
        rows = document("list", kind)
        assert rows
        assert all(row["summary"] and row["target"] and row["origin"] == "driftline" for row in rows)

    def test_without_a_kind_it_lists_the_kinds(self) -> None:
        assert [row["name"] for row in document("list")] == list(KINDS)

    @pytest.mark.parametrize("protocol", ["clear-iid", "clear-streaming", "near-future", "ocrr"])
    def test_learners_of_a_protocol_are_those_that_it_does_not_refuse(self, protocol: str) -> None:
        every = {row["name"] for row in document("list", "learners")}
        listed = {row["name"] for row in document("list", "learners", "--protocol", protocol)}
        refused = sorted(every - listed)
        assert refused
        found = evaluate(drifting(n=30), protocol, [*refused, "majority"], seeds=[0])
        assert {entry["learner"] for entry in found["skipped"]} == set(refused)
        assert "majority" in listed

    def test_a_protocol_narrows_learners_only(self) -> None:
        assert "for learners only" in message(driftline("list", "shifts", "--protocol", "ocrr"), 2)
        assert "Did you mean 'ocrr'" in message(driftline("list", "learners", "--protocol", "ocr"), 2)


class TestCommands:
    def test_version(self) -> None:
        assert driftline("--version").stdout.startswith("driftline ")

    def test_stream_and_eval_from_arrays(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        y = np.arange(120) % 3
        x = (np.eye(3)[y] * 3 + rng.normal(size=(120, 3))).astype(np.float32)
        split = np.where(np.arange(120) % 4 == 3, "test", "train")
        np.savez(tmp_path / "f.npz", x=x, y=y, step=np.arange(120) // 40, split=split)
        make = ("stream", "from-arrays", tmp_path / "f.npz", "--out", tmp_path / "s")
        assert "Expected one of clear10/moco-yfcc-b0" in message(driftline(*make, "--paper", "clear11"), 2)
        assert driftline(*make).returncode == 0
        shown = json.loads(driftline("stream", "show", tmp_path / "s", "--json").stdout)
        assert [s["splits"] for s in shown["steps"]] == [{"train": 30, "test": 10}] * 3
        learners = ("--learners", "nearest-mean,nap", "--seeds", "0-1", "--set", "epochs=3")
        done = driftline(
            "eval", tmp_path / "s", "--protocol", "clear-iid", *learners, "--out", tmp_path / "r", "--json"
        )
        found = json.loads(done.stdout)
        assert found["protocol"] == "clear-iid"
        line = "clear-iid: 4 of 4 runs to do, about 0 s of training on 1 workers"
        assert line in (tmp_path / "r" / "log.jsonl").read_text()
        assert [r["learner"] for r in found["results"]] == ["nearest-mean", "nap"]
        assert found["results"][1]["settings"]["epochs"] == 3
        assert driftline("report", tmp_path / "r", "--out", tmp_path / "html").returncode == 0
        assert (tmp_path / "html" / "index.html").stat().st_size > 4000


def test_a_folders_digest_leaves_its_own_mark_out(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    one = content_digest(listing(tmp_path, without=MARKS))
    (tmp_path / "done.json").write_text("{}")
    assert content_digest(listing(tmp_path, without=MARKS)) == one


class TestOnlineProtocols:
    def stream(self, folder: Path) -> Path:
        rng = rng_for(0, "online")
        y = np.repeat(rng.integers(0, 4, 80), 5)
        x = (np.eye(4)[y] * 3 + rng.normal(size=(400, 4))).astype(np.float32)
        split = np.where(np.arange(400) % 5 == 4, "test", "train")
        when = np.arange(400)[::-1] * 60
        np.savez(folder / "f.npz", x=x, y=y, split=split, time=when, step=np.arange(400) // 200)
        assert driftline("stream", "from-arrays", folder / "f.npz", "--out", folder / "s").returncode == 0
        return folder / "s"

    def test_a_stream_out_of_order_is_refused_and_sorted_on_request(self, tmp_path: Path) -> None:
        run = ("eval", self.stream(tmp_path), "--protocol", "near-future", "--preset", "cglm", "--set", "shift=64")
        ask = (*run, "--learners", "blind,fc-only", "--out", tmp_path / "r")
        assert "--set sort=true" in message(driftline(*ask), 1)
        found = json.loads(driftline(*ask, "--set", "sort=true", "--json").stdout)
        settings = {r["learner"]: r["settings"] for r in found["results"]}
        assert settings["fc-only"]["lr"] == 1.0, "the stream is too short to choose one"
        assert settings["fc-only"]["weight_decay"] == 1e-4
        assert settings["blind"]["updates"] == 10
        assert settings["blind"]["shift"] == 64, "--set goes before the preset"

    def test_a_setting_of_one_protocol_is_for_it_alone(self, tmp_path: Path) -> None:
        run = ("eval", self.stream(tmp_path), "--protocol", "clear-iid,near-future", "--learners", "finetune")
        wrong = [("epochs=0", "epochs is 0. Expected a number greater than 0"), ("delax=1", "Did you mean 'delay'?")]
        wrong += [("near-future.dela=1", "Did you mean 'near-future.delay'?"), ("ocrr.every=9", "Unknown setting")]
        for setting, text in wrong:
            assert text in message(driftline(*run, "--out", tmp_path / "r", "--set", setting), 2)
        assert not (tmp_path / "r" / "clear-iid").exists(), "settings are checked before the first run"
        sets = [word for key in ("sort=true", "delay=1", "shift=64", "lr=1.0", "epochs=2") for word in ("--set", key)]
        iid, online = json.loads(driftline(*run, "--out", tmp_path / "r", *sets, "--json").stdout)
        settings = [found["results"][0]["settings"] for found in (iid, online)]
        assert [of.get("epochs") for of in settings] == [2, None], "near-future has a budget in place of epochs"
        assert [(of.get("delay"), of.get("sort")) for of in settings] == [(None, None), (1, True)]

    def test_corrections_are_recorded_and_checked(self, tmp_path: Path) -> None:
        sets = ("--set", "held_out=1", "--set", "scenario=categorical", "--set", f"ledger={tmp_path / 'l'}")
        run = ("eval", self.stream(tmp_path), "--protocol", "ocrr", "--learners", "substrate,static-knn", *sets)
        done = driftline(*run, "--out", tmp_path / "r")
        assert done.returncode == 0, done.stderr
        assert "–" in next(line for line in done.stdout.splitlines() if "static-knn" in line), "nothing was recovered"
        (book,) = (tmp_path / "l").glob("substrate-*-oracle-seed0.ledger")
        verdict = json.loads(driftline("verify", book, "--json").stdout)
        assert verdict["entries"] > 0
        noted = driftline("verify", book, "--head", verdict["head"])
        assert "added after its head was noted: 0" in noted.stdout
        data = bytearray(book.read_bytes())
        data[-3] ^= 1
        book.write_bytes(data)
        assert f"Entry {verdict['entries'] - 1}" in message(driftline("verify", book), 1)
        assert "The ledger" in message(driftline(*run, "--out", tmp_path / "again"), 1)
        assert "There is no submission" in message(driftline("verify", tmp_path / "none"), 2)


def test_processes_of_a_command_import_nothing_from_the_working_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "")  # so that it is taken back
    monkeypatch.setattr(sys, "argv", ["driftline", "list", "protocols"])
    with pytest.raises(SystemExit, match="0"):
        cli.main()
    assert os.environ["PYTHONSAFEPATH"] == "1"
