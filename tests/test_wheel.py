"""What is shipped: packages with their data, and nothing of tests or cards; and what a stranger can do with it who has
no network, no compiler, and may write neither into the packages nor into a home folder.

The libraries are those of this environment. `make pythons` (tests/support/pythons.py) does the same, and the demo at
its full size, in a fresh environment that is made by the lock with every Python at hand, without network."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.forks import NEEDED
from support.helpers import album, photo_config
from test_project_files import NOTEBOOKS

from driftline.pipelines import VERSION

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("curate", "stream_builder", "eval", "pipelines", "driftline")
BARE = [sys.executable, str(ROOT / "tests" / "support" / "bare.py")]


@pytest.mark.parametrize("model", ["model/open_clip_model.safetensors", "early/weights.safetensors"])
def test_the_shipped_models_are_small(model: str) -> None:
    assert len((files("driftline.pipelines") / "demo" / model).read_bytes()) <= 8_000_000


def sources(to: Path) -> None:
    """A copy of the files that git knows."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in tracked.decode().split("\0"):
        if name and (ROOT / name).exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name, follow_symlinks=False)  # the links in driftline/ are files of git


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist, which was built from the files that git knows."""
    here = tmp_path_factory.mktemp("wheel")
    sources(here / "source")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(here / "dist"), str(here / "source")]
    subprocess.run(build, check=True, capture_output=True)
    (_,) = (here / "dist").glob("*.tar.gz")
    (made,) = (here / "dist").glob("driftline-*-cp311-abi3-*.whl")  # one for every Python
    assert any(name.endswith("_kernel.abi3.so") for name in zipfile.ZipFile(made).namelist()) == bool(
        shutil.which("cc")
    )
    return made


def packed(wheel: Path) -> dict[str, bytes]:
    """Name → content of what a wheel installs, without the kernel, which each build compiles."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if "_kernel." not in name}


@pytest.mark.proof("build")
def test_a_wheel_has_one_package_with_every_file_of_the_four_folders(wheel: Path) -> None:
    """Templates, styles, weights, marks of types: the same bytes, and nothing beside `driftline` at the top."""
    tracked = subprocess.run(["git", "ls-files", "-z", *FOLDERS], cwd=ROOT, capture_output=True, check=True).stdout
    paths = [ROOT / name for name in tracked.decode().split("\0") if name]
    wanted = {
        f"driftline/{path.relative_to(ROOT)}".replace("driftline/driftline/", "driftline/"): path.read_bytes()
        for path in paths
        if path.is_file() and path.suffix != ".c"
    }
    installed = {name: content for name, content in packed(wheel).items() if ".dist-info/" not in name}
    assert sorted(installed) == sorted(wanted)
    assert installed == wanted
    about = {name: content for name, content in packed(wheel).items() if name not in installed}
    assert {name.partition("/")[0] for name in about} == {f"driftline-{VERSION}.dist-info"}
    assert about[f"driftline-{VERSION}.dist-info/top_level.txt"] == b"driftline\n"


OTHERS = [
    pytest.param(path, id=re.sub(r"\W", "_", path))
    for path in os.environ.get("DRIFTLINE_PYTHONS", "").split(":")
    if path
] or [pytest.param("", marks=pytest.mark.skip(reason="there is no folder of wheels: make pythons"), id="others")]


@pytest.fixture(scope="module", params=[pytest.param("", id="this"), *OTHERS])
def installed(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An environment that has the wheel and the libraries, and knows nothing of the repository."""
    here = tmp_path_factory.mktemp("environment")
    (fresh if request.param else with_these_libraries)(here, request.param, wheel)
    yield here
    shutil.rmtree(here)


def fresh(here: Path, interpreter: str, wheel: Path) -> None:
    """By the lock, from a folder of wheels, without network."""
    python = str(here / "env" / "bin" / "python")
    subprocess.run([interpreter, "-m", "venv", str(here / "env")], check=True)
    offline = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": os.environ["DRIFTLINE_WHEELS"]}
    pip = [*bare(here), python, "-m", "pip", "install", "--no-deps", "--no-compile"]
    done([*pip, "--require-hashes", "--requirement", f"{os.environ['DRIFTLINE_WHEELS']}/locked.txt"], here, offline)
    done([*pip, str(wheel)], here, offline)
    print(interpreter, f"{sum(p.lstat().st_size for p in here.rglob('*')):,} bytes")
    done([python, "-m", "compileall", "-q", "-j", "0", str(here / "env" / "lib")], here, codes=(0, 1))


def with_these_libraries(here: Path, _: str, wheel: Path) -> None:
    """An environment that sees the libraries of this one."""
    python = str(here / "env" / "bin" / "python")
    venv.create(here / "env", with_pip=False, symlinks=True)
    (packages,) = (here / "env" / "lib").glob("python*/site-packages")
    libraries = [p for p in sys.path if p.endswith("site-packages")]
    (packages / "libraries.pth").write_text("\n".join(libraries), encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--python", python]
    words = [*pip, "install", "--no-deps", "--no-index", "--force-reinstall", "--quiet", str(wheel)]
    subprocess.run(words, check=True, capture_output=True)


def of_this_one(installed: Path) -> bool:
    """Whether the libraries are those of this environment."""
    return any((installed / "env" / "lib").glob("python*/site-packages/libraries.pth"))


@cache
def refused() -> str:
    """Why this system has no user without rights; "" if it has."""
    with TemporaryDirectory() as folder:
        command = [*BARE, folder, sys.executable, "-c", ""]
        return subprocess.run(command, capture_output=True, text=True).stderr.strip().rpartition("\n")[2]


def bare(folder: Path) -> list[str]:
    """What stands before a command of a user who may write only below a folder, where the system allows it."""
    return [] if refused() else [*BARE, str(folder)]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")} | (more or {})


def done(command: list[str], where: Path, more: Mapping[str, str] | None = None, codes: Collection[int] = (0,)) -> str:
    found = subprocess.run(command, cwd=where, capture_output=True, text=True, env=environment(more))
    assert found.returncode in codes, f"{command}\n{found.stdout}\n{found.stderr}"
    return found.stdout


def run(installed: Path, *command: str, where: Path) -> str:
    return done([*bare(where), str(installed / "env" / "bin" / command[0]), *command[1:]], where)


Script = Callable[[str, Path], str]


@pytest.fixture(scope="module")
def script(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Script]:
    """Run code in a folder, in the environment; returns what it printed. With the libraries of this environment, it is
    a fork of one process in the folder that all of `here` are in: each would load the libraries again."""
    if not of_this_one(installed):
        yield lambda code, where: run(installed, "python", "-W", "ignore", "-c", code, where=where)
        return
    place = tmp_path_factory.getbasetemp() / "stranger"
    place.mkdir()
    shutil.copy(ROOT / "tests" / "support" / "scripts.py", place)
    command = [*bare(place), str(installed / "env" / "bin" / "python"), "-W", "ignore", "scripts.py", *NEEDED]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=place, env=environment(), text=True, **pipes) as forks:

        def forked(code: str, where: Path) -> str:
            print(json.dumps([code, str(where)]), file=forks.stdin, flush=True)
            ended = forks.stdout.readline().strip()
            printed, complained = ((where / name).read_text(encoding="utf-8") for name in ("stdout", "stderr"))
            assert ended == "0", f"{code}\n{printed}\n{complained}"
            return printed

        yield forked


@pytest.fixture
def here(script: object, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The folder of one test, in which its scripts may write."""
    folder = tmp_path_factory.getbasetemp() / "stranger" / re.sub(r"\W", "_", request.node.name)
    folder.mkdir(parents=True)
    return folder


LACKING = """
import os, shutil, socket, sysconfig
def fails(call, *given):
    try:
        call(*given)
    except OSError:
        return True
home, packages = (os.path.join(p, "x") for p in (os.path.expanduser("~"), sysconfig.get_path("purelib")))
print(fails(open, home, "w"), fails(open, packages, "w"), fails(socket.create_connection, ("127.0.0.1", PORT), 5))
print([shutil.which(name) for name in ("cc", "gcc", "clang", "git", "make")])
"""


@pytest.mark.proof("build")
def test_the_stranger_has_no_network_no_compiler_and_may_not_write(tmp_path: Path) -> None:
    if refused():
        pytest.skip(f"this system allows no namespaces ({refused()}): the tests below run with the rights of this user")
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = LACKING.replace("PORT", str(server.getsockname()[1]))
        said = done([*bare(tmp_path), sys.executable, "-c", code], tmp_path)
    assert said.splitlines()[0] == "True True True"
    if not shutil.which("cc", path=str(Path(sys.executable).parent)):
        assert said.splitlines()[1] == "[None, None, None, None, None]"


@pytest.mark.proof("build")
def test_a_wheel_is_imported_from_its_own_environment(installed: Path, tmp_path: Path) -> None:
    code = "import driftline, driftline.eval.engine; print(driftline.__file__, driftline.Release.__module__)"
    assert f"{installed / 'env'}" in run(installed, "python", "-c", code, where=tmp_path)
    assert f"driftline {VERSION}" in run(installed, "driftline", "--version", where=tmp_path)


SMALL = """
import sys
from driftline.pipelines.cli import main
from driftline.pipelines.demo import journey
journey.QUICK = journey.Scale(records=500, asked=10, published=4, seeds=1)
settings = journey.presets.values("mini")
settings["buckets"]["count"] = 4
journey.presets.values = lambda name: settings
journey.LEARNERS, journey.PROTOCOLS = ["nearest-mean", "finetune"], ["clear-iid"]
sys.argv = ["driftline", "demo", "--out", "demo"]
main()
"""


@pytest.mark.proof("journey")
def test_the_demo_runs_with_no_repository_around(installed: Path, script: Script, here: Path) -> None:
    if of_this_one(installed):
        said = script(SMALL, here)
    else:
        said = run(installed, "driftline", "demo", "--out", "demo", where=here)
    assert (here / said.strip().splitlines()[-1].partition("report: ")[2]).is_file()
    parts = json.loads((here / "demo" / "demo.json").read_text(encoding="utf-8"))["parts"]
    assert set(parts) == {"rendered photos", "build", "evaluate", "report"}


@pytest.mark.proof("journey")
def test_every_notebook_runs_and_shows_what_it_found(script: Script, here: Path) -> None:
    """In one process, each cell's last value as a notebook shows it."""
    for path in (*NOTEBOOKS, ROOT / "tests" / "support" / "notebooks.py"):
        shutil.copy(path, here)
    names = [path.name for path in NOTEBOOKS]
    said = script(
        f"import runpy, sys; sys.argv[1:] = {names!r}; runpy.run_path('notebooks.py', run_name='__main__')", here
    )
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert [one["notebook"] for one in found] == [path.stem for path in NOTEBOOKS]
    for one in found:
        assert sum("_repr_" in shown for shown in one["shown"]) >= 3, one
        assert one["cpu"] < 120


TRAPS = ("curate/__init__.py", "pipelines/__init__.py", "stream_builder.py", "eval.py", "tests/__init__.py")
OWN = """
from dataclasses import dataclass
import numpy as np
from driftline.ext import Learner

@dataclass
class Newest(Learner):
    \"""The label that came last.\"""

    def begin(self, task, rng):
        self.label = 0

    def learn(self, x, y):
        self.label = int(y[-1])

    def predict(self, x):
        return np.full(len(x), self.label)
"""
IN_PLACE = """
import sys
import driftline as dl
from driftline.pipelines.cli import main
assert all(hasattr(dl, name) for name in dl.__all__)
stream = ["eval", "S", "--protocol", "clear-iid", "--seeds", "0"]
for words in (
    ["run", "mine"], ["status", "mine"], ["stream", "from-release", "mine", "--out", "S"],
    [*stream, "--learners", "own.learner:Newest,nearest-mean", "--out", "rows"], ["report", "rows", "--out", "page"],
):
    sys.argv = ["driftline", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code, words
results = dl.evaluate(dl.Stream.load("S"), "clear-iid", ["own.learner:Newest"])
print([result["learner"] for result in results["results"]], results["skipped"])
"""


@pytest.mark.proof("journey")
def test_the_journey_runs_where_a_repository_has_folders_of_these_names(installed: Path, here: Path) -> None:
    """`eval.py`, `pipelines/`: nearly every repository of machine learning has one; here each raises if it is imported.
    In a process of its own, whose first place to import from is this folder."""
    for trap in TRAPS:
        (here / trap).parent.mkdir(exist_ok=True)
        (here / trap).write_text("raise ImportError(f'{__name__} of the user was imported')\n", encoding="utf-8")
    (here / "own").mkdir()
    (here / "own" / "learner.py").write_text(OWN, encoding="utf-8")
    album(here / "mine" / "photos", 6)
    (here / "mine" / "driftline.yaml").write_text(photo_config("  per_class: 6"), encoding="utf-8")
    printed = run(installed, "python", "-c", IN_PLACE, where=here)
    assert printed.splitlines()[-1] == "['own.learner:Newest'] []"
    assert (here / "page" / "index.html").is_file()


COMMANDS = """
import sys
from driftline.pipelines.cli import main
for words in WORDS:
    sys.argv = words
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
"""


@pytest.mark.proof("journey")
def test_a_strangers_path_through_the_tutorial(installed: Path, script: Script, here: Path) -> None:
    """README → tutorial → a folder of photos → a released benchmark → an own learner evaluated on it."""
    text = (ROOT / "docs" / "start" / "tutorial.md").read_text(encoding="utf-8")
    assert "docs/start/tutorial.md" in (ROOT / "README.md").read_text(encoding="utf-8")
    album(here / "album")
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.S | re.M)
    commands = [shlex.split(line.removeprefix("$ ")) for block in blocks for line in block.splitlines()]
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
    if of_this_one(installed):  # in one process: each would load the libraries again
        code = COMMANDS.replace("WORDS", repr(commands)) + code
    else:
        for command in commands:
            run(installed, *command, where=here)
    script(code, here)
    page = (here / "mine-report" / "index.html").read_text(encoding="utf-8")
    assert "Newest" in page
    assert "nearest-mean" in page
