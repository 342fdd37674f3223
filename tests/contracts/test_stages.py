"""Every registered stage: named as it is registered, after the stages that it reads, with a line about itself."""

import pytest

from driftline.pipelines.run.stage import Stage
from driftline.pipelines.stages import STAGES

ORDER = list(STAGES)


@pytest.mark.parametrize("name", ORDER)
def test_a_stage_reads_only_stages_before_it(name: str) -> None:
    assert set(STAGES[name].needs) <= set(ORDER[: ORDER.index(name)])


@pytest.mark.parametrize("name", ORDER)
def test_a_stage_has_its_name_and_says_what_it_does(name: str) -> None:
    assert issubclass(STAGES[name], Stage)
    assert STAGES[name].name == name
    assert STAGES.summary(name)
