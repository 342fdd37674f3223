"""Input that costs more than it looks, and rows that would take others with them: each limit and each sentence."""

import io
import json
import os
import pickle
import struct
import zipfile
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from driftline.curate.core.atomic_io import DOCUMENT, csv_text, read_json, write_json
from driftline.curate.core.errors import BadArray, BadConfig, BadInput, IntegrityError
from driftline.curate.core.outputs import refill_all
from driftline.curate.encoders.backbone import load_checkpoint
from driftline.curate.foreign import limits
from driftline.curate.foreign.delimited import csv_rows
from driftline.curate.foreign.images import open_image
from driftline.curate.foreign.tables import BoundedParquet, read_parquet
from driftline.curate.images.checks import ImageLimits, check_image
from driftline.curate.images.strip_exif import _segments
from driftline.curate.metadata.filtering import withdrawn_ids
from driftline.curate.retrieval.settings import Concept
from driftline.curate.validation.answers.answers import read_answers, read_lines
from driftline.eval.settings import seeds_of
from driftline.pipelines.actions.common import guarded_out
from driftline.pipelines.stages.state import settle
from driftline.stream_builder.builders.arrays import from_arrays
from driftline.stream_builder.datasets import open_dataset
from driftline.stream_builder.importers.pickles import read_pickle, read_tensors

BATCH = {"batch": "b1", "items": {"i1": "p1"}, "concepts": ["bus"]}


class TestImages:
    def many_scans(self, edge: int, times: int) -> bytes:
        """A progressive JPEG of one grey whose last scan is there many times."""
        buffer = io.BytesIO()
        Image.new("L", (edge, edge), 77).save(buffer, "JPEG", progressive=True)
        parts = [
            (struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content + scan, marker == 0xDA)
            for marker, content, scan in _segments(buffer.getvalue())
        ]
        last = [part for part, is_scan in parts if is_scan][-1]
        return b"".join([b"\xff\xd8", *(part for part, _ in parts), last * times, b"\xff\xd9"])

    def test_a_small_file_that_decodes_for_long_is_dropped_before_it_is_decoded(self) -> None:
        data = self.many_scans(2000, 600)
        assert len(data) < 100_000
        found = check_image(data, ImageLimits())
        assert found.reason == "too_many_pixels"
        assert found.detail == "2000 × 2000 pixels in 606 scans"
        with pytest.raises(BadInput, match=r"a\.jpg is an image of 2000 × 2000 pixels in 606 scans"):
            open_image(data, "a.jpg").__enter__()

    def test_a_usual_progressive_image_of_a_hundred_megapixels_is_within_the_limit(self) -> None:
        assert limits.DECODING >= 100_000_000 * 10
        assert check_image(self.many_scans(500, 0), ImageLimits()).reason is None

    def test_a_bomb_in_a_data_set_is_one_sentence(self, tmp_path: Path) -> None:
        from support.faults import bomb

        (tmp_path / "a.png").write_bytes(bomb(20_000, 20_000))
        with pytest.raises(BadInput, match=r"a\.png cannot be decoded \(Image size"):
            open_image(tmp_path / "a.png", "a.png").__enter__()


class TestArrays:
    def npz(self, path: Path, shape: tuple[int, ...], data: bytes = b"") -> Path:
        """An .npz file whose x has a header that says more than there is."""
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            for name in ("x", "y"):
                with file.open(f"{name}.npy", "w") as member:
                    np.lib.format.write_array_header_1_0(
                        member, {"descr": "<f4", "fortran_order": False, "shape": shape}
                    )
                    member.write(data)
        return path

    def test_a_header_of_petabytes_costs_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match=r"an array of 4,000,000,000,000,000 bytes in 8"):
            from_arrays(self.npz(tmp_path / "a.npz", (10**9, 10**6), bytes(8)))

    def test_a_bomb_is_refused_by_the_sizes_in_its_directory(self, tmp_path, monkeypatch):
        monkeypatch.setattr("driftline.curate.foreign.arrays.UNPACKED", 1 << 20)
        path = self.npz(tmp_path / "a.npz", (1 << 20, 4), bytes(16 << 20))
        assert path.stat().st_size < 60_000
        with pytest.raises(BadInput, match=r"a\.npz would unpack to 33,554,688 bytes\. Expected at most"):
            from_arrays(path)

    def test_one_label_of_a_hundred_millions_is_refused(self, tmp_path: Path) -> None:
        x, y = np.zeros((3, 2), np.float32), np.array([0, 1, 10**8])
        np.savez(tmp_path / "a.npz", x=x, y=y)
        np.savez(tmp_path / "b.npz", train_x=x, train_y=y, test_x=x, test_y=y)
        with pytest.raises(BadArray, match=r"label 100000000.*less than 1,000,000"):
            from_arrays(tmp_path / "a.npz")
        with pytest.raises(BadArray, match=r"label 100000000.*less than 1,000,000"):
            open_dataset(tmp_path / "b.npz")


class TestDocuments:
    @pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' * 100_000, "9" * 5000, "\udc80"])
    def test_deep_and_long_json_is_one_sentence(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "a.json").write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(BadInput, match=r"a\.json is not valid JSON"):
            read_json(tmp_path / "a.json")

    def test_a_document_beyond_the_limit_is_not_read(self, tmp_path: Path) -> None:
        with (tmp_path / "a.json").open("wb") as file:
            file.truncate(DOCUMENT + 1)  # takes no room on the disk
        with pytest.raises(BadInput, match=r"a\.json has 268,435,457 bytes\. Expected a JSON file of at most"):
            read_json(tmp_path / "a.json")

    def test_an_escape_sequence_does_not_reach_the_terminal(self) -> None:
        assert str(BadInput("The file \x1b[2J\x07.")) == "The file \ufffd[2J\ufffd."


class TestTables:
    def test_an_arrow_file_whose_offsets_lead_out_of_it_does_not_end_the_process(self, tmp_path: Path) -> None:
        from driftline.curate.sources.table import HuggingFace

        table = pa.table({"image": [b"x"] * 5, "time": [2019] * 5, "tags": [["a"]] * 5})
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as file:
            file.write_table(table)
        good = struct.pack("<6i", *range(6))  # offsets of the lists
        data = sink.getvalue()
        at = data.rindex(good, 0, data.rindex(good))
        (tmp_path / "a.arrow").write_bytes(
            data[:at] + struct.pack("<6i", 0, 2**28, 2, 3, 4, 5) + data[at + len(good) :]
        )
        source = HuggingFace(path=str(tmp_path), columns={"uploaded": "time", "tags": "tags"})
        with pytest.raises(BadInput, match=r"a\.arrow cannot be read"):
            list(source.batches())

    def test_an_unclosed_quote_loses_no_row_unnoticed(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text('id,why\n1,"gone\n' + "".join(f"{i},x\n" for i in range(2, 200)))
        with pytest.raises(BadInput, match=r"a\.csv, line 2: unclosed quote"):
            withdrawn_ids(tmp_path / "a.csv")

    @pytest.mark.parametrize("text", ["a,b\n1\n", "a,b\n1,2,3\n", "a,a\n1,2\n", "b,c\n1,2\n"])
    def test_other_rows_and_columns_are_named(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "a.csv").write_text(text)
        with pytest.raises(BadInput, match=r"a\.csv(, line 2)?[ :]"):
            list(csv_rows(tmp_path / "a.csv", ["a"], ""))


def claims(path: Path, table: pa.Table) -> Path:
    """A Parquet file of few bytes whose columns of one value become large."""
    pq.write_table(table, path, compression="zstd", row_group_size=10**9, store_schema=False)
    assert path.stat().st_size < 200_000
    return path


class TestParquet:
    @pytest.fixture(autouse=True)
    def megabyte(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("driftline.curate.foreign.tables.UNPACKED", 1 << 20)

    def test_a_table_without_rows_is_a_table(self, tmp_path: Path) -> None:
        empty = pa.table({"x": pa.array([], pa.float32()), "name": pa.array([], pa.string())})
        pq.write_table(empty, tmp_path / "empty.parquet")
        assert read_parquet(tmp_path / "empty.parquet") == empty
        with BoundedParquet(tmp_path / "empty.parquet") as file:
            assert list(file.batches(10, ["x", "name"])) == []

    def test_a_thousand_bytes_do_not_become_megabytes(self, tmp_path: Path) -> None:
        texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, np.int32)), pa.array(["x" * 1000]))
        path = claims(tmp_path / "a.parquet", pa.table({"a": texts, "b": pa.StructArray.from_arrays([texts], ["c"])}))
        for columns in (["a"], ["b"], None):
            with pytest.raises(BadInput, match=r"a\.parquet would unpack to [24]\d,\d{3},\d{3} bytes or more"):
                read_parquet(path, columns)

    def test_numbers_that_repeat_are_counted_too(self, tmp_path: Path) -> None:
        path = claims(tmp_path / "a.parquet", pa.table({"a": np.zeros(10_000_000, np.int64)}))
        with pytest.raises(BadInput, match=r"would unpack to .* bytes or more. Expected at most"):
            read_parquet(path)
        with BoundedParquet(path) as file, pytest.raises(BadInput, match=r"claims 10,000,000 rows in .* bytes"):
            next(file.batches(4096, ["a"]))

    @pytest.mark.parametrize("kind", ["list", "equal beginnings", "page"])
    def test_what_has_no_dictionary_is_counted_too(self, kind: str, tmp_path: Path) -> None:
        column: list[Any] = {"list": [[0] * 10**6], "equal beginnings": ["x" * 1000] * 5000, "page": ["x" * 10**7]}[
            kind
        ]
        ways: dict[str, Any] = {} if kind == "list" else {"use_dictionary": False}
        if kind == "equal beginnings":
            ways["column_encoding"] = {"a": "DELTA_BYTE_ARRAY"}
        pq.write_table(pa.table({"a": column}), tmp_path / "a.parquet", compression="zstd", **ways)
        assert (tmp_path / "a.parquet").stat().st_size < 6_000
        with pytest.raises(BadInput, match=r"would unpack to .* bytes or more. Expected at most 1,048,576"):
            read_parquet(tmp_path / "a.parquet")
        with BoundedParquet(tmp_path / "a.parquet") as file, pytest.raises(BadInput, match="would unpack to"):
            next(file.batches(4096, ["a"]))

    def test_a_long_text_that_is_kept_once_is_read_in_small_parts(self, tmp_path: Path) -> None:
        text = pa.DictionaryArray.from_arrays(pa.array([0] * 2000, pa.int32()), pa.array(["y" * 10**6]))
        pq.write_table(pa.table({"a": text, "b": [2019] * 2000}), tmp_path / "a.parquet")
        assert (tmp_path / "a.parquet").stat().st_size < 60_000
        with BoundedParquet(tmp_path / "a.parquet") as file:
            assert next(file.batches(1024, ["a", "b"])).nbytes < 64 << 20
            assert len(next(file.batches(1024, ["b"]))) == 1024

    def test_a_table_too_large_for_memory_is_refused_by_its_footer(self, tmp_path, monkeypatch):
        monkeypatch.setattr("driftline.curate.foreign.tables.RATIO", 0)
        pq.write_table(pa.table({"a": np.arange(200_000)}), tmp_path / "a.parquet")
        monkeypatch.setattr(pq.ParquetFile, "iter_batches", None)
        with pytest.raises(BadInput, match="would unpack to"):
            read_parquet(tmp_path / "a.parquet")

    def test_what_is_honest_is_read_as_by_arrow(self, tmp_path: Path) -> None:
        rows = 30_000
        table = pa.table({"a": [f"{i}" for i in range(rows)], "b": [["x"] * (i % 3) for i in range(rows)],
                          "c": [{"bytes": b"y" * (i % 50)} for i in range(rows)], "d": [0.5] * rows})  # fmt: skip
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=9_000)
        for codec, page in product(("zstd", "snappy", "gzip", "lz4", "brotli", "none"), ("1.0", "2.0")):
            pq.write_table(table, tmp_path / "b.parquet", compression=codec, data_page_version=page)
            assert read_parquet(tmp_path / "b.parquet").equals(table)
        assert read_parquet(tmp_path / "a.parquet").equals(table)
        with BoundedParquet(tmp_path / "a.parquet") as file:
            assert pa.Table.from_batches(file.batches(1 << 16, table.column_names)).equals(table)


class TestHdf5:
    def read(self, path: Path) -> object:
        from driftline.stream_builder.builders.table import _read_hdf5

        return _read_hdf5(path)

    @pytest.mark.parametrize("kind", ["external", "virtual", "soft", "outside"])
    def test_an_array_that_is_elsewhere_is_refused(self, tmp_path: Path, kind: str) -> None:
        h5py = pytest.importorskip("h5py")
        (tmp_path / "secret").write_bytes(bytes(64))
        with h5py.File(tmp_path / "other.hdf5", "w") as file:
            file["store_list"] = np.arange(8)
        with h5py.File(tmp_path / "a.hdf5", "w") as file:
            if kind == "external":
                file.create_dataset("store_list", (8,), "i8", external=[(str(tmp_path / "secret"), 0, 64)])
            elif kind == "virtual":
                layout = h5py.VirtualLayout((8,), "i8")
                layout[:] = h5py.VirtualSource(tmp_path / "other.hdf5", "store_list", (8,))
                file.create_virtual_dataset("store_list", layout)
            elif kind == "soft":
                file["b"], file["store_list"] = np.arange(8), h5py.SoftLink("/b")
            else:
                file["store_list"] = h5py.ExternalLink(str(tmp_path / "other.hdf5"), "/store_list")
        with pytest.raises(BadInput, match=r"store_list in .*a\.hdf5 leads elsewhere"):
            self.read(tmp_path / "a.hdf5")

    def test_texts_are_read_whole(self, tmp_path: Path) -> None:
        h5py = pytest.importorskip("h5py")
        with h5py.File(tmp_path / "a.hdf5", "w") as file:
            file["store_list"] = [f"{i}.jpg" for i in range(5_000)]
        assert list(self.read(tmp_path / "a.hdf5")[[0, 4_999]]) == [b"0.jpg", b"4999.jpg"]  # type: ignore[index]


class TestPickles:
    def refused(self, path: Path, data: bytes, match: str) -> None:
        path.write_bytes(data)
        with pytest.raises(BadInput, match=rf"{path.name} cannot be read \({match}"):
            read_pickle(path)

    def test_lists_that_hold_one_list_many_times_or_themselves(self, tmp_path: Path) -> None:
        many, own = [0.5] * 10, list[object]()
        for _ in range(11):
            many = [many] * 10  # type: ignore[list-item]
        own.append(own)
        for value in (many, own):
            self.refused(tmp_path / "a.pkl", pickle.dumps(value), r"[\d,]+ bytes if each part of it is one of its own")

    def test_a_place_of_the_memo_that_would_need_gigabytes(self, tmp_path: Path) -> None:
        data = b"\x80\x02]r" + (400_000_000).to_bytes(4, "little") + b"."
        self.refused(tmp_path / "a.pkl", data, "object 400,000,000 of at most 2")

    def test_files_of_torch_and_what_is_wrong_with_them(self, tmp_path: Path) -> None:
        path, x = tmp_path / "a.pt", torch.arange(24.0).reshape(4, 6)
        content = {"a": x[1:, ::2], "b" * 200: x.t(), 3: x[:0], "c": x[:, :1].expand(4, 9), "d": torch.nn.Parameter(x)}
        content |= {str(n): (x > 7).to(n) for n in (torch.bool, torch.int8, torch.int16, torch.uint8, torch.float16)}
        torch.save(content, path)
        read, data = read_tensors(path), bytearray(path.read_bytes())
        for key, tensor in content.items():
            np.testing.assert_array_equal(read[key], tensor.detach().numpy(), strict=True)
        with zipfile.ZipFile(path) as file:
            members = {info.filename: file.read(info) for info in file.infolist()}
        for name, other, kind, match in (
            ("a/data.pkl", b"\x80\2]r\0\x84\xd7\x17.", zipfile.ZIP_STORED, "object 400,000,000 of at most 2"),
            ("a/byteorder", b"big", zipfile.ZIP_STORED, "big-endian numbers"),
            ("a/version", b"3", zipfile.ZIP_DEFLATED, "byteorder is compressed or damaged"),
        ):
            with zipfile.ZipFile(path, "w", kind) as file:
                for member, value in (members | {name: other}).items():
                    file.writestr(member, value)
            with pytest.raises(BadInput, match=match):
                read_tensors(path)
        data[data.index(x.numpy().tobytes())] ^= 1
        path.write_bytes(data)
        with pytest.raises(BadInput, match="data/0 is compressed or damaged"):
            read_tensors(path)

    @pytest.mark.parametrize("storage", ["array", "buffer", "stored"])
    def test_bytes_of_a_view_that_a_pickle_frees(self, tmp_path: Path, storage: str) -> None:
        kind, n = b"cnumpy\ndtype\n(X\2\0\0\0u1tR", 1 << 16
        size, text = b"J" + n.to_bytes(4, "little"), b"B" + n.to_bytes(4, "little") + b"A" * n
        state = b"(K\1(%bt%b\x89%btb"
        array = b"cnumpy.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0tR" + state % (size, kind, text) + b"q\1"
        view = b"ctorch._utils\n_rebuild_tensor_v2\n(h\1K\0(%bt(K\1t\x89NtR" % size
        if storage == "buffer":
            view = b"cnumpy.numeric\n_frombuffer\n(h\1%b(%btX\1\0\0\0CtR" % (kind, size)
        if storage == "stored":
            array = b"(Nctorch\nByteStorage\nX\1\0\0\0" + b"0NNtQq\1"
        with zipfile.ZipFile(tmp_path / "a.pt", "w") as file:
            file.writestr("a/data.pkl", b"\x80\3](%b%bh\1%be." % (array, view, state % (b"K\1", kind, b"B\1\0\0\0B")))
            file.writestr("a/data/0", b"A" * n)
        if storage != "buffer":
            with pytest.raises(BadInput, match="a tensor without its numbers|__setstate__"):
                read_tensors(tmp_path / "a.pt")
            return
        value = read_tensors(tmp_path / "a.pt")[-2]
        _ = [np.full(n, 90, np.uint8) for _ in range(50)]  # takes memory that is free
        assert set(value.tolist()) == {ord("A")}

    def test_a_state_of_a_dtype_that_numpy_would_believe_and_crash(self, tmp_path: Path) -> None:
        (tmp_path / "a.pkl").write_bytes(pickle.dumps(np.arange(3), 2).replace(b"NNNJ", b"NJ"))
        assert read_pickle(tmp_path / "a.pkl").tolist() == [0, 1, 2]

    def test_a_tensor_of_one_number_that_claims_many(self, tmp_path: Path) -> None:
        torch.save({"x": torch.zeros(1).expand(10**6, 10**6)}, tmp_path / "a.pt")
        with pytest.raises(BadInput, match=r"4,000,000,000,\d{3} bytes if each part"):
            read_tensors(tmp_path / "a.pt")

    def test_tensors_that_numpy_does_not_have(self, tmp_path: Path) -> None:
        torch.save(torch.zeros(2).bfloat16(), tmp_path / "a.pt")
        with pytest.raises(BadInput, match=r"numbers of torch\.BFloat16Storage, which are not read: save them with"):
            read_tensors(tmp_path / "a.pt")

    def test_a_label_of_a_thousand_millions(self, tmp_path: Path) -> None:
        from driftline.stream_builder.importers.published import from_wild_time

        side = {"title": ["a"], "category": np.array([10**9])}
        (tmp_path / "arxiv.pkl").write_bytes(pickle.dumps({year: {0: side, 1: side} for year in (2001, 2002)}))
        with pytest.raises(BadArray, match=r"label 1000000000 at index 0"):
            from_wild_time(tmp_path / "arxiv.pkl")

    def test_weights_that_unpack_to_much(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("driftline.curate.foreign.arrays.UNPACKED", 1 << 20)
        with zipfile.ZipFile(tmp_path / "w.pth", "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("archive/data/0", bytes(16 << 20))
        with pytest.raises(BadInput, match=r"w\.pth would unpack to 16,777,216 bytes"):
            load_checkpoint(None, tmp_path / "w.pth")


class TestPlanted:
    """A link in the place of a file that is ours: what it names stays as it is."""

    @pytest.fixture
    def victim(self, tmp_path: Path) -> Path:
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "letter").write_text("ours, without a line end")
        return tmp_path / "home" / "letter"

    def test_an_unfinished_folder(self, tmp_path: Path, victim: Path) -> None:
        (tmp_path / ".partial-new-out").symlink_to(victim.parent)
        refill_all({tmp_path / "out": lambda folder: write_json(folder / "letter", {})})
        assert victim.read_text() == "ours, without a line end"
        assert (tmp_path / "out" / "letter").read_text() == "{}\n"

    def test_the_next_output_of_a_stage(self, tmp_path: Path, victim: Path) -> None:
        (tmp_path / "03_fetch.next").symlink_to(victim.parent)
        settle(tmp_path / "03_fetch")
        assert not (tmp_path / "03_fetch.next").exists()

    def test_output_that_somebody_else_made_in_a_shared_folder(self, tmp_path: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root can give a file away")
        tmp_path.chmod(0o1777)
        (tmp_path / "out").mkdir()
        assert guarded_out(tmp_path / "out") == tmp_path / "out"
        os.chown(tmp_path / "out", 12345, -1)
        with pytest.raises(BadConfig, match="which somebody else made"):
            guarded_out(tmp_path / "out")


class TestAnswers:
    """One odd answer costs one answer."""

    HEAD = ("WorkerId", "WorkTimeInSeconds", "Input.batch", "Input.item")

    @pytest.mark.parametrize(
        ("column", "odd"),
        [
            ("labels", "[" * 3000),
            ("labels", "['bus'"),
            ("labels", "[1](2)"),
            ("labels", "['\\ud800']"),
            ("taskAnswers", "[" * 3000),
            ("taskAnswers", "7"),
            ("taskAnswers", '[{"labels": 7}]'),
            ("taskAnswers", '[{"labels": {"labels": ["\\ud800"]}}]'),
            ("taskAnswers", '{"a": ' + "9" * 5000 + "}"),
        ],
    )
    def test_an_odd_form_is_one_row_with_a_reason(self, tmp_path: Path, column: str, odd: str) -> None:
        good = {"labels": "bus", "taskAnswers": json.dumps([{"labels": {"bus": True}}])}
        rows = [("A", "5", "b1", "i1", good[column]), ("B", "5", "b1", "i1", odd), ("C", "5", "b1", "i1", good[column])]
        (tmp_path / "r.csv").write_text(csv_text((*self.HEAD, f"Answer.{column}"), rows, quote_all=True))
        table = read_answers(read_lines([tmp_path / "r.csv"])["b1"], BATCH, "k")
        assert sorted(fault or "" for fault in table["fault"].to_pylist()) == ["", "", "unreadable"]

    @pytest.mark.parametrize("seconds", ["²", "9" * 5000, "2147483648", "-1", "1.5", "١"])
    def test_an_odd_time_is_no_time(self, tmp_path: Path, seconds: str) -> None:
        rows = [("A", "7", "b1", "i1", "bus"), ("B", seconds, "b1", "i1", "bus")]
        (tmp_path / "r.csv").write_text(csv_text((*self.HEAD, "Answer.labels"), rows))
        table = read_answers(read_lines([tmp_path / "r.csv"])["b1"], BATCH, "k")
        assert sorted(table["seconds"].to_pylist(), key=str) == [7, None]
        assert table["fault"].to_pylist() == [None, None]


@pytest.mark.parametrize("text", ["²", "0-²", "9" * 5000, "0-999999999"])
def test_a_digit_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(BadConfig, match=r"--seeds is"):
        seeds_of(text)


def test_no_text_is_asked_whether_it_is_a_digit() -> None:
    """`str.isdigit` is true of "²", which `int` refuses: `is_count` is what is meant."""
    root = Path(__file__).resolve().parents[2]
    rooms = ("curate", "stream_builder", "eval", "pipelines")
    asked = [path for room in rooms for path in (root / room).rglob("*.py") if ".isdigit()" in path.read_text("utf-8")]
    assert not asked


@pytest.mark.parametrize("name", ["A$AP", "${image_url}", "$"])
def test_a_concept_with_a_dollar_is_refused_where_it_is_named(name: str) -> None:
    """Marketplaces put values in place of $ and what follows, so that no answer would name the concept."""
    with pytest.raises(ValueError, match=r"\[\^\|\$<>"):
        Concept(name=name, prompts=("a",))


def test_features_of_another_kind_are_named(tmp_path: Path) -> None:
    from driftline.stream_builder.builders.table import timed_table

    (tmp_path / "t.csv").write_text("id,time,label\na,1,x\n")
    (tmp_path / "t.npy").write_bytes(b"\x93NUMPY\x01\x00")
    with pytest.raises(IntegrityError, match=r"t\.npy cannot be read as an array"):
        timed_table(tmp_path / "t.csv", features=tmp_path / "t.npy")


def test_a_run_file_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    from driftline.pipelines.config.loader import load

    (tmp_path / "driftline.yaml").write_text("a: " + "[" * 20_000)
    with pytest.raises(BadConfig, match=r"driftline\.yaml"):
        load(tmp_path / "driftline.yaml")
