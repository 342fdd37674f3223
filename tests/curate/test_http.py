"""One policy for requests to others: repetitions, pauses, deadlines, secrets; and the journal of what was asked."""

import json
import re
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from support.serving import serving

from driftline.curate.core.errors import BadConfig, DriftlineError
from driftline.curate.foreign import http
from driftline.curate.foreign.http import Client, Policy, Reply, Temporary, one_address, repeat, seconds_after
from driftline.curate.retrieval.settings import Concept
from driftline.curate.sources.base import Workplace
from driftline.curate.sources.flickr import Flickr
from driftline.curate.validation.judges import Endpoint, question_of
from driftline.curate.validation.settings import JudgeSettings
from driftline.eval.learners.texts import Llm

QUICK = Policy(3, 0.001)
HOSTILE = ["9" * 400, "1e999", "-1", "nan", "inf", "²", "", "0x10", "Fri, 31 Dec 9999 23:59:59 -2359", "Mon", "\x00"]


@contextmanager
def server(answer: Callable[[BaseHTTPRequestHandler, int], None]) -> Iterator[tuple[str, list[str]]]:
    """(address, methods that were asked). answer: of a request and its number, from 0."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.command)
            answer(self, len(asked) - 1)

        do_POST = do_GET

        def log_message(self, *args: object) -> None:
            """Quiet."""

    with serving(Handler) as address:
        yield address, asked


def says(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"{}", **headers: str) -> None:
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


@pytest.mark.parametrize("value", HOSTILE)
def test_no_value_of_retry_after_is_more_than_its_bound_or_an_error(value: str) -> None:
    assert 0 <= seconds_after(value, 50.0) <= 50


def test_a_date_is_read_as_seconds_from_now() -> None:
    from datetime import UTC, datetime, timedelta

    assert 28 < seconds_after(format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)) <= 30


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_pause_ends_in_an_answer_or_a_sentence(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(http.time, "sleep", waits.append)

    class Once(Client):
        replies = iter([Reply(429, {"Retry-After": value}, b""), Reply(200, {}, b'{"a": 1}')])

        def send(self, *request: Any, **more: Any) -> Reply:
            return next(self.replies)

    ended = ""
    try:
        ended = Once().ask("GET", "http://x/", lambda reply: reply.body.decode(), Policy())
    except Temporary as failure:
        ended = str(Policy().error("Museum", failure, ""))
    assert ended == '{"a": 1}' or ended.startswith("Museum asks to wait for")
    assert all(0 <= wait <= 600 for wait in waits)


def test_pauses_double_up_to_a_bound_with_a_quarter_of_chance_and_no_further_one_than_tries() -> None:
    policy = Policy(tries=9, first=1.0, longest=16.0)
    pauses = [policy.pause(i, Temporary("x")) for i in range(8)]
    assert [p is not None and 1 <= p / min(2**i, 16) <= 1.25 for i, p in enumerate(pauses)] == [True] * 8
    assert len({policy.pause(0, Temporary("x")) for _ in range(9)}) > 1
    assert policy.pause(8, Temporary("x")) is None
    assert policy.pause(0, Temporary("x", wait=30.0)) == 30.0
    assert policy.pause(0, Temporary("x", wait=601.0)) is None
    assert policy.pause(0, Temporary("x", sure=False)) is None


@pytest.mark.parametrize("fails", [0, 2, 3])
def test_what_may_pass_is_tried_three_times(fails: int) -> None:
    left = iter([True] * fails)

    def once() -> str:
        if next(left, False):
            raise Temporary("busy")
        return "done"

    if fails < 3:
        assert repeat(once, QUICK) == "done"
    else:
        with pytest.raises(Temporary, match="busy"):
            repeat(once, QUICK)


@pytest.mark.parametrize(("method", "status", "times"), [("GET", 503, 3), ("POST", 503, 1), ("POST", 429, 3)])
def test_what_may_have_been_done_is_not_repeated(method: str, status: int, times: int) -> None:
    with server(lambda handler, n: says(handler, status)) as (address, asked), suppress(Temporary):
        assert Client().ask(method, address, lambda reply: reply.status, QUICK) == status
    assert asked == [method] * times


def test_a_lost_post_is_not_repeated_and_a_lost_get_is() -> None:
    def cut(handler: BaseHTTPRequestHandler, n: int) -> None:
        handler.close_connection = True

    for method, times in (("POST", 1), ("GET", 3)):
        with server(cut) as (address, asked):
            with pytest.raises(Temporary, match="ProtocolError"):
                Client().ask(method, address, lambda reply: reply.status, QUICK)
            assert asked == [method] * times


def test_an_answer_that_drips_ends_at_the_deadline() -> None:
    def drips(handler: BaseHTTPRequestHandler, n: int) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        with suppress(OSError):
            for _ in range(400):
                handler.wfile.write(b"x")
                handler.wfile.flush()
                time.sleep(0.05)

    with server(drips) as (address, _):
        begun = time.monotonic()
        with pytest.raises(Temporary, match="TimeoutError"):
            Client(deadline=0.2).send("GET", address)
        assert time.monotonic() - begun < 10, "half of what it lasts"


def test_an_answer_without_end_is_cut() -> None:
    with server(lambda handler, n: says(handler, 200, b"x" * 300_000)) as (address, _):
        assert len(Client(largest=1000).send("GET", address).body) == 1001


def test_a_redirect_is_an_answer() -> None:
    with server(lambda handler, n: says(handler, 302, Location="http://127.0.0.1:1/")) as (address, asked):
        assert Client().send("GET", address).status == 302
    assert asked == ["GET"]


REQUESTS = re.compile(
    r"^\s*(?:import|from) (requests|httpx|aiohttp|urllib3|urllib\.request|http\.client|boto3|botocore)\b"
)
OWN = {  # modules that send requests without `Client`, each with its reason
    "foreign/http.py": "it is the client",
    "foreign/s3.py": "boto3 signs, resumes and pauses",
    "core/late.py": "names of botocore's errors",
    "publishing/targets.py": "boto3",
    "fetch/native.py": "images from many hosts at once: aiohttp",
}


def test_one_client_sends_all_requests_but_those_that_are_named() -> None:
    top = Path(http.__file__).parents[3]
    senders = [
        path.as_posix()
        for folder in ("curate", "stream_builder", "eval", "pipelines")
        for path in (top / folder).rglob("*.py")
        if any(map(REQUESTS.match, path.read_text().splitlines()))
    ]
    assert [path for path in senders if not path.endswith(tuple(OWN))] == []
    assert [name for name in OWN if not any(path.endswith(name) for path in senders)] == []


@pytest.mark.parametrize("address", ["http://", "http://[", "http://a b/"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises((BadConfig, Temporary)):
        Client().send("GET", address)


def test_no_message_holds_a_secret() -> None:
    client = Client(secret="KEY")
    assert client.hidden("https://me:pass@example.org/a?key=KEY") == "https://…@example.org/a"
    assert Client(secret="a/b+").hidden("at a/b+ and a%2Fb%2B") == "at … and …"
    with pytest.raises(BadConfig) as error:
        client.send("GET", "http://me:KEY@[/")
    assert "KEY" not in str(error.value)


PLANTED = "pl4nted/t0ken+"


def _flickr(address: str, folder: Path) -> None:
    collection = Flickr(start=0, end=99, endpoint=f"{address}/", rate=10**9)
    list(collection.batches(at=Workplace(work=folder)))


def _judge(address: str, folder: Path) -> None:
    judge = JudgeSettings(name="j", url=address, model="m", key_variable="PLANTED", retries=0)
    endpoint = Endpoint(
        judge, question_of([Concept(name="bus", prompts=("bus",))], "What is it?"), lambda i: (b"x", "")
    )
    said = endpoint.ask("p")
    (folder / "said").write_text(str(said))
    if endpoint.fatal:
        raise endpoint.fatal[0]


def _model(address: str, folder: Path) -> None:
    learner = Llm(endpoint=address, model="m", key_env="PLANTED", retries=0)
    learner._open()
    learner.number, learner.counts = {}, Counter()
    try:
        learner._label(b"{}")
    finally:
        (folder / "counts").write_text(str(learner.metadata()))


@pytest.mark.parametrize("status", [200, 302, 400, 401, 404, 429, 500])
@pytest.mark.parametrize("ask", [_flickr, _judge, _model])
def test_a_token_that_a_server_repeats_is_in_no_message_and_no_file(ask, status, tmp_path, monkeypatch, capsys):
    for variable in ("FLICKR_API_KEY", "PLANTED"):
        monkeypatch.setenv(variable, PLANTED)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)

    def repeats(handler: BaseHTTPRequestHandler, n: int) -> None:
        words = f"{'x' * 185} {PLANTED} {handler.path} {handler.headers.get('Authorization')}"
        choice = {"message": {"content": f'{{"labels": ["bus"], "why": "{words}"}}'}}
        body = {"stat": "fail", "code": 0, "message": words, "detail": words, "model": PLANTED, "choices": [choice]}
        says(handler, status, json.dumps(body).encode(), Location=f"/again?{words}".replace(" ", "-"))

    with server(repeats) as (address, asked):
        trace = ""
        try:
            ask(address, tmp_path)
        except (DriftlineError, Temporary) as error:
            trace = "".join(traceback.format_exception(error))
    assert asked
    texts = [trace, *capsys.readouterr(), *(p.read_text() for p in tmp_path.rglob("*") if p.is_file())]
    assert [t for t in texts if PLANTED.partition("/")[0] in t] == []


@pytest.mark.parametrize(
    ("url", "form"),
    [
        ("https://h/a b.jpg", "https://h/a%20b.jpg"),
        ("https://h/테.jpg?q=ä&r=\u00a0", "https://h/%ED%85%8C.jpg?q=%C3%A4&r=%C2%A0"),
        ("https://ÖX.de/a.jpg", "https://xn--x-0ga.de/a.jpg"),
        ("https://straße.de/a.jpg", "https://xn--strae-oqa.de/a.jpg"),
        ("HTTPS://H/A.jpg", "https://h/A.jpg"),
        ("https://h:0443/a.jpg", "https://h/a.jpg"),
        ("http://h:443/a.jpg", "http://h:443/a.jpg"),
        ("https://h/a.jpg?x#y?z", "https://h/a.jpg?x"),
        ("http://①②⑦。0.0.1/a.jpg", "http://127.0.0.1/a.jpg"),
        ("http://[::FFFF:7f00:1]:80/a.jpg", "http://[::ffff:7f00:1]/a.jpg"),
    ],
)
def test_case_26_an_address_has_one_form(url: str, form: str) -> None:
    assert one_address(url) == form
    assert one_address(form) == form


@pytest.mark.parametrize("rest", ["", "/", "?a", "/a%2Fb%20%zz.jpg", "/a{1}[2]|`^~'\"<>\\.jpg?b=%C3&c=d+e;f@g:h"])
def test_case_26_a_plain_address_and_its_escapes_stay_as_they_are(rest: str) -> None:
    assert one_address(f"https://a_b.h-1.de{rest}") == f"https://a_b.h-1.de{rest}"


@pytest.mark.parametrize(
    "url", ["//h/a", "h/a", "", "https:///a", "https://u:p@h/a", "https://ü@h/a", "https://%6c/a", "https://h:x/a",
            "https://h/a\nb", "https://\udc80/a", "https://℀.de/a", "httpſ://h/a", "https://[::1/a", "https://[ö]/a"],
)  # fmt: skip
def test_case_26_what_has_a_user_or_no_host_has_no_form(url: str) -> None:
    assert one_address(url) is None
