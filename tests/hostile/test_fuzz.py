"""Every reader of bytes from outside, with mutated input: a value or one of driftline's own sentences, in time.

`make fuzz` does the same with 10,000 inputs each.
"""

from pathlib import Path

import pytest
from hostile.fuzz import CRASHERS, READERS, again, attack

TIMES, OF_SEALED = 10, 50  # inputs of each reader; of one whose digests must notice every change


@pytest.mark.parametrize("name", READERS)
def test_mutated_input_is_read_or_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    times = OF_SEALED if READERS[name].sealed else TIMES
    found = attack(name, times, keep=tmp_path)
    assert found.crashes == {}
    assert found.accepted + found.refused == times


@pytest.mark.parametrize("path", sorted(CRASHERS.rglob("*~*")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_input_that_once_was_not_withstood(path: Path) -> None:
    outcome, problem = again(path)
    assert outcome in ("accepted", "refused"), problem
