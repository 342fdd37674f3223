"""The whole command line with hostile values for every option: an exit code of 0 to 3 and one message, no traceback."""

import re
from collections.abc import Iterator

import pytest
from support.console import command_tree, inside
from support.helpers import few_of
from support.small_runs import unpacked

from driftline.pipelines import cli as application

VALUES = ("", "-1", "nan", "a=[", "x" * 5000, "\udcff", "{folder}", "{file}", "{file}/inside", "{nowhere}")
# Required words of commands that do more with them than refuse; {…} are places of the test.
WORDS = {
    "init": ["{new}", "--preset", "folder"],
    "run": ["{run}", "--until", "filter"],
    "status": ["{run}"],
    "trace": ["{run}", "car"],
    "annotate": ["{run}"],
    "batch": ["{run}", "--format", "turkle", "--out", "{new}"],
    "export": ["{run}", "--format", "urls", "--out", "{new}"],
    "stream show": ["{stream}"],
    "stream measure": ["{stream}"],
    "stream from-release": ["{run}", "--out", "{new}"],
    "eval": ["{stream}", "--protocol", "clear-iid", "--learners", "majority", "--out", "{new}"],
}
PLACE = re.compile(r"\{(\w+)\}")
LONG = {"demo"}  # with good values it works for minutes


COMMANDS = command_tree()


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("hostile")
    for name in ("finished", "finished-stream"):
        unpacked(name, folder)
    (folder / "file").write_bytes(b"\x00\xff no table, no image")
    (folder / "folder").mkdir()
    names = {"run": "finished", "stream": "finished-stream", "file": "file", "folder": "folder", "new": "new"}
    return {key: str(folder / name) for key, name in (names | {"nowhere": "nowhere"}).items()}


def cases(name: str, every: bool) -> Iterator[list[str]]:
    """The words of a command with one hostile value in each place in turn; not every: a third for each option."""
    parameters = [p for p in COMMANDS[name].params if not getattr(p, "is_flag", False)]
    arguments = [p for p in parameters if p.param_type_name == "argument"]
    options = [p for p in parameters if p.param_type_name == "option" and p.name != "help"]
    words = WORDS.get(name)
    if words is None:
        words = ["{nowhere}"] * sum(p.required for p in arguments)
        words += [word for p in options if p.required for word in (p.opts[0], "x")]
    for number, value in enumerate(VALUES):
        for place in range(len(arguments) if name not in LONG or arguments else 0):
            if place < len(words):
                yield [*words[:place], value, *words[place + 1 :]]
        for option in options if every else options[number % 3 :: 3]:
            flag = option.opts[0]
            without = list(words)
            if flag in without:
                del without[without.index(flag) : without.index(flag) + 2]
            if name not in LONG or flag not in ("--out", "--set"):
                yield [*without, f"{flag}={value}"]


CASES = [(name, every) for name in COMMANDS for every in (False, True)]


@pytest.mark.parametrize(("name", "every"), few_of(CASES, [case for case in CASES if not case[1]], "fuzz"))
def test_hostile_values_are_answered_with_one_message(name, every, places, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    part = application.called(name.split())
    monkeypatch.setattr(application, "called", lambda words: part)  # made once, not for each value
    monkeypatch.setattr(
        "driftline.pipelines.demo.journey.demo", lambda *given: {"report": "", "seconds": 0.0, "stages": []}
    )
    for case in cases(name, every):
        words = [PLACE.sub(lambda match: places[match[1]], word) for word in case]
        shown = [name, *(word[:80] for word in words)]
        try:
            done = inside(*name.split(), *words)
        except Exception as error:
            pytest.fail(f"{shown}: {type(error).__name__}: {error}")
        assert done.returncode in range(4), shown
        assert "Traceback" not in done.stderr, shown
        assert "driftline: [Errno" not in done.stderr, (shown, done.stderr)
        assert done.returncode == 0 or done.stderr.strip(), shown
