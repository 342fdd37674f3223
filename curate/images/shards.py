"""Shards: reproducible WebDataset tar files, each with a Parquet index.

Members are in record order, in ustar format with time 0 and owner 0. The index is written after the tar: if it exists,
the shard is complete.
"""

import hashlib
import tarfile
from collections.abc import Container, Iterable, Iterator
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import sha256_bytes, writing
from driftline.curate.core.errors import IntegrityError, MissingFile, reason
from driftline.curate.core.parsing import rows_of

Member = tuple[str, bytes]  # name inside the tar, content


def write_tar(path: Path, members: Iterable[Member]) -> str:
    """Write members in order; returns the SHA-256 of the file. The same members give the same bytes."""
    size, digest = 0, hashlib.sha256()
    with writing(path) as file:
        for name, content in members:
            info = tarfile.TarInfo(name)  # of time 0, and of nobody
            info.size = len(content)
            block = info.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-info.size % tarfile.BLOCKSIZE)
            file.write(block)
            digest.update(block)
            size += len(block)
        end = bytes(2 * tarfile.BLOCKSIZE + -(size + 2 * tarfile.BLOCKSIZE) % tarfile.RECORDSIZE)
        file.write(end)
        digest.update(end)
    return digest.hexdigest()


def read_tar(path: Path, names: Container[str] | None = None) -> Iterator[Member]:
    """Yield (name, content) in order; names: of these members only. The others are checked, but not read.

    Raises IntegrityError for a file that is missing or is no tar, at its start or further on, and for a member that is
    not a plain file in the top folder: such a tar is not from driftline.
    """
    try:
        with tarfile.open(path, mode="r|") as tar:
            for info in tar:
                if not info.isfile() or "/" in info.name or info.name.startswith("."):
                    raise IntegrityError(
                        f"{path} holds the member {info.name!r}.",
                        "Expected plain files without folders.",
                        "Do not unpack it; fetch the shard again.",
                    )
                if names is None or info.name in names:
                    content = tar.extractfile(info)
                    assert content is not None  # isfile() was checked
                    yield info.name, content.read()
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise IntegrityError(
            f"{path} cannot be read as a tar ({reason(error)}).",
            "Expected a shard of driftline.",
            "Fetch the shard again.",
        ) from None


def read_images(folder: Path, index: pa.Table, shard: int) -> Iterator[tuple[str, bytes]]:
    """Yield (id, bytes) of the images of one shard, in record order.

    index: rows of `index.parquet` (any subset). Raises IntegrityError if an image is missing or its checksum differs.
    """
    wanted = {
        member: (id_, sha)
        for member, id_, sha, number in rows_of(index, "member", "id", "sha256", "shard")
        if number == shard and member is not None
    }
    if wanted:
        yield from checked_images(shard_path(folder, shard), wanted, "Fetch the shard again.")


def checked_images(tar: Path, wanted: dict[str, tuple[str, str]], way_out: str) -> Iterator[tuple[str, bytes]]:
    """Yield (id, bytes) of some members of a tar, in its order. wanted: member → (id, SHA-256), emptied here. Raises
    IntegrityError if one is missing or its checksum differs."""
    for name, content in read_tar(tar, wanted):
        id_, sha = wanted.pop(name)
        if sha256_bytes(content) != sha:
            raise IntegrityError(f"The image {name} in {tar} does not match its checksum.", "", way_out)
        yield id_, content
    if wanted:
        raise IntegrityError(f"{tar} lacks {len(wanted)} images, for example {min(wanted)}.", "", way_out)


class Reader:
    """Random access to the images of one shard by id; checksums are verified.

    The index lists the members in the order of the tar with their sizes, which gives the offset of each.
    """

    def __init__(self, folder: Path, shard: int) -> None:
        self.path = shard_path(folder, shard)
        if not (self.path.is_file() and index_path(folder, shard).is_file()):
            raise MissingFile(f"There is no shard {self.path}, or it has no index.", "", "Fetch it again.")
        index = pq.read_table(index_path(folder, shard), columns=["id", "member", "sha256", "bytes"])
        rows = [row for row in rows_of(index, *index.column_names) if row[1] is not None]
        self._members = {  # id → offset, size, SHA-256, name
            id_: (start - tarfile.BLOCKSIZE, size, sha, member)
            for start, (id_, member, sha, size) in zip(member_starts(row[3] for row in rows), rows, strict=True)
        }

    def get(self, id_: str) -> bytes:
        """The bytes of an image. Raises IntegrityError if they do not match the index."""
        offset, size, sha, member = self._members[id_]
        with self.path.open("rb") as file:
            file.seek(offset)
            header, content = file.read(tarfile.BLOCKSIZE), file.read(size)
        name = header[:100].rstrip(b"\0").decode("utf-8", "replace")
        if not member.endswith(name) or sha256_bytes(content) != sha:
            raise IntegrityError(
                f"The image {member} in {self.path} does not match its checksum.", "", "Fetch the shard again."
            )
        return content


def reader_of(folder: Path, shard: int) -> Reader:
    """A `Reader` that is kept open for later calls; a shard that was replaced is opened again."""
    try:
        stamp = index_path(folder, shard).stat()
    except OSError:
        return Reader(folder, shard)
    return _kept_reader(folder, shard, stamp.st_ino, stamp.st_mtime_ns)


@lru_cache(maxsize=64)
def _kept_reader(folder: Path, shard: int, inode: int, changed: int) -> Reader:
    return Reader(folder, shard)


def member_starts(sizes: Iterable[int]) -> list[int]:
    """Where the content of each member of a tar starts, by the sizes of all members in order.

    >>> member_starts([3, 600])
    [512, 1536]
    """
    blocks = [tarfile.BLOCKSIZE + -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE for size in sizes]
    return [end - size for end, size in zip(accumulate(blocks), (b - tarfile.BLOCKSIZE for b in blocks), strict=True)]


def shard_path(folder: Path, shard: int) -> Path:
    """The path of a shard's tar."""
    return folder / f"{shard:05d}.tar"


def index_path(folder: Path, shard: int) -> Path:
    """The path of a shard's index; the file exists only if the tar is complete."""
    return folder / f"{shard:05d}.parquet"


def good(index: pa.Table) -> pa.Table:
    """The rows of an index that have a good image."""
    return index.filter(pc.is_null(index["fault"]))
