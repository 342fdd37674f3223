"""What was done to a photo's bytes, who answered about it by which rule, and which files there are: as is said."""

import csv
import io
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageOps
from support.clear_layouts import PROVENANCE
from support.helpers import photo_config, saved
from support.living import context, labels_of, reply
from support.stand_ins import StandIn, serve

from driftline.curate.core.atomic_io import read_json, sha256_bytes, write_json, write_text
from driftline.curate.core.errors import IntegrityError
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import rng_for
from driftline.curate.export import EXPORTS
from driftline.curate.fetch.run import Again, fetch
from driftline.curate.fetch.settings import FetchSettings
from driftline.curate.images.changes import alters
from driftline.curate.images.checks import ImageLimits, check_image
from driftline.curate.images.shards import read_tar, write_tar
from driftline.curate.images.strip_exif import strip_metadata
from driftline.curate.release import Release
from driftline.curate.release.changes import compare_releases
from driftline.curate.release.choice import _unalterable
from driftline.curate.release.croissant import croissant
from driftline.curate.release.data_card import card
from driftline.curate.release.identity import FILE, bucket_identities, of_steps, unlabelled_of
from driftline.curate.release.settings import ReleaseSettings
from driftline.curate.sources.flickr import Flickr
from driftline.curate.sources.folder import Folder
from driftline.curate.store.database import Place
from driftline.curate.validation.answers.verdicts import rule_text, verdict
from driftline.curate.validation.settings import ValidationSettings
from driftline.eval.reporting.overview import compared
from driftline.eval.timeline import shared
from driftline.pipelines.demo.draw import photo
from driftline.pipelines.run.runner import run
from driftline.pipelines.stages.base import parts_of
from driftline.pipelines.stages.state import folder_of
from driftline.stream_builder.builders.release import from_release

GPS = Image.Exif()
GPS[0x010E] = "at home"
TURNED = Image.Exif()
TURNED[0x0112] = 6
SETS = ("release.per_class=5", "release.splits=2", "release.unlabelled=images", "release.ids=path")
AVIF = "re-encoded from AVIF as JPEG"


def raw_of(image: Image.Image) -> bytes:
    """A RAW file like TIFF, whose picture is a sensor's, with a preview."""
    exif = Image.Exif()
    exif.endian = "<"
    exif[262] = 32803
    return exif.tobytes()[6:] + saved(image, "JPEG") + b"sensor"


def twice(image: Image.Image) -> dict[str, Any]:
    return {"save_all": True, "append_images": [image.rotate(90)]}


def transparent(image: Image.Image) -> bytes:
    image = image.convert("RGBA")
    image.putalpha(77)
    return saved(image, "AVIF")


KINDS: dict[str, tuple[Callable[[Image.Image], bytes], str]] = {  # suffix → bytes, what is to be recorded
    "1.jpg": (lambda image: strip_metadata(saved(image, "JPEG"))[0], "none"),
    "2.jpg": (lambda image: saved(image, "JPEG", exif=GPS), "metadata removed"),
    "3.avif": (lambda image: saved(image, "AVIF"), AVIF),
    "4.heic": (lambda image: saved(image, "HEIF"), "re-encoded from HEIC as JPEG"),
    "5.dng": (raw_of, "the JPEG preview inside a RAW file"),
    "6.tif": (lambda image: saved(image, "TIFF", exif=TURNED), "metadata removed; turned upright; stored as PNG"),
    "7.jpg": (lambda image: saved(image, "MPO", **twice(image)), "metadata removed; first image only"),
    "8.avif": (transparent, f"{AVIF}; transparency over white"),
}
WORDS = {suffix: words for suffix, (_, words) in KINDS.items()}


def publish(folder: Path, *changes: str) -> Release:
    run(context(folder, *SETS, *changes))
    release = Release.open(folder)
    release.verify()
    return release


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Buses and cars of two years, a photo in each format; five of eight are labelled."""
    out = tmp_path_factory.mktemp("bytes") / "run"
    for year in (2010, 2011):
        for thing in ("car", "bus"):
            (out / "photos" / thing).mkdir(parents=True, exist_ok=True)
            for suffix, (bytes_of, _) in KINDS.items():
                picture = photo([thing], 0.2, rng_for(year, thing, suffix))
                (out / "photos" / thing / f"{year}-05-0{suffix}").write_bytes(bytes_of(picture))
    write_text(out / "driftline.yaml", photo_config("  per_class: 20\n  overlap: allow"))
    publish(out)
    return out


@pytest.fixture
def release(whole: Path) -> Release:
    return Release.open(whole)


def sources(run_folder: Path) -> dict[str, Path]:
    """id → the file that was fetched."""
    table = pq.read_table(parts_of(folder_of(run_folder, "filter")), columns=["id", "path"])
    return {row["id"]: Path(row["path"]) for row in table.to_pylist()}


def published(release: Release) -> dict[str, bytes]:
    """id → bytes, of labelled and unlabelled images."""
    tars = [*release.path.glob("shards/*.tar"), *release.path.glob("unlabelled/*.tar")]
    members = [member for tar in tars for member in read_tar(tar)]
    return {name.partition(".")[0]: data for name, data in members if not name.endswith((".json", ".cls"))}


def attributed(folder: Path) -> dict[str, dict[str, str]]:
    with (folder / "ATTRIBUTION.csv").open(encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def shown(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


def looks_the_same(a: bytes, b: bytes) -> bool:
    try:
        return np.array_equal(shown(a), shown(b))
    except OSError:  # RAW
        return False


class TestRecord:
    """One record of what was done to a photo's bytes, in every place that speaks of it."""

    def test_each_image_has_the_words_of_its_format(self, whole: Path, release: Release) -> None:
        files, said = sources(whole), attributed(release.path)
        assert said.keys() == files.keys()
        wrong = {f.name: said[i]["changes"] for i, f in files.items() if WORDS[f.name[9:]] not in said[i]["changes"]}
        assert not wrong

    def test_the_words_follow_from_the_bytes_themselves(self, whole: Path, release: Release) -> None:
        files, said = sources(whole), attributed(release.path)
        for id_, data in published(release).items():
            before, words = files[id_].read_bytes(), said[id_]["changes"]
            assert (words == "none") == (before == data), words
            opaque = "transparency" not in words
            assert alters(words) == (not looks_the_same(before, data)) or not opaque, words
            assert said[id_]["sha256"] == sha256_bytes(data)

    def test_source_sha256_is_of_the_bytes_as_fetched(self, whole: Path, release: Release) -> None:
        files = sources(whole)
        rows = [*release.table.to_pylist(), *pq.read_table(release.path / "unlabelled.parquet").to_pylist()]
        assert len(rows) == len(files)
        data = published(release)
        for row in rows:
            assert row["source_sha256"] == sha256_bytes(files[row["id"]].read_bytes())
            assert row["sha256"] == sha256_bytes(data[row["id"]])

    def test_card_croissant_release_and_metadata_say_the_same(self, release: Release) -> None:
        counts = Counter(row["changes"] for row in attributed(release.path).values())
        assert release.facts["file_changes"] == dict(sorted(counts.items()))
        of_labelled = dict(zip(release.table["id"].to_pylist(), release.table["changes"].to_pylist(), strict=True))
        assert of_labelled.items() <= {i: row["changes"] for i, row in attributed(release.path).items()}.items()
        text = (release.path / "README.md").read_text()
        for words, n in counts.items():
            assert f"| {words} | {n} |" in text
        altered = sum(n for words, n in counts.items() if alters(words))
        assert altered == 2 * 2 * 4
        assert f"{altered} images were encoded again with loss" in text
        assert "unchanged" not in text
        steps = read_json(release.path / "croissant.json")["rai:dataPreprocessingProtocol"]
        assert all(f"{words}: {n} images" in steps[1] for words, n in counts.items())

    def test_without_stripping_fetch_is_still_said(self, whole: Path, tmp_path: Path) -> None:
        folder = Path(shutil.copytree(whole, tmp_path / "run"))
        other = publish(folder, "release.strip=false", "release.unlabelled=none")
        words = {row["changes"] for row in attributed(other.path).values()}
        assert not any("metadata removed" in text for text in words)
        assert "none" in words
        assert any(text.startswith("re-encoded from") for text in words)
        assert "Metadata were not removed" in (other.path / "README.md").read_text()

    @pytest.mark.parametrize("strip", [True, False])
    def test_no_derivative_licences_are_not_published_with_other_pixels(self, whole: Path, strip: bool) -> None:
        members = folder_of(whole, "bucket") / "members.parquet"
        settings = ReleaseSettings(strip=strip)
        stages: Any = SimpleNamespace(fetched=folder_of(whole, "fetch"), members=members, settings=settings)
        altered = {i for i, file in sources(whole).items() if file.suffix in (".avif", ".heic", ".dng")}
        rows = [{"id": i} for i in sources(whole)]
        assert _unalterable(rows, dict.fromkeys(sources(whole), ("CC BY-ND 4.0",)), stages) == altered
        assert _unalterable(rows, dict.fromkeys(sources(whole), ("CC BY 4.0",)), stages) == set()

    def test_the_size_that_a_source_was_asked_for_is_recorded(self, whole, tmp_path, monkeypatch):
        folder = Path(shutil.copytree(whole, tmp_path / "run"))
        shutil.rmtree(folder_of(folder, "publish"))
        monkeypatch.setattr(Folder, "requested", lambda self, url: "requested at a width of 9 pixels")
        said = attributed(publish(folder).path)
        assert {row["changes"].partition("; ")[0] for row in said.values()} == {"requested at a width of 9 pixels"}

    def test_sources_say_the_size_of_the_addresses_that_they_make(self) -> None:
        span = {"start": "2004-01-01", "end": "2005-01-01"}
        flickr = Flickr.model_validate({"source": "flickr", "size": "original", **span})
        assert flickr.requested("https://live.staticflickr.com/1/2_3_o.jpg") == ""
        assert flickr.requested("https://live.staticflickr.com/1/2_3_b.jpg") == "requested at no more than 1024 pixels"

    def test_a_release_without_a_record_is_no_previous_one(self, whole: Path, tmp_path: Path) -> None:
        folder = Path(shutil.copytree(whole, tmp_path / "run"))
        before = Path(shutil.copytree(Release.open(folder).path, tmp_path / "before"))
        table = pq.read_table(before / "metadata.parquet").drop_columns(["changes"])
        pq.write_table(table, before / "metadata.parquet")
        with pytest.raises(IntegrityError, match="lacks the column changes"):
            publish(folder, f"release.previous={before}", "release.version=1.1.0")

    def test_a_damaged_file_that_is_compressed_again_looks_the_same(self) -> None:
        picture = photo(["bus"], 0.2, rng_for(0, "damaged"))
        whole = saved(picture.quantize(16), "PNG")
        data = whole[: whole.rindex(b"IEND") - 4]  # without its end
        with Image.open(io.BytesIO(data)) as image:
            image.load()
        bare, words = strip_metadata(data)
        assert words == "metadata removed; stored as PNG"
        assert looks_the_same(bare, whole)
        turned = saved(picture, "JPEG", exif=TURNED, quality=95)
        bare, words = strip_metadata(turned[:-2] + bytes(100))
        assert words.endswith("turned upright; compressed again")
        assert shown(bare).shape == shown(turned).shape
        assert np.abs(shown(bare).astype(int) - shown(turned)).mean() < 4


@pytest.fixture
def address() -> Iterator[str]:
    """A server of one AVIF photo."""
    data = saved(photo(["bus"], 0.2, rng_for(0, "served")), "AVIF")
    server = StandIn()
    server.faults = [["GET", "", data, 1000]]
    with serve(server):
        yield f"{server.address}/a.avif"


class TestStoredBefore:
    """A photo from the store or from an earlier output keeps its record: it is a JPEG there, but was none."""

    RULES = FetchSettings(private_addresses="allow")

    def part(self, folder: Path, url: str) -> list[Path]:
        row = {"id": "a", "row": 0, "url": url, "path": None, "uploaded": 1, "until": None}
        folder.mkdir(parents=True, exist_ok=True)
        schema = pa.schema([("id", pa.string()), ("row", pa.int64()), ("url", pa.string()), ("path", pa.string()),
                            ("uploaded", pa.int64()), ("until", pa.int64())])  # fmt: skip
        pq.write_table(pa.Table.from_pylist([row], schema), folder / "0.parquet")
        return [folder / "0.parquet"]

    def fetched(self, out: Path) -> dict[str, Any]:
        (row,) = pq.read_table(out / "index.parquet").to_pylist()
        return {name: row[name] for name in ("sha256", "source_sha256", "changes", "fault")}

    def test_from_the_store_and_from_an_earlier_output(self, address: str, tmp_path: Path) -> None:
        parts, place, quiet = self.part(tmp_path, address), Place(tmp_path / "store"), RunLog(quiet=True)
        outs = [tmp_path / name for name in ("first", "again", "earlier")]
        others = self.RULES.model_copy(update={"min_edge": 2})  # judged by other rules, so that it is decoded again
        again = Again(frozenset({"http_404"}), outs[0])
        fetch(parts, outs[0], self.RULES, quiet, store=place)
        fetch(parts, outs[1], others, quiet, store=place)
        pq.write_table(pq.read_table(outs[0] / "00000.parquet"), outs[0] / "00000.parquet")
        fetch(self.part(tmp_path / "more", address), outs[2], self.RULES, quiet, again=again)
        first, *rest = map(self.fetched, outs)
        assert first["changes"] == AVIF
        assert first["source_sha256"] != first["sha256"]
        assert rest == [first, first]

    @pytest.mark.parametrize("kind", ["AVIF", "HEIF"])
    def test_several_pictures_and_turned_ones_are_said(self, kind: str) -> None:
        picture = photo(["bus"], 0.2, rng_for(0, "several"))
        assert "first image only" in check_image(saved(picture, kind, **twice(picture)), ImageLimits()).changes
        turned = check_image(saved(picture, "HEIF", exif=TURNED), ImageLimits()).changes
        assert "turned upright" in turned


def facts_of(release: Release | None = None, **changed: Any) -> dict[str, Any]:
    if release is not None:
        return {**release.facts, **changed}
    provenance = PROVENANCE | {"source": "folder", "validation": {"method": "catalogue"}}
    bucket = {"index": 0, "name": "2010", "start": None, "end": None}
    plain: dict[str, Any] = {
        "name": "x", "version": "1.0.0", "images": 3, "classes": ["bus"], "buckets": [bucket], "per_class": {"0": {}},
        "splits": [], "test_images": {}, "features": [], "scores": {}, "licences": {}, "near_copies": None,
        "changes": None, "withdrawn": 0, "unlabelled": None, "provenance": provenance,
    }  # fmt: skip
    return {**plain, **changed}


class TestLabels:
    """Card and Croissant say the rule that ran and the answers that were given; nothing where nobody was asked."""

    def test_where_nobody_was_asked_no_answer_is_claimed(self, release: Release) -> None:
        text, document = (release.path / "README.md").read_text(), read_json(release.path / "croissant.json")
        assert "answers" not in text.partition("## Preprocessing")[0].partition("## Labelling")[2]
        assert "no annotator was asked" in text
        assert "annotations_creators:\n- found\n" in text
        assert document["rai:annotationsPerItem"] == "0"
        assert document["rai:dataAnnotationProtocol"] == rule_text({"method": "catalogue"})
        assert release.facts["answers"] == {}

    @pytest.mark.parametrize("aggregate", ["votes", "dawid-skene"])
    def test_the_rule_that_ran_and_the_answers_of_people(self, whole: Path, tmp_path: Path, aggregate: str) -> None:
        folder = Path(shutil.copytree(whole, tmp_path / "run"))
        sets = ("validation.method=crowd", "validation.workers=2", f"validation.aggregate={aggregate}")
        here = context(folder, *SETS, *sets)
        run(here)
        reply(here, labels_of(folder), ("ann", "bob", "eve"), only=9)
        other = publish(folder, *sets)
        answers = pq.read_table(folder_of(folder, "tally") / "answers.parquet")
        of_each = Counter(answers["id"].to_pylist())
        counts = Counter(of_each[i] for i in other.table["id"].to_pylist())
        assert set(counts) == {2, 3}
        assert other.facts["answers"] == {"people": {"2": counts[2], "3": counts[3]}}
        text, document = (other.path / "README.md").read_text(), read_json(other.path / "croissant.json")
        said = f"2 to 3 answers of people (2: {counts[2]} images, 3: {counts[3]} images)"
        assert said in text
        assert said in document["rai:dataAnnotationProtocol"]
        assert document["rai:annotationsPerItem"] == "2 to 3"
        rule = document["rai:dataAnnotationProtocol"]
        assert ("at least 2 answers" in rule) == (aggregate == "votes")
        assert ("probability of at least 0.9" in rule) == (aggregate != "votes")
        assert rule.partition(" Published")[0] in text
        assert "annotations_creators:\n- crowdsourced\nsource" in text

    def test_answers_of_models_are_theirs(self) -> None:
        facts = facts_of(answers={"people": {"0": 2, "1": 1}, "judges": {"2": 3}})
        facts["provenance"] |= {
            "validation": ValidationSettings().model_dump() | {"skip_people": "agreed"},
            "agreement": {"judged": {"judges": ["clip", "llm"], "unseen_labels": 2, "kept_labels": 3}},
        }
        text, document = card(facts), croissant(facts, {}, [])
        assert "0 to 1 answers of people (0: 2 images, 1: 1 images) and 2 of models." in text
        assert "decided by the models alone" in text
        assert document["rai:annotationsPerItem"] == "0 to 1"
        assert document["rai:machineAnnotationTools"] == ["m", "clip", "llm"]
        only = croissant(facts_of(answers={"judges": {"2": 3}}), {}, [])
        assert only["rai:annotationsPerItem"] == "0"

    @pytest.mark.parametrize("rule", ["exact", "per-option"])
    @pytest.mark.parametrize("agree", [1, 2, 3])
    def test_the_sentence_is_what_the_verdict_does(self, rule: str, agree: int) -> None:
        """The text is read as a rule, and applied to all answers of three people."""
        settings = ValidationSettings.model_validate({"rule": rule, "agree": agree})
        text = rule_text(settings.model_dump())
        least = int(re.search(r"at least (\d+) answers, more than half of all", text)[1])  # type: ignore[index]
        sensitive = int(re.search(r"that (\d+) or more answers call sensitive", text)[1])  # type: ignore[index]
        sets = [frozenset(s) for s in ({"bus"}, {"bus", "car"}, {"car"})]
        for picks in np.ndindex(3, 3, 3, 4):
            said = [(sets[k], i < picks[3]) for i, k in enumerate(picks[:3])]
            ticks = sum(s == {"bus"} if "alone" in text.split(".")[0] else "bus" in s for s, _ in said)
            keep = ticks >= least and 2 * ticks > 3 and picks[3] < sensitive
            assert (verdict(said, "bus", settings) == "kept") == keep, (said, text)


NAMED = re.compile(r"[\w./-]*\w\.(?:csv|md|parquet|json|jsonl|npy|tar|txt)\b|\bSHA256SUMS\b")


def cited(folder: Path) -> set[str]:
    """Files that the texts of a folder name."""
    texts = [(folder / name).read_text() for name in ("README.md", "CHANGES.md") if (folder / name).is_file()]
    found = {name for text in texts for name in NAMED.findall(text)}
    if (folder / "croissant.json").is_file():
        nodes = read_json(folder / "croissant.json")["distribution"]
        found |= {node["contentUrl"] for node in nodes if "contentUrl" in node}
    return found


class TestFiles:
    """A release and its exports name only files that they hold."""

    @pytest.fixture(scope="class")
    def grown(self, whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Release:
        """The next release, with withdrawn images, changes, unlabelled images and votes."""
        place = tmp_path_factory.mktemp("grown")
        folder = Path(shutil.copytree(whole, place / "run"))
        before = Release.open(shutil.copytree(Release.open(folder).path, place / "before"))
        gone = [before.table["id"][0].as_py(), pq.read_table(before.path / "unlabelled.parquet")["id"][0].as_py()]
        write_text(folder / "gone.csv", "id\n" + "\n".join(gone))
        sets = (f"release.previous={before.path}", "release.version=1.1.0")
        return publish(folder, *sets, "release.withdrawn=gone.csv")

    @pytest.mark.parametrize("name", ["", "huggingface", "webdataset", "imagefolder", "urls"])
    def test_every_file_that_is_named_is_there(self, grown: Release, tmp_path: Path, name: str) -> None:
        folder = grown.path
        if name:
            folder = tmp_path / name
            EXPORTS.get(name)(grown, folder)
        assert not [cited for cited in cited(folder) if not list(folder.glob(cited))]
        if name in ("", "huggingface", "webdataset"):
            assert "WITHDRAWN.csv" in cited(folder)
            assert "CHANGES.md" in cited(folder)
            assert attributed(folder).keys() >= set(grown.table["id"].to_pylist())

    def test_the_card_of_an_export_is_that_of_the_release(self, grown: Release, tmp_path: Path) -> None:
        assert card(grown.facts) == (grown.path / "README.md").read_text()
        EXPORTS.get("huggingface")(grown, tmp_path / "out")
        tables = [(p / "README.md").read_text().partition("## Collection")[2] for p in (grown.path, tmp_path / "out")]
        assert tables[0].partition("## Labelling")[0] == tables[1].partition("## Labelling")[0]

    @pytest.mark.parametrize("name", ["huggingface", "urls"])
    def test_an_export_claims_no_features_and_no_unlabelled_images_that_it_lacks(self, grown, tmp_path, name):
        EXPORTS.get(name)(grown, tmp_path / name)
        facts = read_json(tmp_path / name / "release.json")
        assert (facts["features"], facts["unlabelled"]) == ([], None)


def learned(cells: tuple[int, int]) -> dict[str, Any]:
    rows = [[0.5] * cells[1] for _ in range(cells[0])]
    return {"matrix": rows, "seeds": [0], "settings": {}, "scores": {}}


class TestPools:
    """Two releases are compared by the unlabelled images, too: by their names and bytes."""

    def other(self, release: Release, place: Path, change: Callable[[bytes], bytes]) -> Release:
        """The same release, of which one unlabelled image of the last bucket has other bytes."""
        folder = Path(shutil.copytree(release.path, place))
        tar = sorted(folder.glob("unlabelled/*.tar"))[-1]
        members = list(read_tar(tar))
        at = next(i for i, (name, _) in enumerate(members) if not name.endswith(".json"))
        name, data = members[at]
        members[at] = (name, change(data))
        write_tar(tar, members)
        table = pq.read_table(folder / "unlabelled.parquet")
        own = [sha256_bytes(change(data)) if i == name.partition(".")[0] else digest
               for i, digest in zip(table["id"].to_pylist(), table["sha256"].to_pylist(), strict=True)]  # fmt: skip
        column = table.schema.get_field_index("sha256")
        pq.write_table(table.set_column(column, "sha256", pa.array(own)), folder / "unlabelled.parquet")
        facts, vectors = release.facts, {n: release.features(n) for n in release.facts["features"]}
        write_json(folder / FILE, bucket_identities(facts, release.table, vectors, unlabelled_of(folder, held=True)))
        return Release.open(folder)

    def test_other_bytes_of_one_unlabelled_image_are_seen(self, release: Release, tmp_path: Path) -> None:
        same = compare_releases(release, Release.open(shutil.copytree(release.path, tmp_path / "same")))
        assert [entry["because"] for entry in same["buckets"]] == [[], []]
        other = self.other(release, tmp_path / "other", lambda data: data + b"\0")
        found = compare_releases(release, other)
        reasons = [entry["because"] for entry in found["buckets"]]
        assert reasons == [[], ["other unlabelled images, which some learners use"]]

    def test_the_order_of_rows_and_tars_is_no_difference(self, release: Release, tmp_path: Path) -> None:
        folder = Path(shutil.copytree(release.path, tmp_path / "other"))
        table = pq.read_table(folder / "unlabelled.parquet")
        pq.write_table(table.take(list(range(len(table)))[::-1]), folder / "unlabelled.parquet")
        assert Release.open(folder).identity() == release.identity()

    def test_rows_of_self_training_are_not_compared_where_pools_differ(self, release: Release, tmp_path: Path) -> None:
        other = self.other(release, tmp_path / "other", lambda data: data + b"\0")
        streams = [from_release(r, "images:32") for r in (release, other)]
        a, b = ({"name": "x", "version": str(v), "buckets": s.facts["buckets"]} for v, s in enumerate(streams))
        common = shared(a, b)
        assert (common.learned, common.pools) == (2, 1)
        names = ("finetune", "self-training", "acme:Own")
        document: Any = {"protocol": "clear-iid", "results": [learned((2, 2)) | {"learner": n} for n in names]}
        both = compared(document | {"release": a}, document | {"release": b})
        cells = {row["learner"]: row["cells"] for row in both}
        assert cells == {"finetune": 4, "self-training": 2, "acme:Own": 2}

    def test_features_of_labelled_images_are_not_affected(self, release: Release, tmp_path: Path) -> None:
        other = self.other(release, tmp_path / "other", lambda data: data + b"\0")
        assert release.steps("clip") == other.steps("clip")
        assert release.steps("images:32") != other.steps("images:32")

    def test_images_of_before_the_first_bucket_belong_to_the_first_step(self) -> None:
        entry = {"start": "s", "end": "e", "splits": {}, "features": {}}
        manifest = {"classes": ["a"], "buckets": [{"index": i, "name": str(i), **entry} for i in (1, 2)]}
        one, two = ({**manifest, "unlabelled": {"0": digest, "2": "c"}} for digest in "ab")
        steps = [of_steps(m, "pixels:8") for m in (one, two)]
        assert steps[0][0]["unlabelled"] != steps[1][0]["unlabelled"]
        assert steps[0][1] == steps[1][1]
