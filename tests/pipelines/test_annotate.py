"""Local validation: the marketplace's page, answers that survive kills, and a run that goes on with them."""

import resource
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient
from support.console import Running, handed, start
from support.helpers import album, photo_config
from support.living import context as context_of
from support.living import linked_copy
from support.pages import chromium_browser, served, violations_everywhere
from support.worlds import across_seeds

from driftline.curate.core.atomic_io import read_json
from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.metadata.withdrawals import NAME, Withdrawal, withdraw
from driftline.curate.validation.answers.answer_store import AnswerStore
from driftline.curate.validation.answers.answers import hashed, read_answers, read_lines
from driftline.pipelines.annotation.batches import grid_of
from driftline.pipelines.annotation.server import Pages, answer_store_of, application, person_name
from driftline.pipelines.run.runner import run
from driftline.pipelines.stages.state import folder_of

BATCH = {"batch": "b1", "items": {f"i{n}": str(n) for n in range(30)}, "concepts": ["bus", "car"], "workers": 3}


def results(folder: Path) -> Path:
    """The results file of the local page."""
    (path,) = (folder / "answers").glob("annotate-*.csv")
    return path


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that waits for answers about cars, buses and background; not to be changed."""
    root = tmp_path_factory.mktemp("annotate") / "run"
    album(root / "photos")
    text = photo_config("  per_class: 6", validation="{method: crowd, workers: 3, agree: 2}")
    (root / "driftline.yaml").write_text(text.replace("background_share: 0", "background_share: 0.5"))
    run(context_of(root))
    return root


@pytest.fixture
def folder(waiting: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return linked_copy(waiting, tmp_path / "run")


@pytest.fixture
def client(folder: Path) -> Iterator[httpx.Client]:
    """A browser that opened the printed address."""
    with served(lambda port: application(context_of(folder), port)) as page:
        origin = {"origin": "/".join(page.address.split("/")[:3])}
        with httpx.Client(base_url=page.address, headers=origin, follow_redirects=True) as browser:
            yield browser


def test_an_answer_that_waits_for_the_disk_stops_nobody_else(client, folder, monkeypatch):
    reached, goes_on, answer = threading.Event(), threading.Event(), AnswerStore.answer
    waited: list[bool] = []

    def slow(self: AnswerStore, *given: Any) -> None:
        reached.set()
        waited.append(goes_on.wait(4))
        answer(self, *given)

    monkeypatch.setattr(AnswerStore, "answer", slow)
    with closing(answer_store_of(context_of(folder))) as store:
        form = {"annotator": "ann", "item": store.following("ann")[0], "labels": "none"}
        writer = threading.Thread(target=client.post, args=("answer",), kwargs={"data": form})
        writer.start()
        assert reached.wait(4)
        assert client.get(f"image/{form['item']}").status_code == 200
        goes_on.set()
        writer.join(10)
        assert waited == [True], "the picture came first"
        assert store.answered("ann") == {form["item"]}


class TestDesk:
    @pytest.fixture
    def store(self, tmp_path: Path) -> AnswerStore:
        return AnswerStore(tmp_path / "a.sqlite", BATCH, 0)

    def test_each_annotator_has_an_own_order_of_everything(self, store: AnswerStore) -> None:
        ann, bob = store.queue("ann"), store.queue("bob")
        assert sorted(ann) == sorted(bob) == sorted(BATCH["items"])
        assert ann == store.queue("ann")

    def test_orders_of_annotators_are_independent_draws(self, tmp_path: Path) -> None:
        many = {**BATCH, "items": {f"i{n:02d}": f"p{n}" for n in range(60)}}
        store = AnswerStore(tmp_path / "many.sqlite", many, 0)
        across_seeds(lambda k: store.queue(f"worker {k}")[:20], list(many["items"]))

    def test_an_answer_moves_the_queue_and_undo_moves_it_back(self, store: AnswerStore) -> None:
        first, second = store.following("ann")
        store.answer("ann", first, ["bus"], False, 3)
        assert store.following("ann", 1) == [second]
        assert store.undo("ann") == ""
        assert store.following("ann", 1) == [first]
        assert store.undo("ann") is None

    def test_undo_takes_back_a_whole_screen_and_only_of_its_annotator(self, store: AnswerStore) -> None:
        items = store.queue("ann")
        store.answer("ann", items[0], ["bus"], False, 3)
        store.answer_together("ann", {items[1]: ["bus"], items[2]: ["none"]}, page="bus")
        store.answer("bob", items[1], ["none"], False, 3)
        assert store.undo("ann") == "bus"
        assert store.undone("ann", "bus") == {items[1]: ["bus"], items[2]: ["none"]}
        assert (store.answered("ann"), store.answered("bob")) == ({items[0]}, {items[1]})

    def test_an_annotator_has_one_voice_and_one_tick_of_each_box(self, store: AnswerStore, tmp_path: Path) -> None:
        for _ in range(3):
            store.answer("ann", "i1", ["bus", "bus"], False, 1)
        store.answer("bob", "i1", ["bus", "car"], False, 1)
        told = tmp_path / "told.csv"
        assert store.export(told) == 2
        answers = read_answers(read_lines([told])["b1"], BATCH, "key").to_pylist()
        assert sorted(answer["labels"] for answer in answers) == [["bus"], ["bus", "car"]]
        twice = told.read_text() + told.read_text().split("\n", 1)[1]
        told.write_text(twice)
        again = read_answers(read_lines([told])["b1"], BATCH, "key")
        assert sorted(again["fault"].to_pylist(), key=str) == [None, None, "duplicate", "duplicate"]

    def test_a_screen_with_one_wrong_answer_stores_none(self, store: AnswerStore) -> None:
        items = store.queue("ann")
        with pytest.raises(BadInput):
            store.answer_together("ann", {items[0]: ["bus"], items[1]: ["tram"]})
        assert store.answered("ann") == set()

    @pytest.mark.parametrize("labels", [[], ["tram"], ["none", "bus"]], ids=["nothing", "unknown", "contradiction"])
    def test_what_is_no_answer_is_refused(self, store: AnswerStore, labels: list[str]) -> None:
        with pytest.raises(BadInput, match="Expected one or more of the options"):
            store.answer("ann", "i1", labels, False, 0)
        with pytest.raises(BadInput, match="is not in the batch"):
            store.answer("ann", "../i1", ["bus"], False, 0)

    def test_two_annotators_on_one_image_are_two_answers(self, store: AnswerStore) -> None:
        for who, label in (("ann", "bus"), ("bob", "bus"), ("eve", "car")):
            store.answer(who, "i1", [label], False, 1)
        store.answer("eve", "i1", ["bus"], False, 1)  # a second thought takes the first's place
        store.answer("eve", "i2", ["none"], True, 1)
        assert (store.progress("eve")["done"], store.total()) == (2, 4)

    def test_a_skipped_image_comes_last(self, store: AnswerStore) -> None:
        first, second = store.following("ann")
        store.skip("ann", first)
        assert store.following("ann", 1) == [second]
        assert store.following("ann", 30)[-1] == first
        assert store.following("bob", 30) == store.queue("bob")
        with pytest.raises(BadInput, match="is not in the batch"):
            store.skip("ann", "x")

    def test_conflicts_are_what_no_answer_wins_and_one_more_vote_settles_them(self, store: AnswerStore) -> None:
        for who, one, two in (("ann", "bus", "bus"), ("bob", "car", "bus"), ("cat", "none", "car")):
            store.answer(who, "i1", [one], False, 2)
            store.answer(who, "i2", [two], False, 2)
        store.answer("ann", "i3", ["bus"], False, 2)
        assert store.conflicts("eve", 2) == ["i1"]
        assert store.votes("i1") == [("bus", 1), ("car", 1), ("none", 1)]
        store.answer("eve", "i1", ["car"], False, 2)
        assert (store.conflicts("eve", 2), store.conflicts("zoe", 2)) == ([], [])

    def test_nothing_is_written_before_anyone_answered(self, store: AnswerStore, tmp_path: Path) -> None:
        assert store.export(tmp_path / "answers" / "annotate.csv") == 0
        assert not (tmp_path / "answers").exists()

    def test_what_was_answered_elsewhere_is_neither_asked_again_nor_counted_twice(self, tmp_path: Path) -> None:
        ann, others = hashed("ann", "k"), [f"w{k}" for k in range(3)]
        elsewhere = [(ann, "i1", ["bus"]), *((who, "i2", ["car"]) for who in others), (ann, "i3", ["bus"])]
        AnswerStore(tmp_path / "b1.sqlite", BATCH, 0).answer("ann", "i3", ["bus"], False, 1)
        store = AnswerStore(tmp_path / "b1.sqlite", BATCH, 0, elsewhere, "k")
        assert sorted(BATCH["items"].keys() - set(store.following("ann", 30))) == ["i1", "i2", "i3"]
        assert sorted(BATCH["items"].keys() - set(store.following("bob", 30))) == ["i2"]
        assert (store.closed(), store.votes("i3")) == ({"i2"}, [("bus", 1)])
        assert store.progress("ann") == {"done": 1, "total": 28}

    def test_what_has_its_answers_is_asked_of_nobody_else(self, store: AnswerStore) -> None:
        for who in ("ann", "bob", "eve"):
            store.answer(who, "i1", ["bus"], False, 1)
        assert "i1" not in store.following("zoe", 30)
        store.undo("eve")
        assert "i1" in store.following("zoe", 30)

    def test_a_results_file_never_loses_a_line(self, store: AnswerStore, tmp_path: Path) -> None:
        store.answer("ann", "i1", ["bus"], False, 1)
        store.answer("bob", "i2", ["car"], False, 1)
        path = tmp_path / "answers.csv"
        assert store.export(path) == 2
        store.undo("bob")
        assert store.export(path) == 1
        table = read_answers(read_lines([path])["b1"], BATCH, "k")
        assert sorted(table["fault"].to_pylist(), key=str) == [None, "undone"]
        empty = AnswerStore(tmp_path / "new.sqlite", BATCH, 0)  # the file of the answers was lost
        empty.answer("eve", "i3", ["bus"], False, 1)
        empty.export(path)
        assert path.read_text().count("\n") == 1 + 3
        path.write_text("edited,by,hand\n")
        with pytest.raises(BadInput, match=r"answers\.csv has no column AssignmentId.*nothing is written over it"):
            empty.export(path)
        assert path.read_text() == "edited,by,hand\n"

    def test_a_damaged_file_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "a.sqlite").write_bytes(b"no database" * 1000)
        with pytest.raises(BadInput, match=r"a\.sqlite cannot be used \(file is not a database\)"):
            AnswerStore(tmp_path / "a.sqlite", BATCH, 0)


def answer_all(client: httpx.Client, annotator: str, folder: Path) -> int:
    """Answer with what was expected: one item at a time, then in grids but for the last concept; returns how many."""
    batch = read_json(folder_of(folder, "ask") / "batch.json")
    items = pq.read_table(folder_of(folder, "ask") / "items.parquet")
    expected = dict(zip(items["id"].to_pylist(), items["concept"].to_pylist(), strict=True))
    n = _answer_pages(client, annotator, batch["items"], expected, 30)
    for concept in sorted(set(expected.values()))[1:]:
        n += _answer_grids(client, annotator, concept)
    return n + _answer_pages(client, annotator, batch["items"], expected, len(batch["items"]))


def _answer_grids(client: httpx.Client, annotator: str, concept: str) -> int:
    n = 0
    page = client.get("/grid", params={"annotator": annotator, "concept": concept}).text
    while shown := [piece.split('"')[0] for piece in page.split('name="shown" value="')[1:]]:
        page = client.post("/reject", data={"annotator": annotator, "concept": concept, "shown": shown})
        page = page.text
        n += len(shown)
    return n


def _answer_pages(
    client: httpx.Client, annotator: str, items: dict[str, str], expected: dict[str, str], most: int
) -> int:
    n = 0
    page = client.get("/label", params={"annotator": annotator}).text
    while 'name="item"' in page and n < most:
        item = page.split('name="item" value="')[1].split('"')[0]
        concept = expected[items[item]]
        label = "none" if concept == "background" else concept
        form = {"annotator": annotator, "item": item, "labels": label, "sensitive": "no", "begun": "1"}
        page = client.post("/answer", data=form).text
        n += 1
    return n


def test_photos_go_from_the_local_page_into_a_release(client: httpx.Client, folder: Path) -> None:
    items = pq.read_table(folder_of(folder, "ask") / "items.parquet")
    for annotator in ("ann", "bob", "eve"):
        assert answer_all(client, annotator, folder) == len(set(items["id"].to_pylist()))
    run(context_of(folder))
    verdicts = pq.read_table(folder_of(folder, "tally") / "labels.parquet")
    assert set(verdicts["decision"].to_pylist()) <= {"kept", "wrong_concept"}
    assert (folder_of(folder, "publish") / "release" / "SHA256SUMS").is_file()


class TestPage:
    def test_it_is_the_marketplaces_question(self, client: httpx.Client, folder: Path) -> None:
        page = client.get("/label", params={"annotator": "ann"}).text
        theirs = (folder_of(folder, "ask") / "page.html").read_text()
        for piece in theirs.split("<fieldset>")[1:]:
            assert piece.split("</fieldset>")[0] in page
        assert "${image_url}" not in page
        assert "externalSubmit" not in page

    def test_nothing_on_it_tells_the_expected_class(self, client: httpx.Client, folder: Path) -> None:
        page = client.get("/label", params={"annotator": "ann"}).text
        item = page.split('name="item" value="')[1].split('"')[0]
        id_ = read_json(folder_of(folder, "ask") / "batch.json")["items"][item]
        assert id_ not in page
        assert client.get(f"/image/{item}").headers["content-type"] == "image/jpeg"

    def test_the_grid_takes_the_rest_to_show_the_concept(self, client: httpx.Client, folder: Path) -> None:
        page = client.get("/grid", params={"annotator": "ann", "concept": "bus"}).text
        shown = [piece.split('"')[0] for piece in page.split('name="shown" value="')[1:]]
        form = {"annotator": "ann", "concept": "bus", "shown": shown, "wrong": shown[:2]}
        client.post("/reject", data=form)
        assert client.post("/finish", data={"annotator": "ann"}).text.startswith(f"{len(shown)} answers")
        told = results(folder).read_text()
        assert told.count('"none"') == 2
        assert told.count('"bus"') == len(shown) - 2

    def test_undo_shows_a_page_of_the_grid_with_its_marks(self, client: httpx.Client) -> None:
        first = client.get("/grid", params={"annotator": "ann", "concept": "bus"}).text
        shown = [piece.split('"')[0] for piece in first.split('name="shown" value="')[1:]]
        form = {"annotator": "ann", "concept": "bus", "shown": shown, "wrong": shown[1:3]}
        client.post("/reject", data=form)
        client.post("/answer", data={"annotator": "bob", "item": shown[0], "labels": "bus", "sensitive": "no"})
        again = client.post("/undo", data={"annotator": "ann"}).text  # from any page
        assert [piece.split('"')[0] for piece in again.split('name="shown" value="')[1:]] == shown
        marked = [
            piece.split('"')[0] for piece in again.split('name="wrong" value="')[1:] if piece[16:].startswith('" c')
        ]
        assert marked == shown[1:3]
        page = client.post("/undo", data={"annotator": "bob"}).text
        assert f'name="item" value="{shown[0]}"' not in page or 'value="bus" checked' in page

    def test_what_is_clicked_among_the_background_stays_open(self, client: httpx.Client, folder: Path) -> None:
        page = client.get("/grid", params={"annotator": "ann", "concept": "background"}).text
        shown = [piece.split('"')[0] for piece in page.split('name="shown" value="')[1:]]
        form = {"annotator": "ann", "concept": "background", "shown": shown, "wrong": shown[:1]}
        assert f'value="{shown[0]}"' not in client.post("/reject", data=form).text
        client.post("/finish", data={"annotator": "ann"})
        text = results(folder).read_text()
        assert (text.count('"none"'), shown[0] in text) == (len(shown) - 1, False)
        store = answer_store_of(context_of(folder))
        assert shown[0] in store.following("ann", len(store.batch["items"]))
        undone = client.post("/undo", data={"annotator": "ann"}).text
        assert f'value="{shown[0]}" checked' in undone

    def test_the_start_page_counts_the_open_images_of_each_concept(self, client: httpx.Client, folder: Path) -> None:
        items = pq.read_table(folder_of(folder, "ask") / "items.parquet")
        counts = Counter(items["concept"].to_pylist())
        page = client.get("/").text
        assert len(counts) > 2
        assert all(f'<option value="{c}">{c} ({n} open)</option>' in page for c, n in counts.items())
        (item, id_) = min(read_json(folder_of(folder, "ask") / "batch.json")["items"].items())
        for who in ("ann", "bob", "eve"):
            client.post("/answer", data={"annotator": who, "item": item, "labels": "none", "sensitive": "no"})
        concept = items["concept"].to_pylist()[items["id"].to_pylist().index(id_)]
        page = client.get("/").text
        assert f"{concept} ({counts[concept] - 1} open)" in page
        assert f"{counts.total() - 1:,} images are open. 1 have their answers." in page

    def test_any_name_of_a_person_is_accepted(self, client: httpx.Client, folder: Path) -> None:
        names = ["Zoë O'Neill", " 山田　太郎 ", "نیک\u200cفر", "x" * 80, "<b>&amp;", 'a,b;"c|d']
        for name in names:
            page = client.get("/label", params={"annotator": name}).text
            assert "<b>" not in page.split("<main>")[0]
            item = page.split('name="item" value="')[1].split('"')[0]
            form = {"annotator": name, "item": item, "labels": "none", "sensitive": "no"}
            assert client.post("/answer", data=form).status_code == 200
        client.post("/finish", data={"annotator": "ann"})
        (lines,) = read_lines([results(folder)]).values()
        assert {line["WorkerId"] for _, line in lines} == set(map(person_name, names))
        for name in ("", "  ", "x" * 81, "=1+1", "@ann", "-1", "+1", "a\tb", "a\x00", "\u202eann", "\u200d"):
            answer = client.get("/label", params={"annotator": name})
            assert (answer.status_code, "Expected a name of 1 to 80 printable" in answer.text) == (400, True)

    def test_an_adjudicator_sees_what_others_said_and_it_is_recorded(self, client: httpx.Client, folder: Path) -> None:
        item = min(read_json(folder_of(folder, "ask") / "batch.json")["items"])
        for who, label in (("ann", "bus"), ("bob", "none")):
            client.post("/answer", data={"annotator": who, "item": item, "labels": label, "sensitive": "no"})
        page = client.get("/conflicts", params={"annotator": "eve"}).text
        assert "1 in conflict. Others say: 1 × bus; 1 × none" in page
        form = {"annotator": "eve", "item": item, "labels": "bus", "sensitive": "no", "view": "conflicts"}
        assert "No conflict is left" in client.post("/answer", data=form).text
        assert '"others: 1 × bus; 1 × none"' in results(folder).read_text()

    def test_a_mistake_is_told_and_loses_nothing(self, client: httpx.Client) -> None:
        answer = client.post("/answer", data={"annotator": "ann", "item": "x", "labels": "bus"})
        assert (answer.status_code, "is not in the batch" in answer.text) == (400, True)
        assert client.post("/answer", data={"annotator": "<b>", "item": "x"}).status_code == 400
        assert client.post("/answer", data={"annotator": "ann\n", "item": "x"}).status_code == 400
        for page in ("/label", "/grid"):
            assert client.get(page, params={"annotator": "ann\n", "concept": "bus"}).status_code == 400
        assert client.get("/label", params={"annotator": "ann"}).text.count('type="checkbox" name="labels"') > 1

    def test_a_full_disk_is_said_and_earlier_answers_stay(self, client: httpx.Client, folder: Path) -> None:
        items = list(read_json(folder_of(folder, "ask") / "batch.json")["items"])
        answers = [{"annotator": "ann", "item": item, "labels": "bus"} for item in items[:2]]
        assert client.post("/answer", data=answers[0]).status_code == 200
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
        try:
            refused = client.post("/answer", data=answers[1])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert refused.status_code == 507
        assert refused.text.startswith(f"Nothing was stored. {folder / 'annotate'}")
        assert client.post("/answer", data=answers[1]).status_code == 200
        assert client.post("/finish", data={"annotator": "ann"}).text.startswith("2 answers")


def test_a_photo_that_was_withdrawn_since_is_shown_to_nobody_and_its_answers_stay(folder: Path) -> None:
    items = read_json(folder_of(folder, "ask") / "batch.json")["items"]
    (item, gone), *_ = items.items()
    store = answer_store_of(context_of(folder))
    store.answer("ann", item, ["none"], False, 1)
    store.skip("ann", item)
    withdraw(folder / NAME, [Withdrawal(gone, "2026-11-27", "", "", "")])
    pages = Pages(context_of(folder))
    assert len(pages.store.batch["items"]) == len(pages.images) == len(items) - 1
    assert not any(item in of_concept for of_concept in pages.candidates.values())
    assert item not in pages.store.following("bob", len(items))
    assert pages.store.export(folder / "answers" / "a.csv") == 1


def test_a_photo_stands_in_the_grid_of_the_one_concept_that_asks_for_it(folder: Path) -> None:
    rows = [("a", "bus", "kept"), ("a", "car", "kept"), ("b", "bus", "kept"), ("b", "car", "surplus"),
            ("c", "bus", "surplus"), ("c", "car", "surplus"), ("d", "background", "background"),
            ("e", "car", "ambiguous")]  # fmt: skip
    names = ("id", "concept", "fate")
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
    pq.write_table(table, folder_of(folder, "retrieve") / "candidates.parquet")
    assert grid_of(context_of(folder)) == {"b": "bus", "d": "background"}


def test_a_run_that_asked_nothing_says_what_to_do(tmp_path: Path, waiting: Path) -> None:
    shutil.copy(waiting / "driftline.yaml", tmp_path)
    with pytest.raises(MissingFile, match="has no batch yet.*--until ask"):
        answer_store_of(context_of(tmp_path))


def serve(folder: Path, said: Path) -> tuple[Running, str]:
    """The real server in a process of its own, and the address it prints."""
    said.write_bytes(b"")
    server = start("annotate", folder, "--port", "0", said=said)
    while not (text := said.read_text()).endswith("\n"):
        assert server.poll() is None, text
        time.sleep(0.02)
    return server, text.split()[0]


@pytest.mark.proof("kills")
def test_answers_of_three_people_and_two_kills_lose_none(folder: Path) -> None:
    """Each answer that was acknowledged is there after the server was killed in the middle of others."""
    items = sorted(read_json(folder_of(folder, "ask") / "batch.json")["items"])
    work = [(who, item) for item in items for who in ("ann", "bob", "eve")]
    acknowledged: list[tuple[str, str]] = []

    def post(share: list[tuple[str, str]], address: str) -> None:
        origin = "/".join(address.split("/")[:3])
        with httpx.Client(base_url=address, headers={"origin": origin}) as browser:
            try:
                for who, item in share:
                    form = {"annotator": who, "item": item, "labels": "none", "sensitive": "no"}
                    if browser.post("/answer", data=form).status_code == 303:
                        acknowledged.append((who, item))
            except httpx.HTTPError:
                return  # the server was killed

    for enough in (len(work) // 3, 2 * len(work) // 3, len(work)):
        stored = set(_answers(folder))
        left = [w for w in work if w not in stored]
        server, address = serve(folder, folder / "said.txt")
        people = [threading.Thread(target=post, args=(left[i::3], address)) for i in range(3)]
        for person in people:
            person.start()
        while len(acknowledged) < enough and any(person.is_alive() for person in people):
            time.sleep(0.002)
        server.kill()
        server.wait()
        for person in people:
            person.join()
        assert set(acknowledged) <= set(_answers(folder))
    assert set(_answers(folder)) == set(work)


def _answers(folder: Path) -> list[tuple[str, str]]:
    store = answer_store_of(context_of(folder))
    found = [(who, item) for who in ("ann", "bob", "eve") for item in store.answered(who)]
    store.close()
    return found


@pytest.mark.proof("browser")
def test_in_a_real_browser_keys_answer_and_undo(client: httpx.Client, folder: Path) -> None:
    """Headless Chromium: keys tick, none excludes, Enter goes on, u comes back."""
    from playwright.sync_api import expect

    problems: list[str] = []
    with chromium_browser() as browser:
        page = browser.new_page()
        page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        page.goto(str(client.base_url))
        assert violations_everywhere(page) == {}
        page.get_by_label("Your name").fill("ann")
        page.get_by_role("button", name="One by one").click()
        first = page.locator("#question input[name=item]").input_value()
        page.wait_for_load_state()
        assert violations_everywhere(page) == {}
        page.keyboard.press("Enter")
        expect(page.get_by_role("status")).to_contain_text("Tick what you see first")
        page.keyboard.press("1")
        expect(page.locator("input[name=labels]").first).to_be_checked()
        page.keyboard.press("n")
        expect(page.locator("input[name=labels]").first).not_to_be_checked()
        page.keyboard.press("Enter")
        expect(page.locator("header.bar")).to_contain_text("ann: 1 of")
        assert page.locator("#question input[name=item]").input_value() != first
        page.wait_for_load_state()  # the text of a page is there before its keys are
        page.keyboard.press("u")
        expect(page.locator("header.bar")).to_contain_text("ann: 0 of")
        assert page.locator("#question input[name=item]").input_value() == first
        page.goto(f"{client.base_url}")
        page.get_by_label("Your name").fill("bob")
        page.keyboard.press("Enter")  # the grid is what Enter chooses
        expect(page.locator("label.shot").first).to_be_visible()
        assert violations_everywhere(page) == {}
        page.keyboard.press("x")
        expect(page.locator("form output")).to_contain_text("1 wrong")
        shown = page.locator("input[name=shown]").count()
        page.keyboard.press("Enter")
        expect(page.locator("header.bar")).to_contain_text(f"bob: {shown} of")
        page.wait_for_load_state()
        page.get_by_role("button", name="Undo").click()
        expect(page.locator("header.bar")).to_contain_text("bob: 0 of")
        expect(page.locator("form output")).to_contain_text("1 wrong")
        phone = browser.new_page(viewport={"width": 390, "height": 844})
        phone.goto(f"{client.base_url}label?annotator=eve")
        expect(phone.get_by_role("button", name="Submit")).to_be_in_viewport(ratio=1)
        assert phone.evaluate("document.documentElement.scrollHeight") == 844, "picture and answers on one screen"
        assert phone.locator("#question main img").bounding_box()["height"] > 250
    assert not problems


class TestOptions:
    SERVE = "driftline.pipelines.web.local_server.serve"

    @pytest.mark.parametrize(("words", "status"), [((), 421), (("--host", "labels.test"), 200)])
    def test_another_name_of_this_machine_is_accepted_if_it_is_said(self, words, status, folder):
        found = handed(self.SERVE, "annotate", folder, *words)
        assert found.get("host", "127.0.0.1") == (words[1] if words else "127.0.0.1")
        app, path = found["make"](8)
        assert TestClient(app, base_url="http://labels.test:8").get(path).status_code == status
