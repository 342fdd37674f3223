"""The sections of a run's configuration: every setting with its type, its default and what it means."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from curate.fetch.rules import MIRRORS, mirror_url
from curate.retrieval.candidates import BACKGROUND
from curate.sources.flickr import ENDPOINT


def _seconds(value: Any) -> Any:
    """`2004-01-01`, an ISO time or a number of seconds → seconds UTC."""
    if isinstance(value, datetime):
        return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
    if hasattr(value, "isoformat"):
        value = value.isoformat()
    if isinstance(value, str):
        moment = datetime.fromisoformat(value)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    return value


def _duration(value: Any) -> Any:
    """`14h`, `30m`, `10s` → seconds."""
    if isinstance(value, str) and value[-1:] in "smh" and value[:-1].isdigit():
        return int(value[:-1]) * {"s": 1, "m": 60, "h": 3600}[value[-1]]
    return value


Time = Annotated[int, BeforeValidator(_seconds)]
Duration = Annotated[int, BeforeValidator(_duration), Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A section of the file: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class S3(Section):
    """How s3:// paths are read."""

    profile: str | None = None
    """AWS profile (null: without keys, for public buckets)"""
    requester_pays: bool = False
    """the profile's account pays for the transfer"""
    endpoint: str | None = None
    """another server that speaks S3 (null: Amazon's)"""
    region: str = "us-west-2"
    """region of the bucket"""
    md5: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{32}$")] | None = None
    """MD5 of the file, checked after it came (null: the server's ETag, where it is one)"""


class Collection(Section):
    """Where the photos are listed."""

    source: Literal["yfcc", "folder", "delimited", "parquet", "huggingface", "flickr"]
    """kind of metadata: driftline list sources"""
    path: str = ""
    """file or folder, relative to this file; s3://bucket/key is fetched first; parquet: also an http(s) address"""
    s3: S3 = S3()
    """how s3:// paths are read"""
    side: dict[Literal["autotags", "exif", "hash", "lines", "places"], str] = {}
    """yfcc: side files to join by id into the column extra, e.g. {autotags: yfcc100m_autotags.bz2}"""
    columns: dict[str, str] = {}
    """delimited, parquet, huggingface: table column → column of the file, e.g. {path: filename, uploaded: year}"""
    delimiter: str = ","
    """delimited: column separator"""
    root: str | None = None
    """delimited: folder that image paths start from (default: the table's folder)"""
    damaged: Literal["stop", "keep"] = "stop"
    """yfcc: where a file is cut off, stop with an error, or keep what came before and go on"""
    label: Literal["none", "parent"] = "none"
    """folder: "parent" takes each photo's folder name as its known label"""
    dates: list[Literal["exif", "sidecar", "path", "file"]] = ["exif", "sidecar", "path"]
    """folder: where a date is looked for, in order (file: the file's own time, which copying changes)"""
    start: Time | None = None
    """flickr: photos uploaded from here on (a date)"""
    end: Time | None = None
    """flickr: and before here (a date)"""
    licences: list[int] = [1, 2, 3, 4, 5, 6, 9, 10]
    """flickr: ids of licences"""
    search: dict[str, str] = {}
    """flickr: further arguments of the query, e.g. {text: bicycle}"""
    size: Literal["medium", "large", "original"] = "large"
    """flickr: largest image address that is taken"""
    rate: Positive = 3600
    """flickr: queries an hour"""
    endpoint: str = ENDPOINT
    """flickr: address of the API; the key is read from the environment variable FLICKR_API_KEY"""

    @model_validator(mode="after")
    def _has_what_its_source_needs(self) -> Collection:
        if self.source == "flickr":
            if self.start is None or self.end is None:
                raise ValueError("collection.start or collection.end is missing: the source flickr needs both")
        elif not self.path:
            raise ValueError(f"collection.path is missing: the source {self.source} needs one")
        return self


class Filter(Section):
    """Which rows are dropped before anything is fetched."""

    upload_after_capture: bool = True
    """CLEAR's rule: drop photos uploaded not strictly later than captured (capture date needed)"""
    date_tolerance: Duration = 0
    """by how much capture may seem later, e.g. 14h: cameras show local time, uploads are UTC"""
    earliest: Time | None = None
    """upload times before this are not believed (a date, or null)"""
    latest: Time | None = None
    """upload times from this on are not believed (a date, or null)"""
    licences: list[Annotated[str, Field(min_length=1)]] = []
    """allowed licences: how their name or address begins, e.g. [Attribution License] (empty: all)"""
    box: tuple[float, float, float, float] | None = None
    """only photos taken in [west, south, east, north], degrees (null: everywhere)"""
    cameras: list[Annotated[str, Field(min_length=1)]] = []
    """only cameras whose name holds one of these, e.g. [Canon, NIKON] (empty: all)"""
    tags_any: list[str] = []
    """only photos with one of these tags (empty: all)"""
    tags_none: list[str] = []
    """no photos with one of these tags"""
    per_user: Positive | None = None
    """at most this many photos of one user, the first in metadata order (null: all)"""
    withdrawn: str | None = None
    """CSV file with a column id: photos whose owners took them back (data_cards/withdrawn.csv)"""
    where: str | None = None
    """a filter of your own: one DuckDB expression over the table's columns (null: none)"""


class Fetch(Section):
    """How images are fetched and checked."""

    way: Literal["native", "img2dataset"] = "native"
    """native (one event loop a worker) or img2dataset: same checks, same result, see docs/guides/acquisition.md"""
    shard_size: Positive = 1000
    """photos a shard; fixed for a run"""
    stop_after: Positive | None = None
    """keep the smallest prefix, in metadata order, that holds this many images (null: all)"""
    timeout: Annotated[float, Field(gt=0)] = 10.0
    """seconds for each read from a server"""
    deadline: Annotated[float, Field(gt=0)] = 60.0
    """seconds for one image in all"""
    retries: Annotated[int, Field(ge=0, le=20)] = 2
    """further rounds for misses that may pass (time-outs, 429, 5xx)"""
    backoff: Annotated[float, Field(ge=0)] = 1.0
    """seconds before the first further round, doubling"""
    threads: Annotated[int, Field(ge=1, le=256)] = 16
    """connections of each process"""
    per_host: Annotated[int, Field(ge=1, le=256)] = 16
    """native: of them to one host"""
    rate: Annotated[float, Field(gt=0)] | None = None
    """native: requests a second to one host, over all workers (null: no limit)"""
    private_addresses: Literal["auto", "allow", "refuse"] = "auto"
    """addresses of private networks: auto allows them where most of the collection's URLs are such addresses"""
    mirror: str | None = None
    """where to look when an address is dead: multimedia-commons (the S3 copy of YFCC100M) or a URL with {hash}"""
    placeholders: list[Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]] = []
    """SHA-256 of pictures that stand for "no picture" """
    min_bytes: Positive = 11
    """smaller files are no pictures (CLEAR's code: more than 10)"""
    min_edge: Positive = 1
    """shorter edge, pixels (CLEAR's README: 120)"""
    max_aspect: Annotated[float, Field(ge=1)] | None = None
    """longer edge / shorter edge (CLEAR's README: 2; null: any)"""
    max_pixels: Positive = 100_000_000
    """guard against decompression bombs"""
    max_edge: Positive = 30_000
    """longer edge, pixels: guard against decompression bombs"""
    max_bytes: Positive = 50_000_000
    """guard against endless files"""

    @field_validator("mirror")
    @classmethod
    def _is_a_mirror(cls, value: str | None) -> str | None:
        if value is not None and value not in MIRRORS:
            try:
                made = mirror_url(value, "")
            except (KeyError, IndexError, ValueError) as error:
                raise ValueError(f"expected a URL with {{hash}}, {{first}}, {{second}}: {error!r}") from None
            if "{hash}" not in value or not made.startswith(("http://", "https://")):
                raise ValueError(f"expected {', '.join(MIRRORS)} or an http(s) URL with {{hash}}")
        return value


class Buckets(Section):
    """How the collection is cut in time."""

    kind: Literal["equal", "calendar", "cuts", "spans", "clear"] = "equal"
    """equal counts | calendar | given cuts | given spans | clear (the spans that CLEAR published)"""
    count: Annotated[int, Field(ge=2)] = 11
    """equal: number of buckets"""
    unit: Literal["day", "month", "year", "decade"] = "year"
    """calendar: day, month, year or decade"""
    cuts: list[Time] = []
    """cuts: times that divide the collection, e.g. [2008-01-01, 2011-01-01]"""
    spans: list[tuple[Time, Time]] = []
    """spans: [start, end) pairs; photos in gaps are reported, not moved"""
    ties: Literal["split", "together"] = "split"
    '''equal: "split" photos of one second by id (CLEAR), or keep them "together"'''
    unlabelled: list[int] = [0]
    """buckets without labels, kept for pre-training (CLEAR: the first)"""


class Embed(Section):
    """Which model turns images and prompts into vectors."""

    encoder: Literal["clip", "table"] = "clip"
    """clip (open_clip), or table: a folder of text vectors (model), with image vectors from elsewhere (vectors)"""
    model: str
    """open_clip name, hf-hub:…, a folder with open_clip_config.json, or driftline-photo-world"""
    weights: str | None = None
    """hub tag or checkpoint file (null when model is a folder)"""
    vectors: str | None = Field(None, alias="from")
    """folder of image vectors in clip-retrieval's layout, made by the same model (null: compute them)"""
    device: str = "auto"
    """auto, cpu or cuda"""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """auto: float16 on CUDA, float32 on CPU"""
    compile: bool = False
    """torch.compile: a minute at the start, some percent faster afterwards"""
    decoders: Annotated[int, Field(ge=0, le=256)] | None = None
    """processes that decode for a device (null: none on CPU, where each worker decodes for itself; else --workers)"""
    batch: Positive = 64
    """images a batch"""


Text = Annotated[str, Field(min_length=1, max_length=2000)]


class ConceptEntry(Section):
    """One concept: prompts, the option workers read, the source's own label."""

    name: Annotated[str, Field(pattern=r"^[^|$<>\n]{1,80}$")]
    """class name"""
    prompts: Annotated[list[Text], Field(min_length=1)]
    """texts whose mean vector is the query"""
    templates: list[Annotated[str, Field(pattern=r"\{\}")]] | None = None
    """each prompt is put in place of {} in each of these (null: retrieve.templates)"""
    subcategories: list[Text] = []
    """texts that are queries of their own; an image's score is that of its best query"""
    negatives: list[Text] = []
    """texts that the queries are moved away from"""
    option: str | None = None
    """what workers read beside the checkbox"""
    examples: list[Text] = []
    """what workers read below it, e.g. [bus stop, double-decker]"""
    label: str | None = None
    """the source's own name of the class"""


class Retrieve(Section):
    """Concepts and CLEAR's retrieval rules."""

    concepts: Annotated[list[ConceptEntry], Field(min_length=1)]
    """what to look for: a list, or the name of a YAML file that holds one"""
    templates: Annotated[list[Annotated[str, Field(pattern=r"\{\}")]], Field(min_length=1)] = ["{}"]
    """what every prompt is put into, e.g. ["a photo of a {}", "{}"]; the vectors' mean is the query"""
    negative_weight: Annotated[float, Field(ge=0, le=1)] = 0.5
    """how far queries are moved away from a concept's negatives"""
    per_class: Positive = 600
    """candidates asked per concept and bucket (CLEAR: 600)"""
    depth: Positive = 16_000
    """length of each list before overlap is removed (CLEAR: 16000)"""
    overlap: Literal["highest", "discard", "allow"] = "highest"
    """image in two lists: highest cosine (CLEAR's code), discard (its paper), or allow"""
    background: bool = True
    """add the class of everything else, from the lowest cosines"""
    negative_ratio: Annotated[float, Field(gt=0, le=1)] = 0.1
    """background images per concept, as a share of per_class (CLEAR: 0.1)"""
    short: Literal["fail", "fewer"] = "fail"
    """fewer images than asked: fail with a table, or take fewer"""
    per_user: Positive | None = None
    """at most this many candidates of one uploader in a concept and bucket (null: any)"""
    near_copies: Annotated[float, Field(gt=0, le=1)] | None = None
    """candidates with this cosine to a better one of their concept are near copies and passed over (null: kept)"""
    margin: Annotated[float, Field(ge=0, le=2)] | None = None
    """by how much a candidate's score must stand above those of all other concepts (null: no matter)"""
    strata: Annotated[int, Field(ge=2)] | None = None
    """equal parts of the bucket's span that give equal shares of the candidates (null: by score alone)"""
    search: Literal["exact", "ivf", "hnsw"] = "exact"
    """exact, or a faiss index with its recall measured against exact"""
    memory: Annotated[int, Field(ge=16)] = 256
    """MiB for candidates while searching; more concepts than fit are searched in several passes"""

    @model_validator(mode="after")
    def _makes_sense(self) -> Retrieve:
        names = [c.name for c in self.concepts]
        if len(set(names)) != len(names):
            raise ValueError(f"two concepts have the same name: {sorted({n for n in names if names.count(n) > 1})}")
        asked: dict[str, str] = {}
        for c in self.concepts:
            mine = repr([c.prompts, c.templates, c.subcategories, c.negatives])
            if (other := asked.setdefault(mine, c.name)) != c.name:
                raise ValueError(f"the concepts {other!r} and {c.name!r} have the same prompts")
        if BACKGROUND in names:
            raise ValueError(f"no concept may be named {BACKGROUND!r}: it is the class of everything else")
        if self.background and int(self.per_class * self.negative_ratio) == 0:
            raise ValueError(
                f"background gets int(per_class × negative_ratio) images a concept, and int({self.per_class} × "
                f"{self.negative_ratio}) is 0: raise either, or set background: false"
            )
        return self


class Validation(Section):
    """Who checks the candidates: a crowd, or the labels of the source's catalogue."""

    method: Literal["crowd", "catalogue"] = "crowd"
    """crowd (batches and answers) or catalogue (labels that the source already has)"""
    answers: str = "answers"
    """folder for results CSV files, beside this file"""
    image_base_url: str = "https://example.org/images"
    """where workers find the images of stages/07_ask/images"""
    workers: Positive = 3
    """answers an image (CLEAR: 3)"""
    agree: Positive = 2
    """answers that must agree (CLEAR: 2)"""
    rule: Literal["exact", "per-option"] = "exact"
    """exact: the whole set of ticks must be the expected class; per-option: its box must be ticked"""
    aggregate: Literal["votes", "one-coin", "dawid-skene"] = "votes"
    """votes: CLEAR's rule; one-coin, dawid-skene: weigh workers by what all answers say of them"""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.9
    """one-coin, dawid-skene: probability of the expected answer that keeps an image"""
    sensitive_drop: Positive = 2
    """this many "sensitive" answers drop an image (CLEAR's literal text: 3)"""
    sensitive_hold: Positive = 1
    """this many hold it for review"""
    reward_usd: Annotated[float, Field(gt=0)] = 0.02
    """reward an answer, for the estimate (CLEAR: 0.02)"""
    seconds: Annotated[float, Field(gt=0)] = 9.0
    """how long an answer is expected to take, for the wage an hour (marketplaces ask for $8 and more)"""
    per_worker: Positive | None = None
    """answers of one worker that count (null: any number)"""
    gold: str | None = None
    """CSV of photos whose answer is known (columns id, labels): hidden among the questions, to know the workers"""
    gold_share: Annotated[float, Field(ge=0, le=0.5)] = 0.05
    """gold questions as a share of the batch, equal parts of every answer; those of nothing come from the background"""
    sensitive_prompts: list[Text] = []
    """texts whose nearest images annotators see blurred, e.g. [a nude person, blood] (empty: none)"""
    blur_share: Annotated[float, Field(ge=0, le=1)] = 0.02
    """share of the batch that is blurred"""
    rounds: Positive = 5
    """release.short: reopen: batches at most"""
    accept_incomplete: bool = False
    """go on although answers are missing; images short of answers are dropped as pending"""


def _day(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value


Day = Annotated[str, BeforeValidator(_day), Field(pattern=r"^\d{4}-\d\d-\d\d$")]


class FeatureEntry(Section):
    """Features for evaluation: a backbone whose vectors of the published images are shipped."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,40}$")]
    """name of the features, as in --features NAME"""
    model: str
    """timm network, e.g. resnet50"""
    weights: str
    """checkpoint file (torchvision, MoCo v2, BYOL, timm), folder of driftline pretrain, or timm tag"""


class ReleaseSection(Section):
    """What is published."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,80}$")] = "unnamed"
    """name of the data set"""
    version: Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+$")] = "1.0.0"
    """semantic version"""
    per_class: Positive = 300
    """images per class and bucket (CLEAR: 300)"""
    background: Positive | None = None
    """the same for the background class (null: as many)"""
    short: Literal["fail", "fewer", "reopen"] = "fail"
    """fewer accepted than asked: fail with a table, publish fewer, or ask about the next candidates until it is full"""
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.3
    """share of test images"""
    splits: Annotated[int, Field(ge=1, le=100)] = 5
    """number of seeded splits (CLEAR: 5)"""
    url: str | None = None
    """where the release will be found; Croissant's addresses begin with it (null: relative)"""
    published: Day | None = None
    """day of publication, for Croissant (null: not told)"""
    features: list[FeatureEntry] = []
    """further features of the published images, e.g. {name: imagenet, model: resnet50, weights: resnet50.pth}"""
    near_copies: Literal["report", "drop"] = "report"
    """near copies among accepted images: count them in the card, or publish only the earliest of each group"""
    copy_bits: Annotated[int, Field(ge=0, le=16)] = 4
    """images whose perceptual hashes differ in at most so many of 64 bits are near copies"""
    copy_cosine: Annotated[float, Field(gt=0, le=1)] | None = None
    """and images whose vectors have at least this cosine (null: hashes only)"""
    strip: bool = True
    """take EXIF with GPS, XMP, IPTC and comments out of the published images; pixels stay as they are"""
    unlabelled: Literal["none", "index", "images"] = "index"
    """what was collected and not labelled: not kept, listed in unlabelled.parquet, or its images, too"""
    licences: list[Annotated[str, Field(min_length=1)]] = []
    """licences that may be published: how their name or address begins (empty: all)"""
    withdrawn: str | None = None
    """CSV file with a column id: photos whose owners took them back; named in WITHDRAWN.csv for who has a copy"""
    previous: str | None = None
    """the release before this one: CHANGES.md lists what differs, and the version must follow from it"""
    judgement: str | None = None
    """Markdown file with the card's judgement parts"""
    card: str | None = None
    """another template for the card (null: ours)"""
    strict: bool = False
    """publish nothing while a judgement part is not written"""
    notice: str = ""
    """a sentence that users must read first"""


class Config(Section):
    """One run."""

    seed: int = 0
    """decides everything random"""

    collection: Collection
    filter: Filter = Filter()
    fetch: Fetch = Fetch()
    buckets: Buckets = Buckets()
    embed: Embed
    retrieve: Retrieve
    validation: Validation = Validation()
    release: ReleaseSection = ReleaseSection()
