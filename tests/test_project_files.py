"""Workflows: they parse, name what exists, and pin what they run."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))


def steps(path: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


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
