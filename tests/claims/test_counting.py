"""28: one counting of photos: a miss keeps its reason through an outage, and every command counts the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.living import Town, context, counted, linked_copy, requests

from curate.core.errors import Unfinished
from curate.fetch import native
from curate.fetch.outcome import Download
from pipelines.living import grow, heal
from pipelines.reporting.trace import trace
from pipelines.runner import run
from pipelines.stage_folder import folder_of

LOOSE = "\nfilter: {upload_after_capture: false}\n"


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Town:
    """Photos behind addresses, of which some are gone, broken or no image."""
    return Town(tmp_path_factory.mktemp("town"), 60)


@pytest.fixture(scope="module")
def fetched_once(town: Town, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run up to fetch, while the server answers; not to be changed."""
    root = town.run(tmp_path_factory.mktemp("fetched") / "run", 60, LOOSE)
    with counted(town):
        run(context(root), until="fetch")
    return root


@pytest.fixture
def fetched(fetched_once: Path, tmp_path: Path) -> Path:
    return linked_copy(fetched_once, tmp_path / "run")


def misses(root: Path) -> dict[str, str]:
    """Id → reason of the photos without an image."""
    rows = pq.read_table(folder_of(root, "fetch") / "index.parquet", columns=["id", "fault"]).to_pylist()
    return {row["id"]: row["fault"] for row in rows if row["fault"] is not None}


class TestOutages:
    """The server is off: nothing is new, and nothing that was known is lost."""

    def test_misses_of_other_limits_keep_what_the_server_said(self, fetched: Path) -> None:
        before = misses(fetched)
        assert len(set(before.values())) > 1
        for edge in (2, 3):  # two outages, one after another
            run(context(fetched, f"fetch.min_edge={edge}"), until="fetch")
            assert misses(fetched) == before

    @pytest.mark.parametrize("store", [True, False])
    def test_misses_that_are_asked_again_keep_their_reason_and_their_history(
        self, fetched: Path, town: Town, store: bool
    ) -> None:
        before = misses(fetched)
        gone, reason = next(iter(before.items()))
        changes = () if store else ("store.use=false",)
        found = heal(context(fetched, *changes), sorted(set(before.values())))
        assert misses(fetched) == before
        assert (found["healed"], found["asked"]) == (0, 0)
        (event,) = [e for e in trace(fetched, gone)["events"] if e["stage"] == "fetch"]
        assert [attempt["got"] for attempt in event["attempts"]] == [reason], "an outage is no answer"
        with counted(town) as counts:  # the server is back
            assert heal(context(fetched, *changes), [reason])["healed"] == 0
        assert requests(counts) >= Counter(before.values())[reason]

    def test_a_run_that_grows_keeps_what_it_knows_and_waits_for_what_is_new(self, town: Town, tmp_path: Path) -> None:
        root = town.run(tmp_path / "run", 30, LOOSE)
        with counted(town):
            grow(context(root), until="fetch")
        before = misses(root)
        town.write(root, 60)
        with pytest.raises(Unfinished, match="an outage, not a result"):
            grow(context(root), until="fetch")
        with counted(town):
            grow(context(root), until="fetch")
        after = misses(root)
        assert before.items() <= after.items()
        assert "connection_failed" not in after.values()

    def test_an_image_that_a_lost_network_hid_is_still_in_the_store(self, fetched: Path, town: Town) -> None:
        """One host of many is off while all is asked again on purpose: few enough to be accepted as misses."""
        before = misses(fetched)
        ids = pq.read_table(folder_of(fetched, "fetch") / "index.parquet")["id"].to_pylist()
        hidden = next(id_ for id_ in ids if id_ not in before)
        with counted(town), pytest.MonkeyPatch.context() as patch:
            lose(patch, hidden)
            run(context(fetched), start="fetch", until="fetch")
        assert misses(fetched) == before | {hidden: "connection_failed"}
        assert heal(context(fetched), ["connection_failed"])["healed"] == 1, "without a server"
        assert misses(fetched) == before


def lose(patch: pytest.MonkeyPatch, id_: str) -> None:
    """No connection for one photo."""
    ask = native._ask

    async def asking(session: Any, url: str, *rest: Any) -> Any:
        if id_ in url:
            return Download(None, "connection_failed", "refused")
        return await ask(session, url, *rest)

    patch.setattr(native, "_ask", asking)
