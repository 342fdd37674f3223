"""Tables of photos: CSV, JSON lines, Parquet, folders of Hugging Face `datasets`; each row a file, URL or image."""

import zlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator

from driftline.curate.core.errors import BadInput, MissingFile, reason
from driftline.curate.core.settings import PLACE, PathText
from driftline.curate.foreign.names import column_once
from driftline.curate.metadata.columns import TimeUnit, check_columns
from driftline.curate.sources.base import HERE, FileSource, Workplace

if TYPE_CHECKING:
    import pyarrow as pa

    from driftline.curate.foreign.delimited import DelimitedFile, Part
    from driftline.curate.foreign.json_lines import JsonLines
    from driftline.curate.metadata.column_mapping import Reading

READ = 16_384  # rows that are read at a time
WAY_OUT = "Correct it, collection.columns or collection.delimiter."
IMAGE = {"image": "image"}  # where images are in `datasets`, unless `columns` says otherwise


class TableSource(FileSource):
    """A file source whose user says which column is which."""

    columns: dict[str, str]
    """column of the collection → column of the table"""
    time_unit: TimeUnit = "auto"
    """what numbers in columns of times are: year, month (201903), day (20190304), excel (days since 1899-12-30), s, ms,
    us or ns since 1970; auto: years of four digits, else the unit by which the largest one is a date"""
    time_format: str | None = None
    """how dates are written that are texts, such as %d/%m/%Y (null: forms with one meaning, such as 2026-07-31)"""
    licence_names: Literal["flickr"] | None = None
    """flickr: the column of licences has Flickr's numbers, 0 to 10, and photos get their names and URLs"""
    records_version: ClassVar[int] = 3

    def own_ids(self) -> bool:
        """Whether a column has them."""
        return "id" in self.columns

    @abstractmethod
    def pieces(self, at: Workplace) -> "Iterator[Part]":
        """All rows in order. Raises BadInput, where a file is damaged after the pieces before."""

    def batches(self, rows: int = 65_536, skip: int = 0, at: Workplace = HERE) -> "Iterator[pa.RecordBatch]":
        """Yield one record a row, files in name order."""
        from driftline.curate.metadata.schema import rebatch

        yield from rebatch(self._records(skip, self.survey(at), at), rows)

    def _records(self, skip: int, reading: "Reading", at: Workplace) -> "Iterator[pa.RecordBatch]":
        from driftline.curate.metadata.column_mapping import records_of

        row, columns = 0, {name: column for name, column in self.columns.items() if name != "image"}
        for piece in self.pieces(at):
            if row + len(piece.table) > skip:
                root = piece.root.resolve()
                batch = records_of(piece.table, columns, row, root, reading, piece.faults, piece.image)
                yield batch.slice(max(0, skip - row))
            row += len(piece.table)
        if row == 0:
            raise BadInput(f"{self.path} is empty.", "Expected one row a photo.")

    def survey(self, at: Workplace = HERE) -> "Reading":
        """Look at all rows of the columns whose values have one rule. Raises BadInput (see `survey`)."""
        from driftline.curate.metadata.column_mapping import SURVEYED, survey

        few = self.model_copy(update={"columns": {n: column for n, column in self.columns.items() if n in SURVEYED}})

        spanning = 0

        def tables() -> "Iterator[pa.Table]":
            nonlocal spanning
            with suppress(BadInput):  # which `batches` raises in its place, after the rows before
                for piece in few.pieces(at):
                    spanning += piece.spanning
                    yield piece.table

        reading = survey(tables(), few.columns, self.time_unit, self.path, self.licence_names, self.time_format)
        said = (f"{spanning:,} cells have several lines.",) if spanning else ()
        return replace(reading, notes=said + reading.notes)


class Delimited(TableSource):
    """A CSV or TSV table with a header, or JSON lines (.jsonl, .ndjson), in UTF-8; also compressed (.gz).

    Times: four digits are a year (its first second, UTC), other numbers are what `time_unit` says, the rest is ISO 8601
    (without zone: UTC) or DD.MM.YYYY.
    """

    columns: Annotated[dict[str, str], AfterValidator(partial(check_columns, images=("url", "path")))]
    """column of the collection → column of the table, e.g. {path: filename, uploaded: year}; uploaded and one of url,
    path are needed; id defaults to the row's path or url"""
    delimiter: str = ","
    """column separator"""
    root: Annotated[PathText | None, PLACE] = None
    """folder that image paths start from and stay below (null: the table's folder)"""

    def inputs(self, at: Workplace = HERE) -> list[Path]:
        """The table."""
        path = at.path(self.path)
        if not path.is_file():
            raise MissingFile(f"There is no file {path}.", "Expected a table with a header.", "Check collection.path.")
        return [path]

    def pieces(self, at: Workplace) -> "Iterator[Part]":
        """The columns that are asked for, as text, and what is no row."""
        from driftline.curate.foreign.json_lines import text_rows

        (path,) = self.inputs(at)
        root, row = path.parent if self.root is None else at.path(self.root), 0
        try:
            with text_rows(path, self.delimiter) as rows:
                for part in self._parts(rows, path):
                    yield part._replace(root=root)
                    row += len(part.table)
        except (EOFError, OSError, zlib.error) as error:
            raise BadInput(f"{path} cannot be read after row {row:,} ({reason(error)}).") from None

    def _parts(self, lines: "DelimitedFile | JsonLines", path: Path) -> "Iterator[Part]":
        from driftline.curate.foreign.delimited import DelimitedFile

        if isinstance(lines, DelimitedFile):
            for column in self.columns.values():
                column_once(lines.header, column, path, WAY_OUT)
            yield from lines.parts(sorted(set(self.columns.values())))
            return
        lists, firsts = ([c for n, c in self.columns.items() if n in of] for of in (["tags"], ["title", "caption"]))
        yield from lines.parts(sorted(set(self.columns.values())), lists, firsts)
        needed = (c for n, c in self.columns.items() if n in ("uploaded", "url", "path", "id"))
        if missing := [column for column in needed if column not in lines.seen]:
            raise BadInput(f"{path} has no {missing[0]!r} in any line.", "Correct it, or collection.columns.")


class Parquet(TableSource):
    """A Parquet file, a folder of them, or the http(s) URL of one, of which only the needed parts are read.

    Times and paths are read as by `delimited`. Images in a column are read by the stage fetch.
    """

    columns: Annotated[dict[str, str], AfterValidator(partial(check_columns, images=("url", "path", "image")))]
    """column of the collection → column of the table, e.g. {url: link, uploaded: year}; uploaded and one of url, path,
    image (a column with the image's bytes, or a record with `bytes`) are needed"""
    root: Annotated[PathText | None, PLACE] = None
    """folder that image paths start from and stay below (null: the table's folder)"""

    def inputs(self, at: Workplace = HERE) -> list[Path]:
        """The files in name order, .parquet or else .arrow; none for an address on the web."""
        from driftline.curate.foreign.tables import tables_below

        if self.path.startswith(("http://", "https://")):
            return []
        path = at.path(self.path)
        if path.is_file():
            return [path]
        if not path.is_dir():
            raise MissingFile(f"There is no {path}.", "Expected a Parquet file or folder.", "Check collection.path.")
        if not (files := tables_below(path)):
            raise BadInput(f"The folder {path} is empty of data.", "Expected .parquet or .arrow files.")
        return files

    def pieces(self, at: Workplace) -> "Iterator[Part]":
        """The columns that are asked for, without images."""
        folder = at.path(self.path)
        files: list[Path | str] = [*self.inputs(at)] or [self.path]
        for path in files:
            name = Path(path).relative_to(folder).with_suffix("").as_posix() if folder.is_dir() else Path(path).stem
            own = path.parent if isinstance(path, Path) else Path.cwd()
            yield from _pieces(path, self._asked(), own if self.root is None else at.path(self.root), name)

    def _asked(self) -> dict[str, str]:
        return self.columns


class HuggingFace(Parquet):
    """A Hugging Face `datasets` folder: .parquet files (as on the hub) or .arrow files (`save_to_disk`), in name order.

    Labels of the type ClassLabel are read as names. The images themselves are read by the stage fetch.
    """

    columns: Annotated[
        dict[str, str], AfterValidator(lambda columns: check_columns(IMAGE | columns, ["image"]) and columns)
    ]
    """column of the collection → column of the table, e.g. {uploaded: year, label: species}; uploaded is needed, image
    is "image" by default"""

    def _asked(self) -> dict[str, str]:
        return IMAGE | self.columns


def _pieces(path: Path | str, columns: Mapping[str, str], root: Path, name: str) -> "Iterator[Part]":
    """The rows of a Parquet file, or of an Arrow file as `datasets` writes it. name: begins ids of images."""
    import pyarrow as pa

    from driftline.curate.foreign.delimited import Part
    from driftline.curate.foreign.tables import opened_rows, readable

    names = sorted({column for role, column in columns.items() if role != "image"})
    with readable(path, "Expected Parquet, or a file of Hugging Face datasets."), _open_bytes(path) as file:
        schema, batches = opened_rows(file, path)
        for column in columns.values():
            column_once(schema.names, column, path, "Correct collection.columns.")
        row = 0
        for batch in batches(READ, names):
            image = partial(_image, Path(path).absolute(), columns["image"], name, row) if "image" in columns else None
            yield Part(pa.Table.from_batches([batch]), {}, root=root, image=image)
            row += len(batch)


def _image(path: Path, column: str, name: str, first: int, row: int) -> tuple[str, str]:
    from driftline.curate.images.local_files import cell_path

    return f"{name}-{first + row}", cell_path(path, column, first + row)


def _open_bytes(path: Path | str) -> Any:
    if isinstance(path, Path):
        return path.open("rb")
    import fsspec

    return fsspec.open(path, "rb")
