"""A release → a stream: each bucket becomes a step."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.seeding import time_order
from driftline.curate.foreign.images import open_image, square
from driftline.curate.foreign.names import is_count
from driftline.curate.release import Release
from driftline.stream_builder.class_texts import ClassTexts, TextEncoder, encoded, prompts_of
from driftline.stream_builder.lazy_images import LazyImages, as_locations, from_tars, tar_members
from driftline.stream_builder.lazy_images import join as join_images
from driftline.stream_builder.rows import splits_of
from driftline.stream_builder.splitting import Group, drawn, numbered
from driftline.stream_builder.stream import Array, Split, Stream

MADE_BY_EMBED = "clip"  # the release's features by the encoder of its run, which read the prompts


def from_release(
    release: Release | str | Path,
    features: str | None = None,
    split: int | str = 0,
    texts: Callable[[], TextEncoder] | None = None,
    templates: Sequence[str] = (),
    seed: int = 0,
) -> Stream:
    """release: opened, or its folder. features: a name in the release (default: its first); `pixels:SIZE` for uint8
    images of SIZE × SIZE; or `images:SIZE` for the same as lazy images, with links to the release's tars. split: which
    of the release's seeded splits, by number or name; the stream also knows the sides of the others. texts: loads
    the encoder that made the features, for the vectors of the release's prompts or, if given, of `templates`.

    A bucket without images, or with none on one side of the split, is no step if two others have both sides; the fact
    `gaps` names it. Samples of a step are in order of upload time; `seed` draws the order of equal times. A stream of
    images also has the release's unlabelled images; those of buckets before the first step become `unlabelled`. Raises
    BadConfig.
    """
    release = release if isinstance(release, Release) else Release.open(release)
    table, names = release.table, list(release.facts["splits"])
    split = f"split_{split}" if isinstance(split, int) else split
    if split not in names:
        raise BadConfig(f"The release {release.name} has no split {split!r}.", f"Available: {', '.join(names)}.")
    name, edge = _features(release, features)
    samples = release_samples(release, features)
    test_in = np.stack([np.array(table[n].to_pylist()) == "test" for n in names], 1) if len(names) > 1 else None
    samples = replace(samples, test_in=test_in)
    assert samples.time is not None
    bucket, split_of = table["bucket"].to_numpy(), np.array(table[split].to_pylist())
    unlabelled = {} if edge is None else unlabelled_images(release, edge, name.startswith("pixels:"))
    parts_of = [(record, set(split_of[bucket == record["index"]])) for record in release.buckets]
    whole = [record for record, parts in parts_of if len(parts) == 2]
    filled = whole if len(whole) > 1 else [record for record, parts in parts_of if parts]
    gaps = [str(record["name"]) for record in release.buckets if record not in filled]
    numbers = [record["index"] for record in filled]
    before = [images for number, images in sorted(unlabelled.items()) if number < min(numbers)]
    order = time_order(samples.time, samples.ids, seed)
    step = np.array([numbers.index(b) if b in numbers else -1 for b in bucket.tolist()])[order]
    steps = splits_of(samples, order, step, [str(record["name"]) for record in filled], split_of[order])
    steps = [replace(step, unlabelled=unlabelled.get(number)) for step, number in zip(steps, numbers, strict=True)]
    facts = {
        "from": "release",
        "release": release.name,
        "version": release.facts["version"],
        "features": name,
        "split": split,
        **drawn(seed),
        "buckets": [entry for entry in release.steps(name) if entry["name"] not in gaps],
        **({"gaps": gaps} if gaps else {}),
        **({} if edge else release.seen_by(name)),
    }
    prior = None if not before else join_images(before) if name.startswith("images:") else np.concatenate(before)
    class_texts = None if texts is None else texts_of(release, name, texts, templates)
    return Stream(release.name, steps, release.classes, prior, facts=facts, class_texts=class_texts)


def _features(release: Release, features: str | None) -> tuple[str, int | None]:
    """The name of features, and SIZE of `images:SIZE` or `pixels:SIZE`. Raises BadConfig."""
    if features is None and not release.facts["features"]:
        raise BadConfig(f"The release {release.name} has no features.", "", "Use --features pixels:SIZE.")
    name = features or release.facts["features"][0]
    kind, _, size = name.partition(":")
    if kind not in ("pixels", "images"):
        return name, None
    if not is_count(size) or not 4 <= int(size) <= 8192:
        raise BadConfig(f"The features are {name!r}.", f"Expected {kind}:SIZE with SIZE from 4 to 8192.")
    return name, int(size)


def release_samples(release: Release, features: str | None = None) -> Split:
    """All labelled images of a release, in the order of its table. features: as of `from_release`. Raises BadConfig."""
    table, (name, edge) = release.table, _features(release, features)
    if edge is None:
        x: Any = np.asarray(release.features(name), np.float32)
    elif name.startswith("pixels:"):
        x = _pixels(release, edge)
    else:
        x = from_tars(release.path / "shards", table["shard"].to_pylist(), table["member"].to_pylist(), edge)
    ids, label, time = np.array(table["id"].to_pylist(), np.str_), table["label"], table["uploaded"]
    label, time = (column.to_numpy().astype(np.int64) for column in (label, time))
    return Split(x, label, ids, time, release_groups(release))


def texts_of(release: Release, features: str, load: Callable[[], TextEncoder], templates: Sequence[str]) -> ClassTexts:
    """Vectors of a release's prompts, or of templates with class names, by the encoder of its features `clip`. Raises
    BadConfig for other features, and for another encoder."""
    if features != MADE_BY_EMBED:
        raise BadConfig(
            f"--texts was given with the features {features!r}.",
            f"Expected {MADE_BY_EMBED}: the vectors of the encoder that read the prompts.",
            f"Add --features {MADE_BY_EMBED}.",
        )
    provenance = release.facts["provenance"]
    pairs = prompts_of(release.classes, provenance["prompts"], templates)
    width = np.asarray(release.features(features)).shape[1]
    return encoded(pairs, load(), width, provenance["encoder"].get("fingerprint"))


def release_groups(release: Release) -> Group:
    """(N,) groups of a release's images: linked by uploader or as near-duplicates."""
    return numbered(np.array(release.table["group"].to_pylist(), np.str_))


def unlabelled_images(release: Release, size: int, decode: bool) -> dict[int, Any]:
    """Bucket → its unlabelled images, if the release has any."""
    by_bucket = {}
    tars = sorted((release.path / "unlabelled").glob("bucket_[0-9]*-*.tar"))
    for name in sorted({tar.name.partition("-")[0] for tar in tars}):
        of_bucket = [tar for tar in tars if tar.name.partition("-")[0] == name]
        locations = [
            (number, offset, length)
            for number, tar in enumerate(of_bucket)
            for member, offset, length in tar_members(tar)
            if not member.endswith((".json", ".cls"))
        ]
        images = LazyImages(tuple(of_bucket), as_locations(locations), size)
        by_bucket[int(name.removeprefix("bucket_"))] = images[:] if decode else images
    return by_bucket


def _pixels(release: Release, size: int) -> Array:
    """uint8 (N, SIZE, SIZE, 3): shorter edge resized to SIZE, then a centre crop."""
    pixels = {}
    for id_, data in release.images():
        with open_image(data, f"The image {id_} of {release.path}") as image:
            pixels[id_] = square(image, size)
    return np.stack([pixels[i] for i in release.table["id"].to_pylist()])
