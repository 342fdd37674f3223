"""Configuration: every mistake is answered with file, line, key, and what is allowed."""

import importlib
import runpy
import sys
from pathlib import Path

import numpy
import pytest
import yaml
from support.console import document, inside

import driftline as dl
from driftline.curate.core.errors import BadConfig, MissingFile, UnknownName
from driftline.curate.core.own_code import codes_of
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.settings import keys_of
from driftline.curate.embedding.features import encoder_name
from driftline.curate.encoders import ENCODERS
from driftline.curate.fetch.settings import FetchSettings
from driftline.curate.foreign.s3 import S3
from driftline.curate.release.settings import FeatureSettings
from driftline.curate.retrieval.settings import Concept, RetrieveSettings
from driftline.curate.sources import SOURCES
from driftline.curate.sources.folder import Folder
from driftline.curate.sources.table import Delimited
from driftline.eval.engine.fused import kind
from driftline.pipelines.config import presets
from driftline.pipelines.config.loader import Config, load
from driftline.pipelines.stages.base import Context
from driftline.pipelines.stages.embed import Embed
from driftline.pipelines.stages.ingest import Ingest
from driftline.pipelines.stages.state import StageState

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
            r"line 3, collection\.source: Unknown source 'yfc'\. Did you mean 'yfcc'\? Available: .*folder",
        ),
        ("  source: yfcc\n", "", r"line 2, collection\.source: missing\. Expected .*driftline list sources"),
        (
            "  path: data.tsv",
            "  pth: data.tsv",
            r"line 4, collection\.pth: unknown key 'pth' of the source yfcc\. Did you mean 'path'\? Available: .*path",
        ),
        ("  path: data.tsv\n", "", r"collection\.path: missing\. Expected a path"),
        ("data.tsv", "data.tsv\n  label: parent", r"line 5, collection\.label: unknown key 'label' of the source yfcc"),
        ("seed: 0", "seed: many", r"line 1, seed is 'many'\. Expected a whole number"),
        ("per_class: 10", "per_class: 0", r"line 7, retrieve\.per_class is 0\. Expected a whole number ≥ 1"),
        ("prompts: [a bus]", "prompts: []", r"line 9, retrieve\.concepts\.0\.prompts is \[\].*at least one entry"),
        ("name: bus", "name: a|b", r"retrieve\.concepts\.0\.name is 'a\|b'\. Expected .* none of \|"),
        ("name: bus", "name: background", r"retrieve: .*no concept may be named 'background'"),
        ("per_class: 10", "per_class: 9", r"per_class 9 × background_share 0\.1 is less than one"),
        ("seed: 0", "sed: 0", r"line 1, sed: unknown key 'sed'\. Did you mean 'seed'\?"),
        ("embed: {model: RN50, weights: openai}", "embed: {model: RN50, encoder: clp}", r"Did you mean 'clip'\?"),
        ("seed: 0", "filter: {earliest: soon}", r"line 1, filter\.earliest is 'soon'\. Expected a year, a date"),
        ("seed: 0", "buckets: {kind: spans}", r"line 1, buckets: kind is 'spans' and spans is empty"),
    ],
)
def test_each_mistake_names_line_key_and_what_is_allowed(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(BadConfig, match=message):
        load(given(tmp_path, GOOD.replace(old, new)))


def test_a_text_alone_is_a_concept_of_this_name_and_prompt() -> None:
    short, long = (
        RetrieveSettings(concepts=concepts)
        for concepts in (["red apple"], [{"name": "red apple", "prompts": ["red apple"]}])
    )
    assert short == long


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
    with pytest.raises(BadConfig, match=r"--set release\.per_class is 'x'\. Expected a whole number ≥ 1"):
        load(path, ["release.per_class=x"])
    with pytest.raises(BadConfig, match=r"--set relase\.per_class: unknown key 'relase'\. Did you mean 'release'\?"):
        load(path, ["relase.per_class=7"])
    with pytest.raises(BadConfig, match="Expected KEY=VALUE"):
        load(path, ["release.per_class"])


def test_times_may_be_dates(tmp_path: Path) -> None:
    config = load(given(tmp_path, GOOD + "filter: {earliest: 2004, latest: 2014-05-01T00:00:00}\n"))
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


@pytest.mark.parametrize("change", ["release.per_clas=3", "fetch.threads=0", "collection.source=yfc", "retrieve=3"])
def test_init_writes_nothing_where_a_setting_is_bad(change: str, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=rf"^--set {change.split('=')[0]}"):
        presets.write_run_file(tmp_path, "mini", [change])
    assert not (tmp_path / "driftline.yaml").exists()


def test_init_writes_the_keys_of_the_chosen_source_only(tmp_path: Path) -> None:
    changes = ["collection.source=delimited", "collection.columns={path: file, uploaded: year}"]
    written = yaml.safe_load(presets.write_run_file(tmp_path, "mini", changes).read_text())
    assert list(written["collection"]) == [*Delimited.model_fields]


def test_another_source_by_set_leaves_the_keys_of_the_files_own(tmp_path: Path) -> None:
    own = "  source: delimited\n  path: data.tsv\n  columns: {path: file, uploaded: year}"
    path = given(tmp_path, GOOD.replace("  source: yfcc\n  path: data.tsv", own))
    config = load(path, ["collection.source=folder", "collection.label=parent"])
    assert config.collection == Folder(source="folder", path="data.tsv", label="parent")


MUSEUM = """
from driftline.curate.sources.base import HERE, Source, Workplace

class Museum(Source):
    \"\"\"A museum's catalogue.\"\"\"

    room: int
    \"\"\"number of the room\"\"\"

    def inputs(self, at: Workplace = HERE):
        return []

    def batches(self, rows=65_536, skip=0, at: Workplace = HERE):
        yield from ()
"""


def test_edited_code_of_a_source_or_an_encoder_makes_its_stage_stale(tmp_path, monkeypatch):
    """A file that is written again unchanged does not."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    encoder = "from driftline.curate.encoders import Encoder\nclass Ink(Encoder):\n    fingerprint, width = 'ink', 3\n"
    plug_in, marks, names = tmp_path / "own_museum.py", [], []
    for text in (MUSEUM, MUSEUM, MUSEUM.replace("yield from ()", "yield from []")):
        plug_in.write_text(text + encoder)
        sys.modules.pop("own_museum", None)
        importlib.invalidate_caches()
        changes = ["collection.source=own_museum:Museum", "collection.room=7", "embed.encoder=own_museum:Ink"]
        place = tmp_path / str(len(marks))
        place.mkdir()
        context = Context(place, load(presets.write_run_file(place, "mini", changes)), RunLog(quiet=True))
        marks.append(StageState(Ingest(context)).mark)
        names.append(encoder_name(ENCODERS.resolve("own_museum:Ink")(), 8))
        assert codes_of(Embed(context).plugins()) == codes_of([ENCODERS["own_museum:Ink"]])
    for values in (marks, names):
        assert values[0] == values[1] != values[2]


def test_a_mark_keeps_a_setting_out_of_a_fingerprint() -> None:
    slow, fast = (FetchSettings(threads=n, timeout=n, retries=n) for n in (1, 2))
    assert slow.identity("fetch") == fast.identity("fetch")


def test_the_reference_has_every_key_of_every_section_and_source() -> None:
    text = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "run_file.py"))["page"]()
    sections = [Concept, FeatureSettings, S3, *(SOURCES[name] for name in SOURCES)]
    sections += [field.annotation for field in Config.model_fields.values() if field.annotation is not int]
    for section in sections:
        for key, field in keys_of(section).items():
            assert key == "source" or f"| `{key}` | " in text
            assert " ".join((field.description or key).split()).replace("|", "\\|") in text


def test_clear10_has_the_papers_numbers() -> None:
    config = Config.model_validate(presets.values("clear10"))
    assert (config.retrieve.per_class, config.retrieve.depth, config.release.per_class) == (600, 16_000, 300)
    assert len(config.retrieve.concepts) == 10
    assert {c.name: c.prompts for c in config.retrieve.concepts}["pullover"] == ("sweater",)
    assert len(Config.model_validate(presets.values("clear100")).retrieve.concepts) == 100


def test_an_unknown_preset_is_answered_with_the_known() -> None:
    with pytest.raises(UnknownName, match="Available: album, clear10, clear100, folder, mini, yfcc"):
        presets.values("clear")


# ---- presets


def test_where_to_get_the_metadata_of_yfcc_stands_in_the_message(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"yfcc100m_dataset\.bz2.*multimedia-commons.*s3://mmcommons"):
        dl.run(dl.init(tmp_path / "run", preset="yfcc"), until="ingest")


# ---- what the doctor says of this machine


def test_it_examines_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    found = document("doctor")
    assert found["packages"]["numpy"] == numpy.__version__
    assert found["kernel"] == kind()
    monkeypatch.setattr("driftline.pipelines.commands.start._version", lambda package: None)
    poor = inside("doctor").stdout
    assert "missing       torch, " in poor
    assert "kernel        None" in poor
