"""An audit as one HTML page with pictures and lines, and as sentences."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from driftline.curate.core.errors import DriftlineError
from driftline.curate.metadata.clocks import contradiction_sentence, reset_sentence
from driftline.curate.release import Release
from driftline.eval.plotting.charts import Picture
from driftline.eval.plotting.charts import lines as line_chart
from driftline.eval.scoring.retraining import Power
from driftline.pipelines.web.rendering import small, stylesheet, template
from driftline.stream_builder.stream import Stream

EDGE = 120  # pixels of a picture
GROUP = 8  # pictures of one group
PREPARED = {  # kind of `changes.KINDS` → what was done to the pictures
    "orientation": "turned upright", "depth": "scaled to 8 bits", "alpha": "put over white",
    "frames": "chosen of several in a file", "profile": "converted from CMYK",
}  # fmt: skip


@dataclass(frozen=True)
class Shown:
    """One image on the page."""

    id: str
    """of the image"""
    label: str
    """its class"""
    bucket: str
    """its time bucket"""
    split: str
    """its side of the first split"""
    data: str
    """JPEG in base64; "" without a picture"""


Pictures = Mapping[str, Sequence[Shown]]


def pictures(path: Path, findings: Mapping[str, Any]) -> Pictures:
    """Id → the images with this id, for all that the page shows. path: what was audited."""
    wanted = [id_ for group in findings["near_copies"]["examples"] for id_ in group[:GROUP]]
    names, shown = findings["bucket_names"], dict[str, list[Shown]]()
    if findings["kind"] == "release":
        release = Release.open(path)
        chosen = release.table.filter(pc.is_in(release.table["id"], value_set=pa.array(wanted, pa.string())))
        rows = {row["id"]: row for row in chosen.to_pylist()}
        for id_, data in release.images(ids=rows):
            label, bucket, side = (rows[id_].get(name) for name in ("class", "bucket", "split_0"))
            shown[id_] = [Shown(id_, label, names[str(bucket)], side or "", _jpeg(data))]
        return shown
    stream = Stream.load(path)
    for step in stream.steps:
        for side, split in step.splits.items():
            for at in np.flatnonzero(np.isin(np.asarray(split.ids, np.str_), wanted)):
                id_, sample = str(split.ids[at]), np.asarray(split.x[at])
                picture = _png(sample) if sample.dtype == np.uint8 and sample.ndim in (2, 3) else b""
                image = Shown(id_, stream.classes[split.y[at]], names[str(step.index)], side, _jpeg(picture))
                shown.setdefault(id_, []).append(image)
    return shown


def _png(pixels: npt.NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels.squeeze()).save(buffer, "PNG")
    return buffer.getvalue()


def _jpeg(data: bytes) -> str:
    try:
        return base64.b64encode(small(data, EDGE)).decode() if data else ""
    except DriftlineError:  # an image that cannot be decoded is no reason to have no page
        return ""


def page(findings: Mapping[str, Any], shown: Pictures | None = None) -> str:
    """The findings of an audit as one self-contained HTML page. shown: from `pictures`."""
    shown = shown or {}
    names = findings.get("bucket_names", {})
    pictures = {"drift": _drift(findings), "label-correlation": _blind(findings)}
    charts = {title: picture.svg for title, picture in pictures.items() if picture is not None}
    return template("driftline.pipelines.reporting", "audit.html.j2").render(
        name=str(findings["name"]), kind=findings["kind"], style=stylesheet(), sentences=lines(findings),
        groups=_groups(findings, shown), charts=charts,
        balance=findings["balance"], drift=findings.get("drift"),
        label=lambda number: names.get(str(number), str(number)), chance=findings["label_correlation"],
        copies=findings["near_copies"], prepared=_prepared(findings), uploaders=_uploaders(findings),
        splits=findings.get("splits"),
    )  # fmt: skip


def _groups(findings: Mapping[str, Any], shown: Pictures) -> list[dict[str, Any]]:
    """Groups of near-duplicates, those on both sides of a split first."""
    groups = []
    examples = findings["near_copies"]["examples"]
    for ids, apart in zip(examples, findings["near_copies"].get("apart", [[]] * len(examples)), strict=True):
        members = [one for id_ in dict.fromkeys(ids[:GROUP]) for one in shown.get(id_, [Shown(id_, "", "", "", "")])]
        leak = bool(apart) or len({one.split for one in members if one.split}) > 1
        classes = len({one.label for one in members if one.label}) > 1
        groups.append(
            {"images": members, "leak": leak, "apart": ", ".join(apart), "classes": classes, "more": len(ids) - GROUP}
        )
    return sorted(groups, key=lambda g: (not g["leak"], not g["classes"]))


def _drift(findings: Mapping[str, Any]) -> Picture | None:
    """What the distance in time changes of the accuracy on the same tests."""
    drift = findings.get("drift", {})
    by, same = drift.get("by_distance", {}), drift.get("in_domain")
    if len(by) < 2 or same is None:
        return None
    pairs = sorted((int(k), same + at["change"]) for k, at in by.items())
    series = {"accuracy": ([float(k) for k, _ in pairs], [v for _, v in pairs])}
    return line_chart(series, "buckets between training and test", marks={"same bucket": 0.0})


def _blind(findings: Mapping[str, Any]) -> Picture | None:
    """Accuracy of the classifier that only repeats labels, over the shift."""
    curve = findings["label_correlation"]["blind"]
    if not curve or len(curve["shifts"]) < 2:
        return None
    low = [b - h for b, h in zip(curve["best"], curve["half_width"], strict=True)]
    high = [b + h for b, h in zip(curve["best"], curve["half_width"], strict=True)]
    suggested = findings["label_correlation"]["suggested_shift"]
    return line_chart(
        {"repeats labels": ([float(s) for s in curve["shifts"]], curve["best"])},
        "lookahead S, samples", log=True, levels={"chance": curve["chance"]},
        marks={} if suggested is None else {f"suggested S = {suggested}": float(suggested)},
        bands={"repeats labels": (low, high)},
    )  # fmt: skip


def _prepared(findings: Mapping[str, Any]) -> dict[str, list[int]]:
    """What was done to the pictures → images in each bucket."""
    of_kind = findings.get("prepared", {})
    buckets = findings["balance"]["buckets"]
    done = {words: of_kind[kind] for kind, words in PREPARED.items() if kind in of_kind}
    return {words: [counts.get(str(bucket), 0) for bucket in buckets] for words, counts in done.items()}


def _uploaders(findings: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Of the split that divides most uploaders, with its name, or "any split" if none divides one; None where no
    uploader is known, as in own photos."""
    named = [{"split": name, **split} for name, split in findings.get("uploaders", {}).items() if split["uploaders"]]
    most = max(named, key=lambda split: split["on_both_sides"], default=None)
    return most if most is None or most["on_both_sides"] else most | {"split": "any split"}


def _of_splits(findings: Mapping[str, Any]) -> list[str]:
    """What is compared over the splits: their shares, overlap, and what they do not test."""
    splits, large = findings["splits"], findings["too_large"]
    shares = [split["share"] for split in splits.values()]
    missed, cells = max(len(split["missed"]) for split in splits.values()), findings["cells"]
    sentences = [
        f"splits: {min(shares):.1%} to {max(shares):.1%} of the images are for testing ({findings['asked']:.0%} "
        "asked); at "
        f"most {missed} of {cells} cells (bucket and class) are off in a split; {large['groups']} of "
        f"{findings['groups']:,} groups with {large['samples']:,} images always train, because they are too large to "
        "be tested"
    ]
    if findings["overlap"]:
        shared = [pair["shared"] for pair in findings["overlap"]]
        sentences.append(
            f"overlap: two splits have {fmean(shared):.0%} of their test images in common ({min(shared):.0%} to "
            f"{max(shared):.0%}); independent sampling of single images would have {findings['asked']:.0%}"
        )
    untested = {name: split["untested"]["class"] for name, split in splits.items() if split["untested"]["class"]}
    sentences += [f"{name} has no test image of {', '.join(map(str, classes))}" for name, classes in untested.items()]
    return sentences


def lines(findings: Mapping[str, Any]) -> list[str]:
    """One sentence for each finding."""
    copies = findings["near_copies"]
    across = ", ".join(f"{n} across {name}" for name, n in copies["groups_across"].items() if n)
    groups = f"{copies['groups']:,} group{'' if copies['groups'] == 1 else 's'}" + (f" ({across})" if across else "")
    cells = findings["balance"]
    sentences = [
        f"{findings['images']:,} images, {findings['classes']} class{'' if findings['classes'] == 1 else 'es'}, "
        f"{cells['fewest']} to {cells['most']} images per class and bucket"
        + (f" ({len(cells['empty'])} without images)" if cells["empty"] else ""),
        f"near-duplicates: {copies['images_in_groups']:,} images in {groups}",
    ]
    if rows := _prepared(findings):
        of = ", ".join(f"{sum(n):,} {what} ({min(n)} to {max(n)} a bucket)" for what, n in rows.items())
        sentences.append(f"prepared images, stored differently from how people see them: {of}")
    for day, photos in findings.get("reset_clocks", {}).items():
        sentences.append(f"dates: {reset_sentence(day, photos, 'uploaded')}")
    for places, photos in findings.get("contradicted_dates", {}).items():
        sentences.append(f"dates: {contradiction_sentence(places, photos)}")
    if undecided := findings.get("undecided"):
        sentences.append(
            f"dates: {undecided['photos']:,} photos may be in several buckets and are in none; they could be at most "
            f"{undecided['share']:.1%} of a bucket ({undecided['bucket']})"
        )
    if u := _uploaders(findings):
        sentences.append(
            f"uploaders: {u['on_both_sides']} of {u['uploaders']:,} in both parts of {u['split']} "
            f"({u['images_of_them']} images); the largest has {u['largest_share']:.1%} of the images; "
            f"{u['unknown']:,} images have no uploader"
        )
    if findings.get("splits", {}).get("splits"):
        sentences += _of_splits(findings["splits"])
    if power := findings.get("smallest_ageing"):
        sentences.append(f"ageing: {Power(**power).text()}")
    if "drift" in findings:
        by, in_domain = findings["drift"]["by_distance"], findings["drift"]["in_domain"]
        if in_domain is not None:
            on = f" on {findings['drift']['features']}" if "features" in findings["drift"] else ""
            on += ", with a random split by group," if findings["drift"]["sides"] == "drawn" else ""
            last = max(by, key=int)
            points = f"{100 * by[last]['change']:+.1f}".replace("-", "−")
            change = f"; trained {last} buckets earlier, {points} points on the same test images "
            change += f"({by[last]['tests']} test bucket{'' if by[last]['tests'] == 1 else 's'})"
            sentences.append(
                f"drift: nearest class means{on} have accuracy {in_domain:.1%} in-domain{change if last != '0' else ''}"
            )
        elif findings["drift"]["sides"] == "drawn":
            sentences.append("drift: not known, because all groups are too large for a split")
    sentences.append(f"label correlation: {findings['label_correlation']['shift_text']}")
    sentences.append(f"times: {findings['label_correlation']['ties_text']}")
    return sentences
