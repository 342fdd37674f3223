"""Configuration: every mistake is answered with file, line, key, and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from curate.core.errors import BadConfig, MissingFile, UnknownName
from pipelines.config import presets
from pipelines.config.loader import load
from pipelines.config.schema import Config

GOOD = """\
seed: 0
collection:
  source: yfcc
  path: data.tsv
embed: {model: RN50, weights: openai}
retrieve:
  per_class: 10
  concepts:
    - {name: bus, prompts: [a bus]}
"""


def given(folder: Path, text: str) -> Path:
    (folder / "driftline.yaml").write_text(text)
    return folder / "driftline.yaml"


def test_defaults_are_clears(tmp_path: Path) -> None:
    config = load(given(tmp_path, GOOD))
    assert config.filter.upload_after_capture
    assert config.buckets.count == 11
    assert (config.validation.workers, config.validation.agree) == (3, 2)
    assert config.release.test_share == 0.3


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "source: yfcc",
            "source: yfc",
            r"line 3, collection\.source: Input should be 'yfcc', 'folder', .* or 'flickr'",
        ),
        (
            "  path: data.tsv",
            "  pth: data.tsv",
            r"line 4, collection\.pth: unknown key\. Allowed: .*path.*Did you mean 'path'",
        ),
        ("  path: data.tsv\n", "", r"collection\.path is missing: the source yfcc needs one"),
        ("seed: 0", "seed: many", r"line 1, seed: .*integer.*given: 'many'"),
        ("per_class: 10", "per_class: 0", r"line 7, retrieve\.per_class: .*greater than or equal to 1"),
        ("prompts: [a bus]", "prompts: []", r"line 9, retrieve\.concepts\.0\.prompts: .*at least 1 item"),
        ("name: bus", "name: a|b", r"retrieve\.concepts\.0\.name: .*pattern"),
        ("name: bus", "name: background", r"retrieve: .*no concept may be named 'background'"),
        ("per_class: 10", "per_class: 9", r"int\(9 × 0\.1\) is 0"),
        ("seed: 0", "sed: 0", r"line 1, sed: unknown key"),
    ],
)
def test_each_mistake_names_line_key_and_what_is_allowed(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(BadConfig, match=message):
        load(given(tmp_path, GOOD.replace(old, new)))


def test_two_concepts_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"two concepts have the same name: \['bus'\]"):
        load(given(tmp_path, GOOD + "    - {name: bus, prompts: [a coach]}\n"))


@pytest.mark.parametrize(
    ("text", "message"), [("a: [1", "not valid YAML"), ("", "holds nothing"), ("- 1", "holds list")]
)
def test_what_is_no_configuration_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        load(given(tmp_path, text))


def test_yaml_cannot_make_objects(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="not valid YAML"):
        load(given(tmp_path, "seed: !!python/object/apply:os.system ['true']"))


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="driftline init"):
        load(tmp_path / "driftline.yaml")


def test_set_changes_one_key_and_is_named_in_errors(tmp_path: Path) -> None:
    path = given(tmp_path, GOOD)
    assert load(path, ["release.per_class=7", "filter.date_tolerance=14h"]).filter.date_tolerance == 14 * 3600
    with pytest.raises(BadConfig, match=r"--set release\.per_class: .*given: 'x'"):
        load(path, ["release.per_class=x"])
    with pytest.raises(BadConfig, match="Expected KEY=VALUE"):
        load(path, ["release.per_class"])


def test_times_may_be_dates(tmp_path: Path) -> None:
    config = load(given(tmp_path, GOOD + "filter: {earliest: 2004-01-01, latest: 2014-05-01T00:00:00}\n"))
    assert (config.filter.earliest, config.filter.latest) == (1_072_915_200, 1_398_902_400)


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_becomes_a_file_with_every_setting_and_a_comment(name: str, tmp_path: Path) -> None:
    text = presets.full_text(presets.values(name), "x")
    config = load(given(tmp_path, text))
    assert config == Config.model_validate(presets.values(name))
    for line in text.splitlines():
        if line.strip() and not line.startswith("#") and not line.strip().startswith("- ") and not line.endswith(":"):
            assert "# " in line, line
    assert set(yaml.safe_load(text)) == set(Config.model_fields)


def test_clear10_has_the_papers_numbers() -> None:
    config = Config.model_validate(presets.values("clear10"))
    assert (config.retrieve.per_class, config.retrieve.depth, config.release.per_class) == (600, 16_000, 300)
    assert len(config.retrieve.concepts) == 10
    assert {c.name: c.prompts for c in config.retrieve.concepts}["pullover"] == ["sweater"]
    assert len(Config.model_validate(presets.values("clear100")).retrieve.concepts) == 100


def test_an_unknown_preset_is_answered_with_the_known() -> None:
    with pytest.raises(UnknownName, match="Available: clear10, clear100, folder, mini"):
        presets.values("clear")
