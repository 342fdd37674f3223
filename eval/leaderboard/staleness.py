"""Whether the rows of a submission are what the code gives now: every run is run again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driftline.eval.experiment.code import ours
from driftline.eval.leaderboard.submission import opened, runs_of
from driftline.eval.leaderboard.verification import verify

SHARE = 0.01  # of a run's answers: other processors round otherwise, and a few answers near a border change


@dataclass(frozen=True)
class Checked:
    """What running the runs of a submission again gave."""

    file: str
    """its name"""
    same: int
    """runs whose answers are the same, but for a share of at most SHARE that another processor may change"""
    stale: list[dict[str, Any]]
    """learner, protocol, seed and how it differs: runs that older code gave"""
    false: list[dict[str, Any]]
    """the same for runs of this very code"""
    not_again: list[dict[str, Any]]
    """runs that could not be run again, and why"""
    problems: list[str]
    """why the submission itself does not hold"""

    def lines(self) -> list[str]:
        """For a terminal."""
        about = [(run, f"stale, {run['differs']}") for run in self.stale]
        about += [(run, f"false, {run['differs']}") for run in self.false]
        lines = [f"{run['learner']}, {run['protocol']}, seed {run['seed']}: {text}" for run, text in about]
        reasons = Counter(run["because"] for run in self.not_again)
        lines += [f"{count} runs were not run again: {reason}" for reason, count in reasons.items()]
        total = self.same + len(about) + len(self.not_again)
        return [*lines, *self.problems, f"{self.file}: {self.same} of {total} runs are what the code gives"]


def check_rows(
    path: Path, streams: Sequence[Path], say: Callable[[str], object] = lambda text: None
) -> Checked:  # fmt: skip
    """Run every run of a submission again that can be. streams: folders of its streams. say: gets one line before.
    Raises as `verify`."""
    runs = runs_of(opened(path)[0])
    seconds = sum(run.about["seconds"] for run in runs)
    say(f"{path.name}: {len(runs)} runs, which took {seconds:,.0f} s of training")
    verdict = verify(path, streams, len(runs), "all", elsewhere=True)
    stale: list[dict[str, Any]] = []
    false: list[dict[str, Any]] = []
    same = 0
    for run in verdict.again:
        if run["share"] <= SHARE:
            same += 1
        else:
            older = runs[run["run"]].about.get("code_of", {}).get("driftline") != ours()
            (stale if older else false).append(run)
    differing = {f"{run['learner']}, seed {run['seed']}: {run['differs']}" for run in verdict.again if run["differs"]}
    problems = [problem for problem in verdict.problems if problem not in differing]
    return Checked(path.name, same, stale, false, verdict.not_again, problems)
