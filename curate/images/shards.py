"""Shards: WebDataset tar files that are the same bytes every time, each with a Parquet index.

Members are adjacent, in record order, ustar, time 0, owner 0. The index is written after the tar, so that its
existence means that the shard is whole.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from curate.core.atomic_io import sha256_bytes, writing
from curate.core.errors import IntegrityError, MissingFile

Member = tuple[str, bytes]  # name inside the tar, content


def _form() -> bytes:
    """A header whose checksum field holds spaces, as it does while the checksum is taken."""
    block = tarfile.TarInfo("").tobuf(tarfile.USTAR_FORMAT)
    return block[:148] + b" " * 8 + block[156:]


FORM = _form()


def write_tar(path: Path, members: Iterator[Member] | Sequence[Member], digest: Any = None) -> int:
    """Write members in order; returns the number of bytes written. Same members, same bytes.

    digest: an object of hashlib that is to be brought up to date with the file.
    """
    size = 0
    take = digest.update if digest is not None else len
    with writing(path) as file:
        for name, content in members:
            block = _header(name, len(content)) + content + bytes(-len(content) % tarfile.BLOCKSIZE)
            file.write(block)
            take(block)
            size += len(block)
        end = bytes(2 * tarfile.BLOCKSIZE + -(size + 2 * tarfile.BLOCKSIZE) % tarfile.RECORDSIZE)
        file.write(end)
        take(end)
    return size + len(end)


def _header(name: str, size: int) -> bytes:
    """The block before a member, as `tarfile` writes it; for a plain name what changes is put into a form that it wrote
    once, ten times as fast."""
    plain = name.encode("ascii", "replace")
    if len(plain) > 100 or size >= 8**11 or plain.decode() != name:
        info = tarfile.TarInfo(name)
        info.size, info.mtime, info.mode = size, 0, 0o644
        return info.tobuf(tarfile.USTAR_FORMAT)
    block = plain.ljust(100, b"\0") + FORM[100:124] + b"%011o\0" % size + FORM[136:]
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def read_tar(path: Path) -> Iterator[Member]:
    """Yield (name, content) in order.

    Raises IntegrityError for a member that is not a plain file in the top folder: such a tar was not written here.
    """
    with tarfile.open(path, mode="r|") as tar:
        for info in tar:
            if not info.isfile() or "/" in info.name or info.name.startswith("."):
                raise IntegrityError(
                    f"{path} holds the member {info.name!r}.",
                    "Expected plain files without folders.",
                    "Do not unpack it; fetch the shard again.",
                )
            content = tar.extractfile(info)
            assert content is not None  # isfile() was checked
            yield info.name, content.read()


def read_images(folder: Path, index: pa.Table, shard: int) -> Iterator[tuple[str, bytes]]:
    """Yield (id, bytes) of the good images of one shard, in record order.

    index: rows of `index.parquet` (any subset). Raises IntegrityError where bytes and checksum differ.
    """
    wanted = {
        member: (id_, sha)
        for member, id_, sha, number in zip(
            *(index[c].to_pylist() for c in ("member", "id", "sha256", "shard")), strict=True
        )
        if number == shard and member is not None
    }
    if not wanted:
        return
    path = shard_path(folder, shard)
    for name, content in read_tar(path):
        if name in wanted:
            id_, sha = wanted.pop(name)
            if sha256_bytes(content) != sha:
                raise IntegrityError(
                    f"The image {name} in {path} does not match its checksum.", "", "Fetch the shard again."
                )
            yield id_, content
    if wanted:
        raise IntegrityError(
            f"{path} lacks {len(wanted)} images, {sorted(wanted)[0]} first.", "", "Fetch the shard again."
        )


class Reader:
    """Images of one shard by id, without reading what lies before them; every answer's checksum is verified.

    The index lists the members in the tar's order with their sizes, which says where each begins.
    """

    def __init__(self, folder: Path, shard: int) -> None:
        self.path = shard_path(folder, shard)
        if not (self.path.is_file() and index_path(folder, shard).is_file()):
            raise MissingFile(f"There is no shard {self.path}, or no index beside it.", "", "Fetch it again.")
        index = pq.read_table(index_path(folder, shard), columns=["id", "member", "sha256", "bytes"])
        self._where: dict[str, tuple[int, int, str, str]] = {}
        offset = 0
        for id_, member, sha, size in zip(*(column.to_pylist() for column in index.columns), strict=True):
            if member is not None:
                self._where[id_] = (offset, size, sha, member)
                offset += tarfile.BLOCKSIZE + -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE

    def get(self, id_: str) -> bytes:
        """The image's bytes. Raises IntegrityError where they are not those of the index."""
        offset, size, sha, member = self._where[id_]
        with self.path.open("rb") as file:
            file.seek(offset)
            head, content = file.read(tarfile.BLOCKSIZE), file.read(size)
        named = head[:100].rstrip(b"\0").decode("utf-8", "replace")
        if not member.endswith(named) or sha256_bytes(content) != sha:
            raise IntegrityError(
                f"The image {member} in {self.path} does not match its checksum.", "", "Fetch the shard again."
            )
        return content


def shard_path(folder: Path, shard: int) -> Path:
    """The tar of a shard."""
    return folder / f"{shard:05d}.tar"


def index_path(folder: Path, shard: int) -> Path:
    """The index of a shard; it exists only when the tar is whole."""
    return folder / f"{shard:05d}.parquet"


def good(index: pa.Table) -> pa.Table:
    """The rows of an index that have an image."""
    import pyarrow.compute as pc

    return index.filter(pc.is_null(index["fault"]))


def load_index(folder: Path) -> pa.Table:
    """The whole index of a finished fetch."""
    return pq.read_table(folder / "index.parquet")
