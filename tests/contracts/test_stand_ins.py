"""Flickr and the Hub cannot be asked in a test: each stand-in answers as its published document says, rule by rule."""

import json
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import urllib3
from support.flickr_server import FlickrServer, photo
from support.hub_server import hub
from support.stand_ins import check_shape, example


def test_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Hub's own client makes, fills, lists, tags and reads a dataset."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
    from huggingface_hub import errors as said

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    with hub() as server, tempfile.TemporaryDirectory() as folder:
        place, kind = "me/cars", {"repo_type": "dataset"}
        api, stranger = HfApi(server.address, token=server.token), HfApi(server.address, token="hf_other")
        server.page = 2
        with pytest.raises(said.RepositoryNotFoundError):
            api.repo_info(place, **kind)
        for _ in range(2):
            api.create_repo(place, private=True, exist_ok=True, **kind)
        with pytest.raises(said.HfHubHTTPError, match="401"):
            stranger.repo_info(place, **kind)
        with pytest.raises(said.HfHubHTTPError, match="409"):
            api.create_repo(place, **kind)
        first = api.repo_info(place, **kind)
        assert (first.private, len(server.commits[place])) == (True, 1)
        added = [CommitOperationAdd(n, d) for n, d in (("a.md", b"a"), ("b.parquet", b"b"), ("c.md", b"c"))]
        api.preupload_lfs_files(place, added, **kind)
        assert {operation.path_in_repo: operation._upload_mode for operation in added}["b.parquet"] == "lfs"
        commit = {"commit_message": "1", "parent_commit": first.sha, **kind}
        second = api.create_commit(place, added, **commit).oid
        api.create_tag(place, tag="v1", **kind)
        with pytest.raises(said.HfHubHTTPError, match="412"):
            api.create_commit(place, [CommitOperationAdd("d.md", b"d")], **commit)
        with pytest.raises(said.HfHubHTTPError, match="409"):
            api.create_tag(place, tag="v1", **kind)
        again = [CommitOperationAdd("e.parquet", b"b"), CommitOperationDelete("c.md")]
        api.create_commit(place, again, commit_message="2", **kind)
        assert server.puts == 1, "what is stored is not sent again"
        names = api.list_repo_files(place, **kind)
        assert sorted(names) == [".gitattributes", "a.md", "b.parquet", "e.parquet"]
        assert "c.md" in api.list_repo_files(place, revision="v1", **kind)
        with pytest.raises(said.RevisionNotFoundError):
            api.repo_info(place, revision="v9", **kind)
        path = api.hf_hub_download(place, "b.parquet", revision=second, local_dir=folder, **kind)
        assert Path(path).read_bytes() == b"b"
        with pytest.raises(said.RemoteEntryNotFoundError):
            api.hf_hub_download(place, "z.md", local_dir=folder, **kind)


def test_flickr() -> None:
    """flickr.com/services/api, read on 2026-11-27."""
    photos = [photo(i, 100 + i, licence=(1, 4, 7)[i % 3]) for i in range(600)]
    photos += [photo(900 + i, 50_000 + i // 10, licence=2) for i in range(4600)]
    photos[3]["media"] = "video"
    with closing(FlickrServer(photos)) as server:
        ask_flickr(server)


def ask_flickr(server: FlickrServer) -> None:
    """Each rule of the document, by a question."""

    def call(method: str = "flickr.photos.search", **fields: Any) -> Any:
        same = {"method": method, "api_key": "secret-key", "format": "json", "nojsoncallback": 1}
        asked = {name: str(value) for name, value in (same | fields).items() if value is not None}
        body = urllib3.request("GET", server.address, fields=asked).data
        with suppress(ValueError):
            return json.loads(body)
        return body.decode()

    def ids(**fields: Any) -> list[int]:
        return [int(p["id"]) - 5_000_000_000 for p in call(**fields)["photos"]["photo"]]

    early = {"max_upload_date": 699, "min_upload_date": 100, "unknown": "argument"}
    first = call(**early)
    check_shape(example("flickr", "search"), first)
    check_shape(example("flickr", "licences"), call("flickr.photos.licenses.getInfo"))
    check_shape(example("flickr", "refusal"), call(api_key="another"))
    assert (call(api_key="another")["code"], call(api_key=None)["code"], call("flickr.x")["code"]) == (100, 100, 112)
    assert call()["code"] == 3
    assert len(first["photos"]["photo"]) == first["photos"]["perpage"] == 100
    assert (first["photos"]["total"], first["photos"]["pages"], first["photos"]["page"]) == (600, 6, 1)
    assert len(ids(**early, per_page=10_000)) == 500
    assert ids(**early, per_page=3) == [599, 598, 597], "the latest first"
    assert ids(**early, per_page=3, page=2, sort="date-posted-asc") == [3, 4, 5]
    assert ids(min_upload_date=102, max_upload_date=104, sort="date-posted-asc") == [2, 3, 4]
    assert ids(min_upload_date=102, max_upload_date=104, sort="date-posted-asc", media="photos") == [2, 4]
    assert ids(min_upload_date=100, max_upload_date=105, license="1,7", sort="date-posted-asc") == [0, 2, 3, 5]
    assert call(license="2")["code"] == 3
    assert call(min_upload_date=50_000, per_page=500)["photos"]["pages"] == 8, "4,000 of 4,600"
    assert set(first["photos"]["photo"][0]) == set(example("flickr", "search")["photos"]["photo"][0])
    more = call(**early, extras="license,url_m,no_extra")["photos"]["photo"][0]
    assert set(more) - set(first["photos"]["photo"][0]) == {"license", "url_m"}
    assert str(call(format=None)).startswith("<?xml")
    assert str(call(nojsoncallback=None)).startswith("jsonFlickrApi(")
