"""Made YFCC100M rows of realistic entropy: the byte rules, field lengths and empty shares of 1,000 real lines.

Shares and lengths follow the format note on the public 1,000-line sample (no line is copied): 75 % of descriptions
empty, 41 % of tags, 16 % of cameras, 86 % of positions; text plus-encoded; ids shuffled; 490 bytes a line; bz2
shrinks it some 3.2 times, as it does the real file (49 to about 15 GB).
"""

from collections.abc import Iterator
from urllib.parse import quote_plus

import numpy as np

from driftline.curate.core.seeding import rng_for

LICENCES = [
    ("Attribution License", "by"),
    ("Attribution-NonCommercial License", "by-nc"),
    ("Attribution-ShareAlike License", "by-sa"),
    ("Attribution-NoDerivs License", "by-nd"),
    ("Attribution-NonCommercial-ShareAlike License", "by-nc-sa"),
    ("Attribution-NonCommercial-NoDerivs License", "by-nc-nd"),
]
CAMERAS = ["Canon+EOS+5D", "NIKON+D90", "SONY+DSLR-A300", "Panasonic+DMC-TZ3", "Apple+iPhone+4", "FUJIFILM+X100"]
CHUNK = 10_000


def lines(rows: int, seed: int = 0, columns: int = 23, dirty: float = 0.0) -> Iterator[bytes]:
    """Blocks of CHUNK lines. dirty: share of rows with one of the faults met in real copies."""
    rng = rng_for(seed, "words")
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    weight = 1 / np.arange(1, len(letters) + 1) ** 0.7
    words = ["".join(rng.choice(letters, n, p=weight / weight.sum())) for n in np.clip(rng.poisson(5, 40_000), 2, 14)]
    words[::37] = [quote_plus(w + "é") for w in words[::37]]
    users = [f"{rng.integers(1e7, 9.9e7)}@N{rng.integers(0, 99):02d}" for _ in range(20_000)]
    names = [words[i] for i in rng.integers(0, len(words), len(users))]
    for start in range(0, rows, CHUNK):
        yield _block(start, min(CHUNK, rows - start), seed, columns, dirty, words, users, names)


def _block(
    start: int, n: int, seed: int, columns: int, dirty: float, words: list[str], users: list[str], names: list[str]
) -> bytes:
    rng = rng_for(seed, "block", start)
    zipf = (rng.random((n, 120)) ** 3 * len(words)).astype(int)
    user = (rng.random(n) ** 2 * len(users)).astype(int)
    uploaded = rng.integers(1_107_000_000, 1_398_000_000, n)
    late = rng.random(n)
    taken = np.where(late < 0.11, uploaded + rng.integers(60, 40_000, n), uploaded - rng.integers(100, 9_000_000, n))
    stamps = np.datetime_as_string(taken.astype("datetime64[s]"), unit="s")
    secret = rng.integers(0, 16**10, (n, 2))
    share = rng.random((n, 6))
    length = rng.geometric(1 / np.array([5, 70, 10]), (n, 3)).clip(1, 118)
    licence, server, farm, camera, accuracy = (rng.integers(0, k, n) for k in (6, 8538, 9, len(CAMERAS), 16))
    place = rng.uniform((-180, -90), (180, 90), (n, 2))
    step = 97_003 * 130_003  # ids in shuffled order, none twice
    out = []
    for i in range(n):
        row = start + i
        id_ = 3_967_833 + row * step % 14_000_000_011
        text = [words[j] for j in zipf[i]]
        title = "" if share[i, 0] < 0.04 else "+".join(text[: length[i, 0]]).capitalize()
        about = "" if share[i, 1] < 0.734 else "+".join(text[1 : 1 + length[i, 1]]).replace("+e", "%2C+e")
        tags = "" if share[i, 2] < 0.41 else ",".join(sorted(set(text[2 : 2 + length[i, 2]])))
        geo = "\t\t" if share[i, 3] < 0.859 else f"{place[i, 0]:.6f}\t{place[i, 1]:.6f}\t{1 + accuracy[i]}"
        name, short = LICENCES[licence[i]]
        a, b = f"{secret[i, 0]:010x}", f"{secret[i, 1]:010x}"
        fields = [
            str(id_), users[user[i]], names[user[i]], stamps[i].replace("T", " ") + ".0", str(uploaded[i]),
            "" if share[i, 4] < 0.155 else CAMERAS[camera[i]], title, about, tags, "", geo,
            f"http://www.flickr.com/photos/{users[user[i]]}/{id_}/",
            f"http://farm{1 + farm[i]}.staticflickr.com/{1 + server[i]}/{id_}_{a}.jpg", name,
            f"http://creativecommons.org/licenses/{short}/2.0/", str(1 + server[i]), str(1 + farm[i]), a, b,
            "jpg", "1" if share[i, 5] < 0.008 else "0",
        ]  # fmt: skip
        if columns == 25:
            fields = [str(row), fields[0], b * 3, *fields[1:]]
        line = "\t".join(fields).encode()
        out.append(_spoil(line, rng) if dirty and rng.random() < dirty else line)
    return b"\n".join(out) + b"\n"


def _spoil(line: bytes, rng: np.random.Generator) -> bytes:
    """One of the kinds of damage that copies of the file have been seen with."""
    fields = line.split(b"\t")
    kind = int(rng.integers(0, 9))
    at = len(fields) - 23
    if kind == 0:
        return line + b"\tstray"
    if kind == 1:
        return b"\t".join(fields[:-3])
    if kind == 2:
        fields[6 + at] = b"broken+%zz+percent%"
    elif kind == 3:
        fields[6 + at] = b"nul\x00byte"
    elif kind == 4:
        fields[6 + at] = b"latin-1 \xe9t\xe9"
    elif kind == 5:
        fields[3 + at] = b"null"
    elif kind == 6:
        fields[3 + at] = b"0000-00-00 00:00:00.0"
    elif kind == 7:
        fields[1 if at else 0] = b"-7"
    else:
        fields[4 + at] = b"soon"
    return b"\t".join(fields)
