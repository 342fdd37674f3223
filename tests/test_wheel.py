"""What is shipped: packages with their data, and nothing of tests or cards; and what a stranger can do with it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
from importlib.resources import files
from pathlib import Path

import pytest
from support.helpers import album

ROOT = Path(__file__).resolve().parents[1]


def test_data_files_lie_inside_their_packages() -> None:
    assert (files("curate.validation") / "templates" / "question.html.j2").is_file()
    assert (files("curate.release") / "templates" / "card.md.j2").is_file()
    assert (files("eval.reporting") / "templates" / "report.html.j2").is_file()
    assert (files("pipelines") / "demo" / "model" / "open_clip_model.safetensors").is_file()
    assert (files("pipelines") / "demo" / "early" / "weights.safetensors").is_file()
    assert (files("pipelines.config") / "presets" / "mini.yaml").is_file()


@pytest.mark.parametrize("model", ["model/open_clip_model.safetensors", "early/weights.safetensors"])
def test_the_shipped_models_are_small(model: str) -> None:
    assert len((files("pipelines") / "demo" / model).read_bytes()) <= 8_000_000


def test_every_dependency_has_a_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    wanted = [*project["dependencies"], *(d for extra in project["optional-dependencies"].values() for d in extra)]
    for dependency in wanted:
        (line,) = [ln for ln in text.splitlines() if ln.strip().startswith(f'"{dependency}"')]
        assert line.partition("#")[2].strip(), f"{dependency} has no reason"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built from the sdist, in an environment that knows the libraries and nothing of the repository."""
    here = tmp_path_factory.mktemp("wheel")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in tracked.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (here / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, here / "source" / name)
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(here / "dist"), str(here / "source")]
    subprocess.run(build, check=True, capture_output=True)
    venv.create(here / "env", with_pip=False, symlinks=True)
    (packages,) = (here / "env" / "lib").glob("python*/site-packages")
    libraries = [p for p in sys.path if p.endswith("site-packages")]
    (packages / "libraries.pth").write_text("\n".join(libraries), encoding="utf-8")
    (wheel,) = (here / "dist").glob("*.whl")
    (_,) = (here / "dist").glob("*.tar.gz")
    pip = [sys.executable, "-m", "pip", "--python", str(here / "env" / "bin" / "python")]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--quiet", str(wheel)], check=True, capture_output=True)
    return here


def run(installed: Path, *command: str, where: Path) -> str:
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    program = [str(installed / "env" / "bin" / command[0]), *command[1:]]
    done = subprocess.run(program, cwd=where, capture_output=True, text=True, env=env)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_a_wheel_is_imported_from_its_own_environment(installed: Path, tmp_path: Path) -> None:
    code = "import driftline, eval.engine; print(driftline.__file__, driftline.Release.__module__)"
    assert f"{installed / 'env'}" in run(installed, "python", "-c", code, where=tmp_path)
    assert "driftline 0.1.0" in run(installed, "driftline", "--version", where=tmp_path)


@pytest.mark.slow
def test_the_demo_runs_with_no_repository_around(installed: Path, tmp_path: Path) -> None:
    said = run(installed, "driftline", "demo", "--quick", "--out", str(tmp_path / "demo"), where=tmp_path)
    assert Path(said.strip().splitlines()[-1].partition("report: ")[2]).is_file()


@pytest.mark.slow
def test_a_strangers_path_through_the_tutorial(installed: Path, tmp_path: Path) -> None:
    """README → tutorial → a folder of photos → a released benchmark → an own learner evaluated on it."""
    text = (ROOT / "docs" / "start" / "tutorial.md").read_text(encoding="utf-8")
    assert "docs/start/tutorial.md" in (ROOT / "README.md").read_text(encoding="utf-8")
    album(tmp_path / "album")
    for block in re.findall(r"^```console\n(.*?)^```", text, re.S | re.M):
        for line in block.splitlines():
            run(installed, *shlex.split(line.removeprefix("$ ")), where=tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
    run(installed, "python", "-W", "ignore", "-c", code, where=tmp_path)
    page = (tmp_path / "mine-report" / "index.html").read_text(encoding="utf-8")
    assert "Newest" in page
    assert "nearest-mean" in page


def test_asking_for_help_does_not_load_the_heavy_libraries() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from pipelines.cli.app import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "print(sorted({'torch', 'pandas', 'pyarrow', 'duckdb', 'faiss', 'scipy', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
