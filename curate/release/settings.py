"""Settings of publish."""

from typing import Annotated, Literal

from pydantic import Field

from driftline.curate.core.settings import Day, Form, Positive, Section
from driftline.curate.release.licences import permits_copies
from driftline.curate.retrieval.settings import BACKGROUND

COPY_BITS = 4  # bits of a hash in which near-duplicates may differ

Prefix = Annotated[str, Field(min_length=1)]
NAME = Form("at most 80 letters, digits and . _ -")


class FeatureSettings(Section):
    """Features for evaluation: vectors of the published images by a further network."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,40}$"), Form("at most 40 of a-z, 0-9, _ and -")]
    """name of the features, as in --features NAME"""
    model: str
    """timm network, e.g. resnet50"""
    weights: str
    """checkpoint file (torchvision, MoCo v2, BYOL, timm), folder of driftline models train, timm tag, or
    driftline-photos-of-2004"""


class ReleaseSettings(Section):
    """What is published."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,80}$"), NAME] = "unnamed"
    """name of the dataset"""
    version: Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+$"), Form("a version such as 1.0.0")] = "1.0.0"
    """semantic version"""
    author: str | None = None
    """who publishes it, and how to reach them: A Lab <lab@example.org>, for card, Croissant, deposit (null: not
    stated)"""
    per_class: Positive = 300
    """images for each class and bucket (CLEAR: 300)"""
    background: Positive | None = None
    """the same for the background class (null: as many)"""
    short: Literal["fail", "fewer", "reopen"] = "fail"
    """fewer accepted than per_class: fail with a table, publish fewer (also none), or ask about further candidates
    (reopen)"""
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.3
    """share of test images"""
    splits: Annotated[int, Field(ge=1, le=100)] = 5
    """number of seeded splits (CLEAR: 5)"""
    url: str | None = None
    """where the release will be; Croissant's URLs begin with it (null: relative)"""
    date: Day | None = None
    """day of publication, for Croissant (null: omitted)"""
    features: tuple[FeatureSettings, ...] = ()
    """further features of the published images, e.g. {name: imagenet, model: resnet50, weights: resnet50.pth}"""
    near_copies: Literal["report", "drop"] = "report"
    """near-duplicates among accepted images: count them in the card, or publish only the earliest of each group"""
    copy_bits: Annotated[int, Field(ge=0, le=16)] = COPY_BITS
    """images are near-duplicates if their perceptual hashes differ in at most this many of 64 bits; beyond 4, only
    where neither is as near to more than two others"""
    copy_cosine: Annotated[float, Field(gt=0, le=1)] | None = None
    """images are near-duplicates, too, if their vectors have at least this cosine (null: hashes only)"""
    strip: bool = True
    """remove EXIF with GPS, XMP, IPTC and comments from the published images; pixels do not change"""
    unlabelled: Literal["none", "index", "images"] = "index"
    """images without labels: omit them, list them in unlabelled.parquet, or include them"""
    licences: tuple[Prefix, ...] = ()
    """licences that may be published: how their name or URL begins (empty: those that permit copies; other photos
    are listed in urls.parquet)"""
    own: bool = False
    """all photos are your own, or you may publish each of them: no licence is needed"""
    columns: tuple[Literal["user", "url"], ...] = ()
    """columns that attribution does not need: user (the uploader's id), url with its query; tokens are always cut"""
    ids: Literal["opaque", "path"] = "opaque"
    """ids that are made from paths or URLs: replaced (opaque), since folders are named after people, or kept
    (path); ids of the source stay"""
    withdrawn: str | None = None
    """CSV file with a column id: photos that their owners withdrew; WITHDRAWN.csv lets owners of copies find them"""
    previous: str | None = None
    """the release before this one: its images keep their labels and splits, CHANGES.md counts the differences, and the
    version must agree with them"""
    judgement: str | None = None
    """Markdown file with the parts of the card that need a person's judgement"""
    notice: str = ""
    """a sentence that users must read first"""

    def permits(self, *licence: str | None) -> bool:
        """Whether a photo with this name or address of a licence may be published."""
        if self.licences:
            return any(text.startswith(self.licences) for text in licence if text)
        return self.own or permits_copies(*licence)

    def wanted(self, class_: str) -> int:
        """Images of a class in each bucket."""
        return self.background or self.per_class if class_ == BACKGROUND else self.per_class
