"""The house keeps its shape: no circle of imports, one place for each hazard, and a small twin for
each test that needs shared data."""

import ast
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
from test_imports import FILES, ROOT, imported, module_of

from driftline.curate.core import system as calls
from driftline.curate.core.atomic_io import locked


def graph() -> dict[str, set[str]]:
    """Module → the project's modules that it imports, at its top or later."""
    modules = {module_of(path) for path in FILES}
    found = {}
    for path in FILES:
        names = imported(path) & modules - {module_of(path)}
        found[module_of(path)] = {n for n in names if not any(m.startswith(f"{n}.") for m in names)}  # import of a part
    return found


def test_no_circle_of_imports() -> None:
    TopologicalSorter(graph()).prepare()  # its error names the circle


MARKS = {"done.json", "begun.json", "record.json"}


def test_one_module_alone_reads_and_writes_the_marks_of_a_run() -> None:
    named = {
        str(path.relative_to(ROOT))
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in MARKS
    }
    assert named == {"pipelines/stages/state.py"}


OPENER = {"curate/foreign/images.py"}


def preparations(path: Path) -> list[str]:
    """Calls that turn a picture or change its mode to RGB, which only the opener does."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    to_rgb = [n for n in calls if n.func.attr == "convert" and any(ast.unparse(a) == "'RGB'" for a in n.args)]
    turning = [n for n in calls if n.func.attr == "exif_transpose"]
    return [f"{path.relative_to(ROOT)}:{node.lineno}" for node in (*to_rgb, *turning)]


UNBOUNDED = {"pq.read_table", "pq.ParquetFile", "pd.read_parquet", "pd.read_csv", "pd.read_pickle", "json.load",
             "pickle.load", "pickle.loads", "torch.load", "np.load", "h5py.File", "sqlite3.connect"}  # fmt: skip
BOUNDED = {  # file or folder → why it may: its own limits, or only files that the same run wrote
    "curate/foreign": "the limits themselves",
    "curate/core/files.py": "opens databases of this user",
    "stream_builder/importers/pickles.py": "weights only; sizes are checked after",
    "curate/encoders/backbone.py": "weights only; members are checked before",
    "eval/checkpoint.py": "weights only; written by the same run",
    "stream_builder/builders/table.py": "one dataset inside the file, with its size",
    "curate/sources/yfcc/reading.py": "read only, text by text",
    **dict.fromkeys(
        ("curate/embedding", "curate/fetch", "curate/metadata/filtering.py",
         "curate/metadata/released_ids.py", "curate/pretrain", "curate/release/choice.py",
         "curate/images/shards.py", "curate/release/compose.py", "curate/release/packing.py", "curate/retrieval",
         "curate/store",
         "pipelines/annotation",
         "pipelines/forecast.py", "pipelines/reporting",
         "pipelines/run", "pipelines/stages"),
        "output of stages of the run",
    ),
}  # fmt: skip


def test_files_from_outside_are_read_within_limits() -> None:
    """`read_parquet`, `BoundedParquet`, `read_json`, `read_arrays`, `read_pickle`, `connect` have limits."""
    calls = {
        path.relative_to(ROOT).as_posix(): {
            ast.unparse(node.func)
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Call)
        }
        for path in FILES
    }
    unbounded = {name for name, called in calls.items() if called & UNBOUNDED}
    excused = {name: place for name in unbounded for place in BOUNDED if name == place or name.startswith(f"{place}/")}
    assert sorted(unbounded - excused.keys()) == []
    assert sorted(BOUNDED.keys() - set(excused.values())) == [], "is excused, and does no such thing"


def test_one_module_alone_prepares_pictures() -> None:
    """`as_rgb`: upright, over white, scaled to 8 bits. Another convert("RGB") shows models another picture."""
    places = [place for path in FILES for place in preparations(path)]
    assert {place.partition(":")[0] for place in places} == OPENER


TESTS = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "tests").rglob("test_*.py"))}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def twins(node: ast.FunctionDef | ast.Module) -> list[str]:
    """The twins that the marks of a test, or the `pytestmark` of its file, name."""
    of_file = [] if isinstance(node, ast.FunctionDef) else [n for n in node.body if isinstance(n, ast.Assign)]
    marks: list[ast.AST] = [*(node.decorator_list if isinstance(node, ast.FunctionDef) else of_file)]
    calls = [call for mark in marks for call in ast.walk(mark) if isinstance(call, ast.Call)]
    return [
        ast.literal_eval(word.value)
        for call in calls if ast.unparse(call.func) == "pytest.mark.shared"
        for word in call.keywords if word.arg == "twin"
    ]  # fmt: skip


def test_what_needs_shared_data_has_a_small_twin() -> None:
    """`shared(twin="tests/….py::name")`, on the test or on its file: the same idea on made data, which always runs."""
    names = {f"{path.relative_to(ROOT)}::{test.name}" for path, tree in TESTS.items() for test in functions(tree)}
    lacking, unknown = [], []
    for path, tree in TESTS.items():
        if '/ "shared"' in path.read_text(encoding="utf-8") and path.name != "test_house.py":
            lacking += [] if "shared(" in path.read_text(encoding="utf-8") else [str(path.relative_to(ROOT))]
        needs = {"shared"}
        for _ in range(3):  # fixtures of fixtures
            needs |= {f.name for f in functions(tree) if needs & {a.arg for a in f.args.args}} - {"test"}
        for test in functions(tree):
            if not test.name.startswith("test"):
                continue
            marked = any("shared(" in ast.unparse(mark) for mark in test.decorator_list)
            if marked or needs & {a.arg for a in test.args.args}:
                of_test = twins(test) or twins(tree)
                lacking += [] if of_test else [f"{path.relative_to(ROOT)}::{test.name}"]
                unknown += [twin for twin in of_test if twin not in names]
    assert not lacking
    assert not unknown


MARKERS = {"parametrize", "usefixtures", "filterwarnings", "timeout", "proof", "shared", "skip", "skipif"}
LACKS = (  # what a machine may be without: the only reasons to skip a test
    "shared/data", "Chromium", "compiler", "namespaces", "kernel", "bfloat16", "CUDA", "a GPU", "root", "heic",
    "file systems", "folder of wheels", "is not on this machine",
)  # fmt: skip


def test_no_marker_hides_a_test_but_for_a_named_reason() -> None:
    """The kinds of proofs are in conftest.py. Nothing is expected to fail."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = ast.unparse(node) if isinstance(node, ast.Call | ast.Attribute) else ""
            if isinstance(node, ast.Attribute) and text.startswith("pytest.mark."):
                assert node.attr in MARKERS, path
            if text.startswith(("pytest.skip(", "pytest.xfail(", "pytest.mark.skip")) and isinstance(node, ast.Call):
                assert any(word in text for word in LACKS), (path, text)


# ---- what Linux or POSIX has and Windows has not is called in one room, which says so where it cannot work


ROOM = ROOT / "curate" / "core" / "system.py"
MODULES = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "posix", "msvcrt", "winreg"}
NAMES = {
    *("fork", "forkpty", "waitpid", "WNOHANG", "killpg", "setsid", "setpgid", "getpgid", "nice", "prctl"),
    *("getuid", "geteuid", "getgid", "getegid", "setuid", "setgid", "chown", "fchown", "chroot", "mkfifo", "mknod"),
    *("pread", "preadv", "pwrite", "pwritev", "sendfile", "posix_fadvise", "posix_fallocate", "copy_file_range"),
    *("sched_getaffinity", "sched_setaffinity", "unshare", "setns", "memfd_create", "getloadavg", "sysconf"),
    *("statvfs", "fchdir", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK", "add_signal_handler", "tzset"),
    *("SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGPIPE", "SIGALRM", "AF_UNIX", "preexec_fn"),
}
PLACES = ("/proc", "/dev/", "/sys/", "/etc/", "/usr/", "/tmp", "/var/", "/home/")


def used(path: Path) -> set[str]:
    """Modules, names and places of one system only that a file uses."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom):
            found |= {str(node.module)} & MODULES
        elif isinstance(node, ast.Attribute):
            found |= {node.attr} & NAMES
        elif isinstance(node, ast.keyword):
            found |= {str(node.arg)} & NAMES
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {node.value} if node.value.startswith(PLACES) else set()
    return found


def test_calls_of_one_system_are_in_one_room() -> None:
    found = {str(path.relative_to(ROOT)): used(path) for path in FILES if path != ROOM}
    assert {name: names for name, names in found.items() if names} == {}
    assert {"fcntl", "pread"} <= used(ROOM)


@pytest.fixture
def windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows: none of the modules and names above. pytest itself needs them to make tmp_path."""
    monkeypatch.setattr(calls, "POSIX", False)
    monkeypatch.setattr(calls, "LINUX", False)
    monkeypatch.setattr(sys, "platform", "win32")
    for name in NAMES:
        monkeypatch.delattr(f"os.{name}", raising=False)
    monkeypatch.delattr(calls, "fcntl")


def test_what_windows_cannot_do_says_so(windows: None, tmp_path: Path) -> None:
    with pytest.raises(calls.NotHere, match=r"does not work on win32\. Expected Linux or macOS\. On Windows use WSL\."):
        locked(tmp_path).__enter__()


def test_what_windows_does_another_way(windows: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert (calls.cores(), calls.busy_cores(), calls.memory()) == (8, 0, None)
    (tmp_path / "a").write_bytes(b"0123456789")
    with (tmp_path / "a").open("rb") as file:
        assert calls.read_at(file.fileno(), 3, 4) == b"456"
        view = memoryview(bytearray(4))
        assert (calls.read_into(file.fileno(), view, 8), bytes(view[:2])) == (2, b"89")
    calls.sync_folder(tmp_path)


def test_a_module_of_one_system_is_asked_for_and_not_needed() -> None:
    """The room can be imported where neither module exists."""
    text = ROOM.read_text(encoding="utf-8")
    space: dict[str, Any] = {"__name__": "calls"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "fcntl", None)
        exec(compile(text, "calls.py", "exec", dont_inherit=True), space)
    assert space["POSIX"] is False
