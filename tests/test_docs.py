"""Documentation cannot drift: every command and Python block of README and docs is executed, every option, command and
setting in prose exists, every registered name is documented."""

import re
import runpy
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
import yaml
from pydantic import TypeAdapter, ValidationError
from support.console import command_tree, driftline, python
from support.helpers import album, write_base
from support.paper_data import images, orders, vectors

from driftline.curate.core.registry import Registry
from driftline.curate.core.seeding import rng_for
from driftline.curate.core.settings import keys_of
from driftline.curate.export import EXPORTS
from driftline.curate.sources import SOURCES
from driftline.curate.validation.asking import PLATFORMS
from driftline.eval.learners import LEARNERS
from driftline.eval.protocol import PROTOCOLS
from driftline.pipelines.actions.listing import REGISTRIES
from driftline.pipelines.config import presets
from driftline.pipelines.config.loader import Config
from driftline.pipelines.demo.draw import photo
from driftline.pipelines.stages import STAGES
from driftline.stream_builder.export import EXPORTS as STREAM_EXPORTS
from driftline.stream_builder.shifts import SHIFTS

ROOT = Path(__file__).resolve().parents[1]
TUTORIAL = ROOT / "docs" / "start" / "tutorial.md"  # test_wheel.py follows it, from a wheel
IGNORED = re.findall(r"^docs/reference/\w+\.md$", (ROOT / ".gitignore").read_text(encoding="utf-8"), re.M)
GENERATED = {ROOT / name for name in IGNORED}  # docs/conf.py writes them
WRITTEN = [p for p in sorted((ROOT / "docs").rglob("*.md")) if p not in GENERATED]
PAGES = [ROOT / "README.md", *WRITTEN, ROOT / "CONTRIBUTING.md"]
EXTEND = ROOT / "docs" / "guides" / "extend.md"
RUN = [page for page in PAGES if page != TUTORIAL]
JOURNEY = ROOT / "examples" / "journey.py"  # test_project_files.py runs it
MYBENCH = ROOT / "examples" / "mybench"  # the package of the guide Extend
OTHER_OPTIONS = {  # torchrun's, docker's, uv's
    "--no-python", "--nproc-per-node", "--network", "--rm", "--read-only", "--tmpfs", "--memory", "--pids-limit",
    "--user", "--frozen", "--no-dev",
}  # fmt: skip


def blocks(page: Path, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M)


def commands(page: Path) -> list[str]:
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    return [line[2:].partition("  #")[0].strip() for line in lines if line.startswith("$ ")]


def save_modules(page: Path, folder: Path) -> None:
    """A Python block whose first line is `# package/module.py` is that file; Extend has a package of its own."""
    if page == EXTEND:
        shutil.copytree(MYBENCH / "mybench", folder / "mybench")
    for block in blocks(page, "python"):
        if named := re.match(r"# ([\w/]+\.py)\n", block):
            (folder / named[1]).parent.mkdir(exist_ok=True)
            (folder / named[1]).write_text(block, encoding="utf-8")


@pytest.fixture(scope="module")
def place(journey: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a reader would have it: the demo's folder, some photos, features, and the README's results."""
    from PIL import Image

    here = tmp_path_factory.mktemp("docs")
    shutil.copytree(journey, here / "demo")  # `driftline withdraw` changes it
    (here / "photos").mkdir()
    for i in range(12):
        exif = Image.Exif()
        exif.get_ifd(0x8769)[0x9003] = f"20{10 + i // 3}:05:01 10:00:0{i % 10}"
        photo(["car"], 0.2, rng_for(1, i)).save(here / "photos" / f"p{i}.jpg", exif=exif)
    (here / "diary.txt").write_text(
        "".join(f"201{i // 3}-05-01 photos/p{i}.jpg\n" for i in range(12)), encoding="utf-8"
    )
    y = np.arange(240) % 3
    x = (np.eye(6)[y] * 2 + rng_for(0).normal(size=(240, 6))).astype(np.float32)
    np.savez(
        here / "features.npz",
        x=x,
        y=y,
        step=np.arange(240) // 60,
        split=np.where(np.arange(240) % 4 == 3, "test", "train"),
    )
    album(here / "album")
    write_base(here / "base")
    images(here / "data" / "cifar10", 10, 60)
    vectors(here / "data" / "intent", ("banking77",))
    orders(here / "data" / "cglm")
    (here / "intents").mkdir()
    for side, each in (("train", 20), ("test", 8)):
        asked = {"card": "where is my card", "loan": "i need a loan", "rate": "what is the rate"}
        rows = [f"{text} {i},{label}" for label, text in asked.items() for i in range(each)]
        (here / "intents" / f"{side}.csv").write_text("\n".join(["text,category", *rows]), encoding="utf-8")
    for command in commands(ROOT / "README.md"):
        execute(command, here)
    return here


def execute(command: str, here: Path) -> None:
    """Run one documented command; set-up commands would install or call this suite, so they are checked instead."""
    words = shlex.split(command)
    if words[0] == "make":
        subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, check=True, capture_output=True)
    elif words[:2] == ["pip", "install"]:
        assert (ROOT / words[2].partition("[")[0] / "pyproject.toml").is_file()
    elif words[0] == "python" and (here / words[1]).is_file():  # the page shows it
        python((here / words[1]).read_text(encoding="utf-8"), here).check_returncode()
    elif words[0] == "python":
        show_help = f"sys.argv.append('--help'); runpy.run_path({str(ROOT / words[1])!r}, run_name='__main__')"
        python(f"import runpy, sys; {show_help}", here).check_returncode()
    elif words[0] == "cp":
        subprocess.run(words, cwd=here, check=True)
    else:
        assert words[0] == "driftline", command
        fewer = [re.sub(r"^((?:[\w-]+\.)?epochs)=\d+$", r"\1=1", word) for word in words]  # shows as much, sooner
        if words[1] == "eval":
            fewer = [re.sub(r"^0-[12]$", "0", word) for word in fewer]  # seeds
            if "--learners all" in command:  # contracts/ has all of these
                some = "nap,scratch,finetune,er" if "clear" in command else "blind,fc-only,acm,substrate"
                fewer[fewer.index("--learners") + 1] = f"nearest-mean,slda,{some}"
        done = driftline(*fewer[1:], here=here)
        lacks = 1 if words[1] == "plan" and "is not on this machine" in done.stdout else 0  # tests have no network
        assert done.returncode == lacks, f"{command}\n{done.stderr}"


@pytest.mark.proof("docs")
@pytest.mark.parametrize("page", RUN, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_command_and_python_example_runs(page: Path, place: Path) -> None:
    save_modules(page, place)
    if page != ROOT / "README.md":  # its commands ran when the place was made
        for command in commands(page):
            execute(command, place)
    if code := "\n".join(block for block in blocks(page, "python") if block != JOURNEY.read_text(encoding="utf-8")):
        done = python(code, place)
        assert done.returncode == 0, done.stderr
    assert (place / "report" / "index.html").is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_link_and_picture_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        path = (page.parent / target).resolve()
        assert path not in GENERATED, f"{page.name} links to {target}, which a repository does not have"
        assert path.exists(), f"{page.name} links to {target}"
    for name in re.findall(r"\]\(https://[\w.]*readthedocs\.io/en/latest/(\S+?)\.html(?:#[^)]*)?\)", text):
        assert ROOT / "docs" / f"{name}.md" in GENERATED, f"{page.name} links to {name} of the published manual"


def test_every_picture_is_small_named_by_a_page_and_made_by_the_script() -> None:
    script = (ROOT / "studies" / "pictures.py").read_text(encoding="utf-8")
    found = {path.name: path.stat().st_size for path in (ROOT / "docs" / "pictures").iterdir()}
    named = re.findall(r"pictures/([\w.-]+)\)", "".join(page.read_text(encoding="utf-8") for page in PAGES))
    assert set(named) == set(found)
    assert max(found.values()) <= 250_000
    assert [name for name in found if f'"{Path(name).stem}' not in script] == []


@pytest.mark.parametrize("page", [p for p in PAGES if p != EXTEND], ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_file_of_the_repository_in_the_text_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in re.findall(
        r"`((?:curate|stream_builder|eval|pipelines|tests|examples|benchmarks|studies|docs)/[\w./-]+)`", text
    ):
        assert "NAME" in name or (ROOT / name).exists(), f"{page.name} names {name}"


def wrong_calls(page: Path, text: str) -> list[str]:
    """Calls of driftline in code spans and blocks that name no command, or an option that the command does not have;
    other options in the text that nothing on the page has."""
    known = {
        tuple(words.split()): {opt for p in command.params for opt in (*p.opts, *p.secondary_opts)} | {"--help"}
        for words, command in command_tree(groups=True).items()
    }
    scripts = {ROOT / path for path in re.findall(r"[\w/]+\.py", text) if (ROOT / path).is_file()}
    scripts |= {ROOT / "benchmarks" / name for name in re.findall(r"`(\w+\.py)", text)}
    own = {opt for script in scripts if script.is_file() for opt in OPTION.findall(script.read_text(encoding="utf-8"))}
    anywhere = OTHER_OPTIONS | own | {opt for options in known.values() for opt in options}
    spans = re.findall(r"`([^`\n]+)`", text) + [
        ln for b in re.findall(r"^```.*?\n(.*?)^```", text, re.S | re.M) for ln in b.splitlines()
    ]
    wrong = []
    for span in spans:
        call = re.search(r"(?:^|\$ |=\S+ )driftline ((?:--?\w+ )*)([a-z][a-z-]*)((?: [a-z][a-z-]*)?)(.*)", span)
        if call is None:
            continue
        path = (call[2], call[3].strip()) if (call[2], call[3].strip()) in known else (call[2],)
        if path not in known or (
            len(path) == 1 and any(k[:1] == path and len(k) == 2 for k in known) and "…" not in span
        ):
            wrong.append(f"{span!r} is no command")
            continue
        wrong += [f"{span!r}: no option {opt}" for opt in OPTION.findall(call[4]) if opt not in known[path]]
    return wrong + [f"no option {opt}" for opt in OPTION.findall(text) if opt not in anywhere]


OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_option_and_command_in_the_text_exists(page: Path) -> None:
    assert not wrong_calls(page, page.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "text",
    ["`driftline fly`", "`--shifts R:L`", "`driftline eval S --sequence x`", "```\ndriftline stream bake\n```\n"],
)
def test_an_option_or_command_that_does_not_exist_is_seen(text: str) -> None:
    assert wrong_calls(ROOT / "README.md", text)


def wrong_settings(text: str) -> list[str]:
    """Code spans such as `fetch.way: native` whose setting does not exist, or does not accept the value."""
    wrong = []
    for section, key, value in SETTING.findall(text):
        kind = Config.model_fields[section].annotation
        kinds = [SOURCES[name] for name in SOURCES] if section == "collection" else [kind]
        fields = [keys_of(kind)[key] for kind in kinds if key in keys_of(kind)]
        try:
            for field in fields if value else ():
                TypeAdapter(Annotated[field.annotation, "", *field.metadata]).validate_python(yaml.safe_load(value))
        except ValidationError as error:
            wrong.append(f"{section}.{key}: {error.errors()[0]['msg']}")
        wrong += [] if fields else [f"{section}.{key} does not exist"]
    return wrong


SECTIONS = "collection|filter|fetch|buckets|embed|retrieve|validation|release"
SETTING = re.compile(rf"`({SECTIONS})\.(?!json)(\w+)(?:: ([^`…]+))?`")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_setting_in_the_text_exists(page: Path) -> None:
    assert not wrong_settings(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", ["`validation.method: local`", "`fetch.route`", "`embed.batch: many`"])
def test_a_setting_that_does_not_exist_is_seen(text: str) -> None:
    assert wrong_settings(text)


def test_the_entry_points_of_the_recipes_name_every_group_and_resolve() -> None:
    project = tomllib.loads((MYBENCH / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["project"]["entry-points"]
    registries = [REGISTRIES[kind] for kind in REGISTRIES]
    assert set(groups) == {f"driftline.{r.group}" for r in registries if isinstance(r, Registry) and r.group}
    for target in [target for group in groups.values() for target in group.values()]:
        module, _, name = target.partition(":")
        text = (MYBENCH / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
        assert re.search(rf"^(class|def) {name}\b", text, re.M), target


def test_every_name_of_a_catalogue_is_documented() -> None:
    pages = [runpy.run_path(str(ROOT / "docs" / f"{name}_page.py"))["page"]() for name in ("learner", "parts")]
    text = "\n".join([*pages, *(page.read_text(encoding="utf-8") for page in PAGES)])
    for catalogue in (SOURCES, SHIFTS, PROTOCOLS, LEARNERS, EXPORTS, STREAM_EXPORTS, PLATFORMS, STAGES):
        for name in catalogue:
            assert re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text), f"{catalogue.kind} {name} is in no document"
            assert catalogue.summary(name), f"{catalogue.kind} {name} has no docstring"
    for name in presets.names():
        assert name in text


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_examples_import_the_public_names_only(page: Path) -> None:
    code = "\n".join(blocks(page, "python"))
    assert set(re.findall(r"(?:from|import) (driftline[\w.]*)", code)) <= {"driftline", "driftline.ext"}


def test_the_readme_begins_with_the_two_commands_of_a_newcomer() -> None:
    assert [c.partition("  ")[0].strip() for c in commands(ROOT / "README.md")][:2] == ["make demo", "make test"]


def test_no_document_names_a_place_of_one_machine() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert "/work/" not in text
        assert "/root/" not in text
        assert "/home/" not in text
