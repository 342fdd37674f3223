"""The locks: every supported Python, exact and verified, without an address; and what happens where one cannot be
used."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ROOT / "locks"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = [f"3.{minor}" for minor in range(30) if f"3.{minor}" in SpecifierSet(PROJECT["requires-python"])]
LINE = re.compile(r"^([a-z0-9][a-z0-9.-]*)==([0-9][0-9a-z.!]*) (?:--hash=sha256:[0-9a-f]{64} ?)+$")


def pinned(python: str, part: str) -> dict[str, str]:
    """Package → version."""
    lines = (LOCKS / f"py{python}{part}.txt").read_text(encoding="utf-8").splitlines()
    found = [LINE.match(line) for line in lines]
    assert all(found), [line for line, match in zip(lines, found, strict=True) if not match]
    return {match[1]: match[2] for match in found if match}


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"locks_{name}", LOCKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("python", PYTHONS)
def test_each_line_is_one_version_with_hashes_and_satisfies_what_the_project_asks_for(python: str) -> None:
    base, dev = pinned(python, ""), pinned(python, "-dev")
    assert not base.keys() & dev.keys()
    for wanted, held in ((PROJECT["dependencies"], base), (PROJECT["optional-dependencies"]["dev"], base | dev)):
        for asked in map(Requirement, wanted):
            name = re.sub(r"[-_.]+", "-", asked.name).lower()
            here = {"python_version": python, "python_full_version": f"{python}.9", "sys_platform": "linux"}
            if asked.marker is None or asked.marker.evaluate(here):
                assert held.get(name) in asked.specifier, f"{asked}: locked {held.get(name)}. make lock"


def test_each_dependency_of_a_user_has_a_lower_bound_that_the_lowest_installation_takes() -> None:
    extras = [
        d for name, wanted in PROJECT["optional-dependencies"].items() if name not in ("dev", "docs") for d in wanted
    ]
    taken = script("lowest").bounds()
    for asked in map(Requirement, [*PROJECT["dependencies"], *extras]):
        lowest = Requirement(taken[asked.name])
        (bound,) = [part for part in asked.specifier if part.operator in (">=", "==")]
        assert str(lowest.specifier) == f"=={bound.version}"
        assert str(lowest.marker) == str(asked.marker)


def test_there_is_a_lock_for_every_supported_python_and_no_other() -> None:
    assert PYTHONS == ["3.11", "3.12", "3.13", "3.14"]
    assert {p.name for p in LOCKS.glob("py*.txt")} == {f"py{v}{part}.txt" for v in PYTHONS for part in ("", "-dev")}


def test_a_light_start_is_a_part_of_each_lock_without_pytorch() -> None:
    light = set((LOCKS / "light.txt").read_text(encoding="utf-8").split())
    assert all(light <= pinned(python, "").keys() for python in PYTHONS)
    assert not light & {"torch", "torchvision", "triton", "open-clip-torch", "timm"}
    lines = script("install").locked(LOCKS, dev=False, light=True)
    assert {line.partition("==")[0] for line in lines} == light


def test_another_platform_gets_the_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    install = script("install")
    monkeypatch.setattr(install.platform, "system", lambda: "Linux")
    monkeypatch.setattr(install.platform, "machine", lambda: "x86_64")
    assert any(line.startswith("numpy==") for line in install.locked(LOCKS, dev=False))
    assert len(install.locked(LOCKS, dev=True)) > len(install.locked(LOCKS, dev=False))
    monkeypatch.setattr(install.platform, "machine", lambda: "aarch64")
    assert install.locked(LOCKS, dev=False) is None


@pytest.mark.parametrize(("version", "stays"), [("2.14.1", False), ("2.14.1+cpu", True), ("2.13.0", True)])
def test_a_pytorch_that_is_there_stays(version: str, stays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    install = script("install")
    monkeypatch.setattr(install, "version", lambda name: version)
    assert install.keeps_torch(["numpy==2.4.6 --hash=sha256:0", "torch==2.14.1 --hash=sha256:0"]) is stays


def test_a_version_that_cannot_be_had_is_named_and_the_ranges_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A stand-in for pip writes what it was asked for, and has no torch."""
    pip = tmp_path / "pip.py"
    pip.write_text(
        f"import sys, pathlib\nlog = open({str(tmp_path / 'log')!r}, 'a')\nlog.write(' '.join(sys.argv[1:]) + '\\n')\n"
        "if '--requirement' in sys.argv and 'torch==' in pathlib.Path(sys.argv[-1]).read_text():\n"
        "    sys.exit('ERROR: No matching distribution found for torch==2.14.1')\n",
        encoding="utf-8",
    )
    install = script("install")
    monkeypatch.setattr(install, "PIP", [sys.executable, str(pip)])
    monkeypatch.setattr(
        install, "locked", lambda folder, dev, light: ["numpy==2.4.6 --hash=x", "torch==2.14.1 --hash=x"]
    )
    monkeypatch.setattr(install, "keeps_torch", lambda lines: False)
    monkeypatch.setattr(sys, "argv", ["install.py"])
    with pytest.raises(SystemExit, match="0"):
        install.main()
    said = capfd.readouterr().out
    assert "No matching distribution found for torch==2.14.1): versions by the ranges of pyproject.toml" in said
    asked = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
    assert sum("--require-hashes" in line for line in asked) == 2
    assert asked[-1].endswith(f"--editable {ROOT}")


def test_a_light_start_takes_nothing_but_locked_versions(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A stand-in for pip writes what it was asked for; the second time there is no lock."""
    install = script("install")
    monkeypatch.setattr(install, "PIP", [sys.executable, "-c", "import sys; print(*sys.argv[1:])"])
    monkeypatch.setattr(install, "locked", lambda folder, dev, light: ["numpy==2.4.6 --hash=x"] if light else None)
    monkeypatch.setattr(sys, "argv", ["install.py", "--light"])
    with pytest.raises(SystemExit, match="0"):
        install.main()
    assert f"--no-deps --editable {ROOT}" in capfd.readouterr().out
    monkeypatch.setattr(install, "locked", lambda folder, dev, light: None)
    with pytest.raises(SystemExit, match=r"^no lock for .*: pip install \. brings all packages$"):
        install.main()


@pytest.mark.proof("build")
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.skipif("DRIFTLINE_INDEX" not in os.environ, reason="asks the package index: DRIFTLINE_INDEX=1")
def test_every_locked_version_is_a_wheel_for_this_python_with_this_hash(python: str, tmp_path: Path) -> None:
    wanted = tmp_path / "wanted.txt"
    wanted.write_text("".join(f"{n}=={v}\n" for n, v in pinned(python, "").items()), encoding="utf-8")
    target = ["--python-version", python, "--only-binary", ":all:", "--target", str(tmp_path / "none")]
    target += [arg for glibc in range(28, 4, -1) for arg in ("--platform", f"manylinux_2_{glibc}_x86_64")]
    target += ["--platform", "manylinux2014_x86_64", "--platform", "linux_x86_64"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps", "--ignore-installed"]
    done = subprocess.run(
        [*command, *target, "--report", str(tmp_path / "report.json"), "-r", str(wanted)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["install"]
    text = (LOCKS / f"py{python}.txt").read_text(encoding="utf-8")
    assert len(found) == len(text.splitlines())
    for entry in found:
        assert entry["download_info"]["archive_info"]["hashes"]["sha256"] in text, entry["metadata"]["name"]


def test_an_older_python_gets_one_sentence() -> None:
    tree = ast.parse((LOCKS / "install.py").read_text(encoding="utf-8"), feature_version=(3, 6))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert all(node.module != "__future__" for node in imports), "Python 3.6 refuses annotations from there"
    code = "import runpy, sys; sys.version_info = (3, 9, 18, 'final', 0); runpy.run_path('locks/install.py')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("driftline needs Python 3.11 or newer, and this is 3.9. Name another: make PYTHON=")
