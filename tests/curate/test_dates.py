"""Dates of photos as cameras, phones and programs write them: reported cases 1, 2, 4, 5, 6 and 8."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from PIL import Image

from driftline.curate.core.times.dates import clock, seconds_of, takeout_names
from driftline.curate.metadata.clocks import contradicted, contradiction_sentence, reset_clocks
from driftline.curate.sources.folder import Folder

ORIGINAL, DIGITIZED, OFFSET, OFFSET_ORIGINAL, OFFSET_DIGITIZED = 0x9003, 0x9004, 0x9010, 0x9011, 0x9012
NOON = "2015:07:08 12:00:00"


def photo(path: Path, gps: dict[int, Any] | None = None, **tags: Any) -> Path:
    """A JPEG with these EXIF tags; original: of DateTimeOriginal, and so on."""
    exif = Image.Exif()
    numbers = {"original": ORIGINAL, "digitized": DIGITIZED, "offset": OFFSET, "of_original": OFFSET_ORIGINAL,
               "of_digitized": OFFSET_DIGITIZED}  # fmt: skip
    if "edited" in tags:
        exif[0x0132] = tags.pop("edited")
    exif.get_ifd(0x8769).update({numbers[name]: value for name, value in tags.items()})
    if gps:
        exif.get_ifd(0x8825).update(gps)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (16, 12), "teal").save(path, "JPEG", exif=exif)
    return path


def record(folder: Path) -> dict[str, Any]:
    """Of the one photo in a folder, with `extra` as a mapping."""
    (row,) = pa.Table.from_batches(Folder(path=folder).batches()).to_pylist()
    assert row["fault"] is None
    return {**row, "extra": json.loads(row["extra"] or "{}")}


def utc(folder: Path) -> str | None:
    seconds = record(folder)["uploaded"]
    return None if seconds is None else str(pa.scalar(seconds, pa.timestamp("s")))


def test_what_pillow_warns_of_names_the_photos(tmp_path: Path) -> None:
    for i in range(7):
        data = bytearray(photo(tmp_path / f"{i}.jpg", original="2015:01:14 18:31:30").read_bytes())
        count = data.index(b"Exif\0\0") + 14  # of tags
        data[count : count + 2] = data[count : count + 2] if i == 0 else b"\xff\xff"
        (tmp_path / f"{i}.jpg").write_bytes(data)
    with pytest.warns(UserWarning, match="Corrupt EXIF data") as caught:
        assert len(next(Folder(path=tmp_path).batches())) == 7
    (text,) = [str(one.message) for one in caught]
    assert text.startswith("1.jpg, 2.jpg, 3.jpg, 4.jpg, 5.jpg and 1 more: Corrupt EXIF data")


class TestCase1ADateThatCarriesItsZone:
    @pytest.mark.parametrize(
        ("text", "offset"),
        [
            ("2025:01:14 18:31:30+0000", 0),
            ("2025:01:14 18:31:30+01:00", 3600),
            ("2025:01:14 18:31:30Z", 0),
            ("2025:01:14 18:31:30 -09:30", -34_200),
            ("2025-01-14T18:31:30.25+0545", 20_700),
            ("2025-01-14T18:31:30.123456789Z", 0),
        ],
    )
    def test_it_is_read_with_its_offset(self, tmp_path: Path, text: str, offset: int) -> None:
        photo(tmp_path / "a.jpg", original=text)
        row = record(tmp_path)
        assert row["taken"] == seconds_of("2025-01-14T18:31:30")
        assert row["uploaded"] == row["taken"] - offset
        assert row["extra"] == {"date_from": "exif", "date_precision": "second", "date_offset": offset}

    def test_its_own_zone_comes_before_the_tag(self, tmp_path: Path) -> None:
        photo(tmp_path / "a.jpg", original=NOON + "+0200", of_original="+05:00")
        assert record(tmp_path)["extra"]["date_offset"] == 7200

    @pytest.mark.parametrize("offset", ["+99:00", "   :  ", "local"])
    def test_an_offset_that_no_zone_has_is_not_known(self, tmp_path: Path, offset: str) -> None:
        photo(tmp_path / "a.jpg", original=NOON, of_original=offset)
        assert "date_offset" not in record(tmp_path)["extra"]

    def test_each_tag_has_its_own_offset(self, tmp_path: Path) -> None:
        photo(tmp_path / "a.jpg", digitized=NOON, of_original="+05:00", of_digitized="-03:00", offset="+09:00")
        assert utc(tmp_path) == "2015-07-08 15:00:00"


class TestCase2DatesThatAreNearlyRight:
    @pytest.mark.parametrize(
        ("text", "date", "precision"),
        [
            ("2016:02:26 13:14:15.123", "2016-02-26T13:14:15", "second"),
            ("2016-02-26T13:14:15", "2016-02-26T13:14:15", "second"),
            ("2008: 5: 1  9: 3: 2", "2008-05-01T09:03:02", "second"),
            ("2005:12:25 24:00:00", "2005-12-26T00:00:00", "second"),
            ("2005:12:25", "2005-12-25", "day"),
            ("2016/02/26 13:14:15", "2016-02-26T13:14:15", "second"),
            ("2016:02:26 13:14", "2016-02-26T13:14:00", "minute"),
            ("2016:02:26 01:14:15 PM", "2016-02-26T13:14:15", "second"),
            ("20160226T131415", "2016-02-26T13:14:15", "second"),
            ("2016:02:26 13:14:15\0junk", "2016-02-26T13:14:15", "second"),
            ("2016:02:00 00:00:00", "2016-02-01", "month"),
            ("2016:12:31 23:59:60", "2017-01-01", "second"),
        ],
    )
    def test_it_is_dated(self, tmp_path: Path, text: str, date: str, precision: str) -> None:
        photo(tmp_path / "a.jpg", original=text)
        row = record(tmp_path)
        assert row["taken"] == seconds_of(date)
        assert row["extra"] == {"date_from": "exif", "date_precision": precision}

    def test_zeros_are_named_and_the_other_tag_counts(self, tmp_path: Path) -> None:
        photo(tmp_path / "a.jpg", original="0000:00:00 00:00:00", digitized=NOON)
        row = record(tmp_path)
        assert row["taken"] == seconds_of("2015-07-08T12:00:00")
        assert row["extra"]["date_refused"] == {"DateTimeOriginal": "0000:00:00 00:00:00"}

    @pytest.mark.parametrize(
        "text",
        ["0000:00:00 00:00:00", "0001:01:01 00:00:00", "9999:12:31 23:59:59", "2015:02:30 10:00:00", "2015:13:01",
         "2005:12:25 24:00:01", "2005:12:25 12:61:00", "    :  :     :  :  ", "soon", "12/25/2005"],
    )  # fmt: skip
    def test_what_is_no_date_is_named_and_never_read(self, tmp_path: Path, text: str) -> None:
        photo(tmp_path / "a.jpg", original=text)
        row = record(tmp_path)
        assert (row["taken"], row["extra"]) == (None, {"date_refused": {"DateTimeOriginal": text.strip()}})


class TestCase4AnOffsetByTheTimeOfGps:
    @pytest.mark.parametrize(
        ("local", "day", "time", "offset"),
        [
            ("2023:12:31 23:30:00", "2023:12:31", (15, 30, 0), 28_800),
            ("2023:12:31 21:15:40", "2023:12:31", (15, 30, 2), 20_700),
            ("2023:12:31 23:30:00", "2024:01:01", (9, 0, 0), -34_200),
        ],
    )
    def test_the_offset_is_the_difference_in_quarters_of_hours(self, tmp_path, local, day, time, offset):
        photo(tmp_path / "a.jpg", {7: tuple(map(float, time)), 29: day}, original=local)
        assert record(tmp_path)["extra"]["date_offset"] == offset

    @pytest.mark.parametrize(
        "gps", [{7: (15.0, 30.0, 0.0)}, {29: "2023:12:31"}, {7: (0.0, 0.0, 0.0), 29: "2020:01:01"}, {7: 1.0, 29: "x"}]
    )
    def test_without_a_fitting_time_of_gps_the_clock_counts_as_utc(self, tmp_path: Path, gps: dict[int, Any]) -> None:
        photo(tmp_path / "a.jpg", gps, original="2023:12:31 23:30:00")
        row = record(tmp_path)
        assert row["uploaded"] == row["taken"] == seconds_of("2023-12-31T23:30:00")
        assert "date_offset" not in row["extra"]


LONG = "original_1d4caa6f-16c6-4c3d-901b-9387de10e528_P"


class TestCase6TheSidecarsOfGoogleTakeout:
    @pytest.mark.parametrize(
        ("name", "sidecar"),
        [
            ("IMG_3397.JPG", "IMG_3397.JPG.supplemental-metadata.json"),
            ("IMG_3397.JPG", "IMG_3397.JPG.json"),
            ("IMG_3397.JPG", "IMG_3397.json"),
            ("IMG_3397.JPG", "IMG_3397.JPG.s.json"),
            ("IMG_3397.JPG", "IMG_3397.JPG.supplemental-me.json"),
            ("IMG_3397(2).JPG", "IMG_3397.JPG.supplemental-metadata(2).json"),
            ("IMG_3397(2).JPG", "IMG_3397.JPG(2).json"),
            ("IMG_3397(2).JPG", "IMG_3397(2).JPG.supplemental-metadata.json"),
            ("IMG_3397-edited.JPG", "IMG_3397.JPG.supplemental-metadata.json"),
            ("IMG_3397-bearbeitet(1).JPG", "IMG_3397.JPG.supplemental-metadata(1).json"),
            (f"{LONG}.jpg", f"{LONG[:46]}.json"),
            (f"{LONG}(1).jpg", f"{LONG[:46]}(1).json"),
            ("a_name_of_thirty_six_characters_.jpg", "a_name_of_thirty_six_characters_.jpg.supplemen.json"),
        ],
    )
    def test_the_photo_is_dated(self, tmp_path: Path, name: str, sidecar: str) -> None:
        photo(tmp_path / name)
        (tmp_path / sidecar).write_text('{"photoTakenTime": {"timestamp": "1258375918"}}')
        row = record(tmp_path)
        assert row["taken"] == 1_258_375_918
        assert row["extra"] == {"date_from": "sidecar", "date_precision": "second", "date_offset": 0}

    @pytest.mark.parametrize(
        ("name", "sidecar"),
        [
            ("IMG_3397.JPG", "IMG_3398.JPG.supplemental-metadata.json"),
            ("IMG_3397.JPG", "IMG_3397.JPG.supplemental-metadata(1).json"),
            ("IMG_3397(1).JPG", "IMG_3397.JPG.supplemental-metadata.json"),
            ("IMG_3397.JPG", "IMG_3397.JPG.metadata.json"),
        ],
    )
    def test_the_sidecar_of_another_photo_does_not_date_it(self, tmp_path: Path, name: str, sidecar: str) -> None:
        photo(tmp_path / name)
        (tmp_path / sidecar).write_text('{"photoTakenTime": {"timestamp": "1258375918"}}')
        assert record(tmp_path)["taken"] is None

    def test_an_edited_photo_has_first_what_has_its_own_name(self) -> None:
        names = takeout_names("a-edited.jpg")
        assert names.index("a-edited.jpg.json") < names.index("a.jpg.supplemental-metadata.json")

    @pytest.mark.parametrize("text", ["[]", '{"photoTakenTime": {}}', '{"photoTakenTime": 1e999}', "", "\0"])
    def test_a_sidecar_without_a_date_dates_nothing(self, tmp_path: Path, text: str) -> None:
        photo(tmp_path / "a.jpg")
        (tmp_path / "a.jpg.supplemental-metadata.json").write_text(text)
        assert record(tmp_path)["taken"] is None


class TestCase8XmpWithSeveralDates:
    @pytest.mark.parametrize(
        ("text", "date", "precision"),
        [
            ('<x xmp:CreateDate="2019-01-01T00:00:00" exif:DateTimeOriginal="1985-07-01T12:00:00"/>',
             "1985-07-01T12:00:00", "second"),
            ('<x exif:DateTimeOriginal="1985-07-01T12:00:00" xmp:CreateDate="2019-01-01T00:00:00"/>',
             "1985-07-01T12:00:00", "second"),
            ('<x xmp:CreateDate="2019-01-01" photoshop:DateCreated="1985"/>', "1985", "year"),
            ('<x photoshop:DateCreated="1985-07"/>', "1985-07-01", "month"),
            ("<xap:CreateDate>2019</xap:CreateDate><photoshop:DateCreated>1985-07-02</photoshop:DateCreated>",
             "1985-07-02", "day"),
            ('<x exif:DateTimeOriginal="0000-00-00" xmp:CreateDate = \'2019-01-01T10:00\'/>',
             "2019-01-01T10:00", "minute"),
            ('<!-- exif:DateTimeOriginal="1900-01-01" --><x exif:DateTimeDigitized="1985:07:01 12:00:00"/>',
             "1985-07-01T12:00:00", "second"),
            # with qualifiers, in each form that RDF has for them
            ('<exif:DateTimeOriginal rdf:parseType="Resource"><rdf:value>1985-07-01T12:00:00</rdf:value>'
             '<q:by>scan of 2019-01-01</q:by></exif:DateTimeOriginal><xmp:CreateDate>2019-01-01</xmp:CreateDate>',
             "1985-07-01T12:00:00", "second"),
            ('<exif:DateTimeOriginal>\n <rdf:Description>\n  <q:by>2019-01-01</q:by>\n  <rdf:value>1985-07</rdf:value>'
             "\n </rdf:Description>\n</exif:DateTimeOriginal>", "1985-07-01", "month"),
            ('<photoshop:DateCreated><rdf:Description rdf:value="1985-07-02" q:by="2019"/></photoshop:DateCreated>',
             "1985-07-02", "day"),
            ('<exif:DateTimeOriginal rdf:value="1985-07-01T12:00" q:by="2019"/><xmp:CreateDate>2019</xmp:CreateDate>',
             "1985-07-01T12:00", "minute"),
            ('<xmp:CreateDate xml:lang="x-default">1985-07-02</xmp:CreateDate>', "1985-07-02", "day"),
            ("<photoshop:DateCreated><rdf:Seq><rdf:li>1985</rdf:li></rdf:Seq></photoshop:DateCreated>", "1985", "year"),
            # and what stands in another property is not its value
            ('<exif:DateTimeOriginal /><x:y><rdf:value>1900</rdf:value></x:y><xmp:CreateDate>1985</xmp:CreateDate>',
             "1985", "year"),
            ("<photoshop:DateCreated></photoshop:DateCreated><x:y><rdf:value>1900</rdf:value></x:y>"
             "<xmp:CreateDate>1985</xmp:CreateDate>", "1985", "year"),
            ("<xmp:CreateDate>1985</xmp:CreateDate><exif:DateTimeOriginal><rdf:value>soon</rdf:value>"
             "</exif:DateTimeOriginal><exif:DateTimeOriginalZone>1900</exif:DateTimeOriginalZone>", "1985", "year"),
        ],
    )  # fmt: skip
    def test_the_capture_counts_in_any_order(self, tmp_path: Path, text: str, date: str, precision: str) -> None:
        photo(tmp_path / "a.jpg")
        (tmp_path / "a.xmp").write_text(text)
        row = record(tmp_path)
        assert row["taken"] == seconds_of(date)
        assert row["extra"] == {"date_from": "sidecar", "date_precision": precision}

    def test_a_sidecar_in_utf_16_is_read(self, tmp_path: Path) -> None:
        photo(tmp_path / "a.jpg")
        (tmp_path / "a.xmp").write_text('<x photoshop:DateCreated="1985"/>', encoding="utf-16")
        assert utc(tmp_path) == "1985-01-01 00:00:00"


def seconds(*texts: str) -> list[int]:
    return [seconds_of(text) for text in texts]


class TestCase5ClocksThatWereReset:
    @pytest.mark.parametrize("year", [1970, 1980, 2000, 2010])
    def test_a_default_of_clocks_is_named_among_many_photos_of_its_year(self, year: int) -> None:
        times = [seconds_of(str(year)) + i for i in range(1, 6)] + [seconds_of(f"{year}-07-01") + i for i in range(99)]
        assert reset_clocks(times) == {f"{year}-01-01": 5}

    def test_another_year_is_named_if_most_of_its_photos_are_there(self) -> None:
        start = seconds_of("2007-01-01T00:00:01")
        assert reset_clocks([start, start + 60, start + 3000]) == {"2007-01-01": 3}
        assert reset_clocks([start, start + 60, start + 3000, *seconds(*["2007-07-01"] * 4)]) == {}

    def test_dates_of_a_year_are_no_clock(self) -> None:
        times = seconds(*["2000"] * 9)
        assert reset_clocks(times) == {}
        assert reset_clocks(times, ['{"date_precision": "year"}'] * 9) == {}
        assert reset_clocks(times, ['{"date_precision": "second"}'] * 9) == {"2000-01-01": 9}

    def test_new_years_eve_is_no_spike(self) -> None:
        assert reset_clocks(seconds("1999-12-31T23:59:59", "2000-01-01T00:10:00", "2000-01-01T01:00:01")) == {}


@pytest.mark.parametrize(
    "text", ["", "1", "2016-02", "2016:02:26", "20160226", "x" * 10_000, "1" * 10_000, " " * 10_000]
)
def test_any_text_is_a_date_or_a_value_error(text: str) -> None:
    try:
        assert clock(text).precision in ("year", "month", "day")
    except ValueError:
        assert len(text) < 2 or len(text) > 1000


class TestADateIsAnIntervalWithItsWitnesses:
    @pytest.mark.parametrize(
        ("name", "text", "first", "last"),
        [
            ("1905/a.jpg", None, "1905-01-01T00:00:00", "1905-12-31T23:59:59"),
            ("1904-02_x/a.jpg", None, "1904-02-01T00:00:00", "1904-02-29T23:59:59"),
            ("2012-12-31.jpg", None, "2012-12-31T00:00:00", "2012-12-31T23:59:59"),
            ("a.jpg", "2012:12:31", "2012-12-31T00:00:00", "2012-12-31T23:59:59"),
            ("a.jpg", "2012:12:31 23:59", "2012-12-31T23:59:00", "2012-12-31T23:59:59"),
            ("a.jpg", "2012:12:31 23:59:58+01:00", "2012-12-31T22:59:58", None),
        ],
    )
    def test_its_first_and_its_last_second(self, tmp_path, name, text, first, last):
        photo(tmp_path / name, **({} if text is None else {"original": text}))
        row = record(tmp_path)
        assert (row["uploaded"], row["until"]) == (seconds_of(first), None if last is None else seconds_of(last))

    def test_a_scan_in_the_folder_of_another_year_contradicts_it(self, tmp_path: Path) -> None:
        photo(tmp_path / "1985" / "a.jpg", digitized="2019:01:01 12:00:00")
        extra = record(tmp_path)["extra"]
        assert (extra["date_from"], extra["date_contradicted"]) == ("exif", {"path": "1985"})

    @pytest.mark.parametrize(
        ("name", "sidecar", "others"),
        [
            ("2019-01-01_120000.jpg", None, {}),
            ("2018/a.jpg", None, {}),  # the new year of another zone
            ("2018-12-30.jpg", None, {"path": "2018-12-30"}),
            ("2019/a.jpg", "1985-07", {"sidecar": "1985-07"}),
            ("1985/a.jpg", "1985-07-01T12:00:00", {"sidecar": "1985-07-01T12:00:00", "path": "1985"}),
            ("2019/a.jpg", "2019-01-01T05:00:00", {}),
        ],
    )
    def test_a_day_or_more_apart(self, tmp_path: Path, name: str, sidecar: str | None, others: dict[str, str]) -> None:
        path = photo(tmp_path / name, original="2019:01:01 12:00:00")
        if sidecar is not None:
            path.with_suffix(".xmp").write_text(f'<x xmp:CreateDate="{sidecar}"/>')
        assert record(tmp_path)["extra"].get("date_contradicted", {}) == others

    def test_a_clock_that_gps_contradicts(self, tmp_path: Path) -> None:
        """As in the sample photos of a COOLPIX P6000: 22 hours behind."""
        gps = {7: (14.0, 27.0, 7.24), 29: "2008:10:23"}
        photo(tmp_path / "a.jpg", gps, original="2008:10:22 16:28:39")
        assert record(tmp_path)["extra"]["date_contradicted"] == {"gps": "2008-10-23T14:27:07"}

    @pytest.mark.parametrize(
        ("edited", "others"), [("2008:07:31 17:32:06", {"edit": "2008-07-31T17:32:06"}), ("2031:01:01 00:00:00", {})]
    )
    def test_a_photo_that_was_edited_before_it_was_taken(self, tmp_path, edited, others):
        photo(tmp_path / "a.jpg", original="2026:11:24 14:41:16", edited=edited)
        assert record(tmp_path)["extra"].get("date_contradicted", {}) == others

    def test_a_zone_explains_a_morning_that_was_yesterday_in_utc(self, tmp_path: Path) -> None:
        photo(tmp_path / "2019-01-01.jpg", original="2019:01:01 05:00:00+09:00")
        assert "date_contradicted" not in record(tmp_path)["extra"]

    def test_photos_with_contradicting_dates_are_counted_by_the_two_places(self) -> None:
        one = '{"date_from": "exif", "date_contradicted": {"path": "1985"}}'
        assert contradicted([None, "{}", one, one]) == {"exif, path": 2}
        assert contradiction_sentence("exif, path", 2).startswith(
            "2 photos have a date in exif, which counts, and one in path"
        )
