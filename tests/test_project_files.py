"""Workflows, forms, container and recipe: they parse, name what exists, and pin what they run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RECIPE = ROOT / "containers" / "conda" / "recipe.yaml"
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
SCHEMAS = {
    "vendor.github-workflows": WORKFLOWS,
    "vendor.dependabot": [ROOT / ".github" / "dependabot.yml"],
    "vendor.compose-spec": [ROOT / "containers" / "compose.yaml"],
}


def steps(path: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


def tool(name: str) -> str:
    """A program of the development environment."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    return found or pytest.skip(f"there is no {name} in this environment: python locks/install.py --dev")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_to_a_commit_and_make_targets_exist(path: Path) -> None:
    for step in steps(path):
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step.get("uses", f"a/b@{'0' * 40}")), step
        for target in re.findall(r"\bmake ([a-z]+)", step.get("run", "")):
            assert target in TARGETS, step
        for script in re.findall(r"\bpython ([\w/]+\.py)", step.get("run", "")):
            assert (ROOT / script).is_file(), step


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_jobs_may_only_read_but_for_the_one_that_publishes(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    writers = {name for name, job in workflow["jobs"].items() if "write" in (job.get("permissions") or {}).values()}
    assert writers <= {"publish"}
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())


def test_known_weaknesses_are_sought_and_the_software_bill_is_kept() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))["jobs"]
    audit, upload = jobs["packages"]["steps"][-2:]
    assert audit == {"run": "make audit"}, "its failure fails the job"
    assert upload["with"]["path"].split() == ["dist/audit.json", "dist/sbom.json"]
    rule = re.search(r"^audit: \$.*\n(?:\t.*\n)+", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert rule
    assert "--strict" in rule[0], "a package that cannot be looked up is no package without weaknesses"
    assert all(path in rule[0] for path in upload["with"]["path"].split())


def test_the_workflows_test_every_supported_python() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))["jobs"]
    locks = {path.stem.removeprefix("py") for path in (ROOT / "locks").glob("py*.txt") if "-dev" not in path.stem}
    assert all(set(jobs[name]["strategy"]["matrix"]["python"]) == locks for name in ("tests", "wheel"))
    assert jobs["wheel"]["steps"][-1]["env"] == {"DRIFTLINE_INDEX": "1"}, "without it, test_locks.py asks no index"


def test_the_lower_bounds_are_installed_and_the_fast_tests_run_with_them() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))["jobs"]
    _, _, _, install, tests, *demos = [step.get("run") for step in jobs["lowest"]["steps"]]
    assert install.endswith("python locks/lowest.py")
    assert tests.startswith("python -m pytest -n 4 --dist loadfile")
    assert [line.partition(" --out")[0] for line in demos] == ["driftline demo --quick", "driftline demo --real"]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_fit_their_published_schema(schema: str) -> None:
    command = [tool("check-jsonschema"), "--builtin-schema", schema, *map(str, SCHEMAS[schema])]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_dockerfile_has_no_known_mistake() -> None:
    done = subprocess.run([tool("hadolint"), str(ROOT / "containers" / "Dockerfile")], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_is_built_by_the_script_and_runs_as_nobody_special() -> None:
    lines = (ROOT / "containers" / "Dockerfile").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("RUN /source")] == [
        "RUN /source/containers/build.sh /source /opt/driftline"
    ]
    assert [line for line in lines if line.startswith("USER ")] == ["USER 1000"]
    subprocess.run(["bash", "-n", str(ROOT / "containers" / "build.sh")], check=True)


def test_the_recipe_asks_for_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named_otherwise = {"torch": "pytorch", "duckdb": "python-duckdb"}
    wanted = []
    for dependency in project["dependencies"]:
        name, _, bounds = re.fullmatch(r"([\w-]+)(\[\w+\])?([^;]*).*", dependency).groups()  # type: ignore[union-attr]
        name = named_otherwise.get(name, name.replace("_", "-"))
        wanted.append(f"{name} {bounds}".strip())
    run = yaml.safe_load(RECIPE.read_text(encoding="utf-8"))["requirements"]["run"]
    held = [line["then"] if isinstance(line, dict) else line for line in run if not str(line).startswith("python >")]
    assert held == wanted
    assert yaml.safe_load(RECIPE.read_text(encoding="utf-8"))["context"]["version"] == project["version"]
