"""The runner of all benchmarks, on a folder of made ones."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support.helpers import benchmark

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
history = benchmark("history")
DECLARED = history.declared(BENCHMARKS)
SHARED = {"run", "history", "peers", "yfcc_rows"}  # modules of the folder that measure nothing

FAST = """
import json, sys
print("a line that is no JSON")
print(json.dumps({"speed": len(sys.argv)}, indent=1))
"""
PARTS = """
import json
print(json.dumps({"part": "disk", "over_read": 3.0, "same": True}))
print(json.dumps({"part": "search", "ratio": {"float32": 0.5}}))
"""
CRASHED = "raise SystemExit('no such device')"
TABLE = """
[fast]
quick = "--small"
[fast.targets]
speed = ">= 2"

[parts.targets]
"disk.over_read" = "<= 2"
"disk.same" = ">= 1"
"search.ratio.float32" = "<= 1"

[crashed.targets]
share = ">= 0.9"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("benchmarks")
    for name, text in (("fast", FAST), ("parts", PARTS), ("crashed", CRASHED)):
        (made / f"{name}.py").write_text(text)
    (made / "benchmarks.toml").write_text(TABLE)
    return made


def run(folder: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    command = [sys.executable, str(BENCHMARKS / "run.py"), "--folder", str(folder), "--out", str(folder / "out.json")]
    done = subprocess.run([*command, *words], capture_output=True, text=True)
    return done, json.loads((folder / "out.json").read_text())


def test_every_figure_is_recorded_and_held_against_its_target(folder: Path) -> None:
    done, result = run(folder, "fast", "parts")
    assert done.returncode == 0, done.stderr
    met = {(r["benchmark"], r["ratio"]): (r["value"], r["met"]) for r in result["ratios"]}
    assert met == {
        ("fast", "speed"): (2, True),
        ("parts", "disk.over_read"): (3.0, False),
        ("parts", "disk.same"): (True, True),
        ("parts", "search.ratio.float32"): (0.5, True),
    }
    assert "parts      disk.over_read        3         <= 2    missed" in done.stdout


def test_a_benchmark_that_fails_is_named_and_the_others_are_measured(folder: Path) -> None:
    done, result = run(folder)
    assert done.returncode == 1
    assert "crashed failed with exit code 1" in done.stderr
    assert "share                 –         >= 0.9  not measured" in done.stdout
    assert result["benchmarks"]["parts"]["figures"]["disk"] == {"over_read": 3.0, "same": True}


@pytest.mark.proof("processes")
def test_full_sizes_are_recorded_and_the_page_has_the_newest_of_each_processor(folder: Path) -> None:
    path = folder / "history.jsonl"
    path.unlink(missing_ok=True)
    run(folder, "fast", "parts", "--full")
    first, second = map(json.loads, path.read_text().splitlines())
    assert (first["benchmark"], first["ratios"], second["ratios"]["disk.over_read"]) == ("fast", {"speed": 1}, 3.0)
    older = first | {"date": "2001-02-03T04:05:06+00:00", "ratios": {"speed": 9}}
    elsewhere = older | {"machine": first["machine"] | {"cpu": "Other", "avx2": True, "avx512": False, "cores": 8}}
    path.write_text("".join(json.dumps(line) + "\n" for line in (older, elsewhere, first, second)))
    lines = history.page(folder).splitlines()
    here = (history.processor(first["machine"]), first["date"][:10], "1, missed")
    columns = sorted([here, ("Other, AVX2, 8 cores", "2001-02-03", "9")])
    head = " | ".join(f"{cpu} ({date})" for cpu, date, _ in columns)
    assert f"| ratio | target | {head} |" in lines
    assert f"| `fast speed` | >= 2 | {' | '.join(value for *_, value in columns)} |" in lines
    assert lines[-1] == "`crashed`"


def test_every_benchmark_is_declared() -> None:
    assert set(DECLARED) == {path.stem for path in BENCHMARKS.glob("*.py")} - SHARED


@pytest.mark.parametrize("name", DECLARED)
def test_a_benchmark_has_the_options_that_are_declared(name: str) -> None:
    text = (BENCHMARKS / f"{name}.py").read_text(encoding="utf-8")
    given = f"{DECLARED[name].get('quick', '')} {DECLARED[name].get('full', '')}".split()
    assert [option for option in given if option.startswith("--") and f'add_argument("{option}"' not in text] == []


@pytest.mark.proof("matrix")
@pytest.mark.parametrize("name", DECLARED)
def test_a_benchmark_names_only_what_there_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Types of benchmarks are not checked: a name that had gone was seen when one was run."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    assert benchmark(name).__doc__


def of_gpu(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["gpu.py", *words])
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    try:
        code = benchmark("gpu").main()
    except SystemExit as error:
        code = int(str(error.code))
    return code, "".join(capsys.readouterr())


@pytest.mark.proof("matrix")
def test_every_part_for_a_gpu_works_on_a_processor(capsys, monkeypatch):
    """By the same functions, with device=cpu. Neighbours are exact on both."""
    code, said = of_gpu(capsys, monkeypatch, "--device", "cpu", "--tiny")
    assert code == 0
    found = {part.pop("part"): part for part in map(json.loads, said.splitlines())}
    for ratio in DECLARED["gpu"]["targets"]:
        part, name = ratio.split(".")
        if part in ("linear", "mlp"):  # epochs so small that the difference of two runs can be nothing
            assert found[part][name] >= 0
            assert found[part]["together_ns_a_sample"] > 0
        else:
            assert found[part][name] > 0
    assert found["neighbours"]["same"] == 1
    assert found["networks"]["conv-1"]["plain_s"] > 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_one_sentence_says_what_to_do(capsys, monkeypatch):
    code, said = of_gpu(capsys, monkeypatch, "moco")
    assert code == 2
    assert "torch sees no CUDA device; run this on a machine with one, or --device cpu --tiny here" in said
