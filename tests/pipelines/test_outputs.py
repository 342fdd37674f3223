"""A typo in --out: nothing that is finished is replaced by something else, and nothing outdated stays."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from support.console import driftline, inside
from support.helpers import drifting

import driftline as dl
from driftline.curate import encoders
from driftline.curate.core.atomic_io import TEMPORARY, read_json, write_json, write_text
from driftline.curate.core.errors import BadConfig, BadInput
from driftline.curate.core.outputs import refill_all
from driftline.curate.core.system import claimed
from driftline.curate.release import Release
from driftline.eval.reporting.report import report
from driftline.eval.run import evaluate
from driftline.pipelines.actions.common import MARKS, guarded_out
from driftline.stream_builder.builders.arrays import from_arrays
from driftline.stream_builder.builders.release import from_release
from driftline.stream_builder.stream import Stream


def files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def names(*given: str, fail: bool = False) -> Callable[[Path], int]:
    """A function that fills a folder with files of these names."""

    def fill(folder: Path) -> int:
        for name in given:
            write_text(folder / name, name)
        if fail:
            raise OSError("no room")
        return len(given)

    return fill


def refill(out: Path, fill: Callable[[Path], int]) -> int:
    return refill_all({out: fill})[out]


def test_no_file_of_an_older_export_stays(tmp_path: Path) -> None:
    assert refill(tmp_path / "out", names("bus/1.jpg", "bus/2.jpg")) == 2
    assert refill(tmp_path / "out", names("bus/1.jpg")) == 1
    assert files(tmp_path / "out") == {"bus/1.jpg": b"bus/1.jpg"}
    assert sorted(p.name for p in tmp_path.iterdir()) == [".out.json", "out"]


@pytest.mark.parametrize("change", ["added", "changed", "other folder"])
def test_files_that_no_export_wrote_stay(tmp_path: Path, change: str) -> None:
    out = tmp_path / "out"
    if change != "other folder":
        refill(out, names("1.jpg"))
    out.mkdir(exist_ok=True)
    (out / ("1.jpg" if change == "changed" else "mine.txt")).write_text("my own work")
    before = files(tmp_path)
    with pytest.raises(BadConfig, match="that no export wrote, or that were changed since. .* another --out"):
        refill(out, names("2.jpg"))
    assert files(tmp_path) == before


def test_an_export_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    refill(tmp_path / "out", names("1.jpg"))
    before = files(tmp_path)
    with pytest.raises(OSError, match="no room"):
        refill(tmp_path / "out", names("2.jpg", fail=True))
    assert files(tmp_path) == before


def test_of_several_outputs_all_are_new_or_none(tmp_path: Path) -> None:
    refill_all({tmp_path / name: names("1.jpg") for name in ("a", "b")})
    before = files(tmp_path)
    with pytest.raises(OSError, match="no room"):
        refill_all({tmp_path / "a": names("2.jpg"), tmp_path / "b": names("2.jpg", fail=True)})
    assert files(tmp_path) == before
    with pytest.raises(OSError, match="no room"):
        refill_all({tmp_path / "new": names("2.jpg"), tmp_path / "b": names("2.jpg", fail=True)})
    assert files(tmp_path) == before


def test_what_a_kill_left_of_a_file_is_removed_before_it_is_written_again(tmp_path: Path) -> None:
    for name in (".partial-123-a.zip", ".partial-123-b.zip"):
        (tmp_path / name).write_text("half")
    with claimed(tmp_path / ".partial-124-a.zip"):
        guarded_out(tmp_path / "a.zip", suffixes=(".zip",))
        assert {path.name for path in tmp_path.iterdir()} == {".partial-123-b.zip", ".partial-124-a.zip"}


def test_a_kill_between_the_two_renames_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    refill(out, names("1.jpg"))
    moved = Path.rename

    def killed(self: Path, target: Path) -> Path:
        if self.name.startswith(f"{TEMPORARY}new"):
            raise KeyboardInterrupt
        return moved(self, target)

    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        refill(out, names("2.jpg"))
    monkeypatch.undo()
    assert files(tmp_path / f"{TEMPORARY}old-out") == {"1.jpg": b"1.jpg"}
    with pytest.raises(OSError, match="no room"):  # the next export brings it back before it begins
        refill(out, names("3.jpg", fail=True))
    assert files(out) == {"1.jpg": b"1.jpg"}


def test_exports_of_a_release_and_a_stream_leave_no_older_image(journey: Path, tmp_path: Path) -> None:
    from_release(Release.open(journey), "pixels:8").save(tmp_path / "stream")
    for words, formats in (
        (["export", str(journey)], ["imagefolder", "clear", "webdataset"]),
        (["export", str(tmp_path / "stream")], ["imagefolder", "webdataset"]),
    ):
        out = tmp_path / f"{len(formats)}-exports"
        for name in formats:  # as an older version of the release had it, with an image that was withdrawn since
            refill(out / name, names("shards/withdrawn.tar", "bus/withdrawn.jpg"))
        done = driftline(*words, "--format", ",".join(formats), "--out", str(out))
        assert done.returncode == 0, done.stderr
        assert sorted(p.name for p in out.iterdir()) == sorted([*formats, *(f".{name}.json" for name in formats)])
        assert not list(out.rglob("withdrawn*"))


def stream(seed: int, steps: int = 2) -> Stream:
    rng = np.random.default_rng(seed)
    split = np.tile(["train", "train", "test"], 4 * steps)
    arrays = {"x": rng.normal(size=(12 * steps, 3)).astype(np.float32), "y": np.tile([0, 0, 0, 1, 1, 1], 2 * steps)}
    return from_arrays(arrays | {"step": np.repeat(np.arange(steps), 12), "split": split})


def test_another_stream_is_not_replaced(tmp_path: Path) -> None:
    stream(0, steps=3).save(tmp_path / "s")
    before = files(tmp_path)
    with pytest.raises(BadConfig, match="holds another stream: .*, 3 steps. Set another --out, or delete the folder"):
        stream(1).save(tmp_path / "s")
    assert files(tmp_path) == before


@pytest.mark.parametrize("damaged", ["step_00000/train_y.npy", "stream.json"])
def test_the_same_stream_is_made_again_also_where_it_is_damaged(damaged: str, tmp_path: Path) -> None:
    stream(0).save(tmp_path / "s")
    before = files(tmp_path)
    (tmp_path / "s" / damaged).write_text('{"format": 1')
    stream(0).save(tmp_path / "s")
    assert files(tmp_path) == before


def test_a_stream_of_a_newer_driftline_is_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    stream(0).save(tmp_path / "s")
    write_json(tmp_path / "s" / "stream.json", read_json(tmp_path / "s" / "stream.json") | {"format": 99})
    before = files(tmp_path)
    with pytest.raises(BadInput, match="has the format 99; this driftline reads"):
        stream(1).save(tmp_path / "s")
    assert files(tmp_path) == before


def test_vectors_of_an_older_model_stay(tmp_path: Path) -> None:
    pictures = np.random.default_rng(0).integers(0, 255, (6, 32, 32, 3), np.uint8)
    split = np.tile(["train", "train", "test"], 2)
    from_arrays({"x": pictures, "y": np.array([0, 0, 0, 1, 1, 1]), "split": split}).save(tmp_path / "images")

    def encoded(seed: int) -> Stream:
        encoders._load.cache_clear()  # as in a new process
        torch.manual_seed(seed)
        torch.save(timm.create_model("test_resnet", num_classes=0).state_dict(), tmp_path / "weights.pt")
        encoder = f"backbone:test_resnet:{tmp_path / 'weights.pt'}"
        return dl.encode(tmp_path / "images", encoder=f"a={encoder}", out=tmp_path / "vectors", device="cpu")["a"]

    old = encoded(1).sha256
    assert encoded(1).sha256 == old
    with pytest.raises(BadConfig, match="holds vectors of another encoder, or of other samples"):
        encoded(2)
    assert Stream.load(tmp_path / "vectors" / "a").sha256 == old


def test_somebody_elses_stream_json_stays(tmp_path: Path) -> None:
    (tmp_path / "stream.json").write_text('{"camera": "rtsp"}')
    with pytest.raises(BadConfig, match=r"has a file stream.json that is no stream's. Set another --out"):
        stream(0).save(tmp_path)
    assert files(tmp_path) == {"stream.json": b'{"camera": "rtsp"}'}


@pytest.mark.parametrize("name", ["index.html", "scores.csv", "results.json"])
def test_a_report_replaces_reports_only(tmp_path: Path, name: str) -> None:
    rows = evaluate(drifting(steps=2, n=40), "clear-iid", ["majority"], seeds=[0])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text("my own work")
    sentence = f"has a file {name}, but no report.js: this command did not make it. Set another --out"
    with pytest.raises(BadConfig, match=sentence):
        report(rows, tmp_path / "mine")
    assert files(tmp_path / "mine") == {name: b"my own work"}
    report(rows, tmp_path / "report")
    (tmp_path / "report" / name).write_text("an older report")
    report(rows, tmp_path / "report")
    assert files(tmp_path / "report").get(name) != b"an older report"


def place(folder: Path, holds: str) -> Path:
    """Something that another command wrote, or that is in the way."""
    files_of = {
        "stream": "s/stream.json", "draws": "s/seed-0/stream.json", "rows": "s/clear-iid/er-seed0/run.json",
        "run": "s/driftline.yaml", "release": "s/release.json", "report": "s/report.js", "audit": "s/audit.html",
        "age": "s/age.json", "model": "s/open_clip_config.json",
        "encoder": "s/pretrain.json", "reproduction": "s/table.json",
    }  # fmt: skip
    if holds == "link":
        (folder / "s").symlink_to(folder / "elsewhere")
    else:
        write_text(folder / files_of.get(holds, "s"), "x")
    return folder / "s"


@pytest.mark.parametrize("holds", [*MARKS, "file", "link"])
def test_no_command_writes_over_what_another_one_wrote(holds: str, tmp_path: Path) -> None:
    out = place(tmp_path, holds)
    for writes in (*MARKS, None):
        if writes == holds:
            assert guarded_out(out, writes) == out
        else:
            with pytest.raises(BadConfig, match=r"^--out is .*Set another --out\.$"):
                guarded_out(out, writes)


@pytest.mark.parametrize(
    ("name", "suffixes", "problem"),
    [
        ("new", (), ""),
        ("new/deeper", (), ""),
        ("v1.0", ("", ".svg"), ""),
        ("chart.SVG", ("", ".svg"), ""),
        ("ours.zip", (".zip",), ""),
        ("ours.md", (".zip",), r"Expected a file that ends with \.zip"),
        ("ours", (".zip", ".md"), r"Expected a file that ends with \.zip or \.md"),
        ("folder.zip", (".zip",), "a folder. Expected a file"),
        ("file/new", (), "is a file. Expected a folder"),
        ("stream/ours.zip", (".zip",), "holds a stream"),
        ("stream/report", (), "holds a stream"),
        ("runs/report", (), r"runs holds results of driftline eval\. Expected another place"),
        ("runs/clear-iid/figures", (), "holds results"),
        ("copies/report", (), ""),
    ],
)
def test_a_place_is_a_folder_or_a_file_by_its_suffix(name, suffixes, problem, tmp_path):
    (tmp_path / "folder.zip").mkdir()
    write_text(tmp_path / "file", "x")
    write_text(tmp_path / "stream" / "stream.json", "x")
    for folder in ("runs/clear-iid/er", "copies/runs/000001"):
        write_json(tmp_path / folder / "run.json", {"protocol": "clear-iid"})
    if not problem:
        assert guarded_out(tmp_path / name, None, suffixes) == tmp_path / name
        return
    with pytest.raises(BadConfig, match=problem):
        guarded_out(tmp_path / name, None, suffixes, option="--site")


@pytest.mark.parametrize(
    "words",
    [
        "stream from-clear x", "stream from-release x", "stream from-dataset x", "stream from-baseline x",
        "stream compose --base x --sequence C", "stream encode x --encoder ngrams:8", "stream show x",
        "export x --format urls", "models get RN50", "models train x",
        "models train x --recipe small", "report x", "compare x y", "audit x", "demo", "batch x --format mturk",
    ],
)  # fmt: skip
def test_a_wrong_place_is_refused_before_any_work(words: str, tmp_path: Path) -> None:
    """The input is not there, which is not yet seen."""
    before = files(place(tmp_path, "rows").parent)
    done = inside(*words.split(), "--out", tmp_path / "s")
    assert (done.returncode, "holds results of driftline eval" in done.stderr) == (2, True), done.stderr
    assert files(tmp_path) == before


# ---- a command that fails leaves no file where it was called, also no hidden one


FAILS = (
    "init out --preset nowhere",
    "plan nowhere",
    "run nowhere",
    "audit nowhere --out out",
    "release nowhere --format urls --out out",
    "stream from-arrays nowhere.npz --out out",
    "stream from-arrays broken.npz --out out",
    "stream from-wild-time broken.pkl --out out",
    "stream compose --base broken.npz --sequence A:0:0 --sizes 10,10 --out out",
    "eval nowhere --protocol clear-iid --learners er --out out",
    "eval broken.npz --protocol clear-iid --learners er --out out",
    "report nowhere --out out",
    "age broken.csv --out out",
    "submit nowhere --name me --out out.zip",
    "models train broken.csv --out out",
)


@pytest.mark.parametrize("command", FAILS)
def test_a_failing_command_leaves_nothing(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = [tmp_path / name for name in ("broken.npz", "broken.pkl", "broken.csv")]
    for path in given:
        path.write_bytes(bytes(16_384))
    assert inside(*command.split()).returncode not in (0, 3)
    assert sorted(tmp_path.rglob("*")) == sorted(given)
