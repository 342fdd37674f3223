"""Texts: tables and what they must not hold, encoders, and the learners that read: LoRA and a language model."""

import json
import pickle
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.chat_server import Chat, chat_server
from support.serving import serving
from support.toy_encoder import tiny_bert
from support.traps import Trap

from driftline.curate.core.atomic_io import sha256_bytes
from driftline.curate.core.errors import (
    BadArray,
    BadConfig,
    BadInput,
    IncompatibleStream,
    MissingFile,
    UnknownName,
    Unreachable,
)
from driftline.curate.core.registry import HOME
from driftline.curate.core.seeding import rng_for
from driftline.curate.encoders import spec_of
from driftline.curate.encoders.texts import Ngrams
from driftline.eval.learner import Task
from driftline.eval.learners.texts import Llm, Lora
from driftline.eval.protocol import PROTOCOLS
from driftline.eval.run import evaluate
from driftline.stream_builder.builders.encoded import encode
from driftline.stream_builder.builders.shift_sequence import from_dataset
from driftline.stream_builder.datasets import Options, open_dataset
from driftline.stream_builder.datasets import texts as intents
from driftline.stream_builder.datasets.texts import MAX_LENGTH
from driftline.stream_builder.stream import Step, Stream

WORDS = {"card": ["my card is lost", "where is the card", "card not here"],
         "loan": ["i need a loan", "loan please", "a big loan for me"],
         "rate": ["what rate do you have", "the rate today", "exchange rate now"]}  # fmt: skip
KNOWN = sorted({word for of in WORDS.values() for text in of for word in text.split()} | set("0123456789"))


def rows(each: int) -> list[tuple[str, str]]:
    return [(f"{WORDS[name][i % 3]} {i}", name) for name in WORDS for i in range(each)]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    folder = tmp_path / "intent"
    folder.mkdir()
    for side, each in (("train", 12), ("test", 6)):
        lines = ["text,category", *(f'"{text}",{name}' for text, name in rows(each))]
        (folder / f"{side}.csv").write_text("\n".join(lines), encoding="utf-8")
    return folder


@pytest.fixture
def texts(table: Path, tmp_path: Path) -> Stream:
    return from_dataset(open_dataset(table)).save(tmp_path / "S")


class TestTables:
    def test_a_folder_of_two_tables(self, texts: Stream) -> None:
        assert texts.x_shape == ()
        assert list(texts.classes) == ["card", "loan", "rate"]
        assert texts.steps[0]["train"].x[0] == "my card is lost 0"
        assert (len(texts.steps[0]["train"]), len(texts.steps[0]["test"])) == (36, 18)

    def test_one_table_with_a_column_of_splits(self, tmp_path: Path) -> None:
        lines = [json.dumps({"utterance": t, "intent": n, "split": "train" if i % 2 else "test"}) for i, (t, n) in
                 enumerate(rows(4))]  # fmt: skip
        (tmp_path / "all.jsonl").write_text("\n".join(lines))
        base = open_dataset(tmp_path / "all.jsonl")
        assert (len(base.train), len(base.test)) == (6, 6)

    def test_clinc_has_texts_out_of_scope_as_a_class(self, tmp_path: Path) -> None:
        pairs = {"train": [["a", "x"], ["b", "y"]], "test": [["c", "x"]], "val": [["d", "y"]],
                 "oos_train": [["e", "oos"]], "oos_test": [["f", "oos"]]}  # fmt: skip
        (tmp_path / "data_full.json").write_text(json.dumps(pairs))
        base = open_dataset(tmp_path / "data_full.json")
        assert base.classes == ["oos", "x", "y"]
        assert base.train.x.tolist() == ["a", "b", "e"]
        assert base.test.y.tolist() == [1, 0]

    @pytest.mark.parametrize(
        ("row", "told"),
        [
            ('"a\0b",card', "row 1: the text contains a NUL"),
            (f'"{"a" * (MAX_LENGTH + 1)}",card', "row 1: 10,001 characters"),
            ('"  ",card', "row 1: an empty text"),
            ('"fine",', "row 1: an empty text or label"),
        ],
    )
    def test_invalid_texts_are_refused(self, table: Path, row: str, told: str) -> None:
        (table / "train.csv").write_text(f"text,category\n{row}\n", encoding="utf-8")
        with pytest.raises(BadInput, match=told):
            open_dataset(table)

    def test_columns_encodings_and_missing_files(self, table: Path) -> None:
        (table / "train.csv").write_text("words,category\na,b\n")
        with pytest.raises(BadInput, match="has no column 'text or utterance"):
            open_dataset(table)
        (table / "train.csv").write_bytes(b"text,category\n\xff\xfe,b\n")
        with pytest.raises(BadInput, match="is not UTF-8"):
            open_dataset(table)
        (table / "test.csv").unlink()
        (table / "train.csv").write_text("text,category\na,b\n")
        with pytest.raises(MissingFile, match=r"0 tables \*test\*"):
            open_dataset(table)


class TestNames:
    """A loopback server in the place of the official one."""

    @pytest.fixture
    def served(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        folder = tmp_path / "served"
        folder.mkdir()
        with serving(partial(Quiet, directory=str(folder))) as base:
            for name in ("BANKING77", "CLINC150"):
                monkeypatch.setattr(intents, name, f"{base}/")
            yield folder

    def test_files_are_fetched_once_and_checked(self, served, table, tmp_path, monkeypatch):
        for side in ("train", "test"):
            (served / f"{side}.csv").write_bytes((table / f"{side}.csv").read_bytes())
        options = Options(data_dir=tmp_path / "data", download=True)
        with pytest.raises(BadInput, match="has changed"):
            open_dataset("banking77", options)
        monkeypatch.setattr(intents, "SHA256", {})
        assert len(open_dataset("banking77", options).train) == 36
        (served / "train.csv").unlink()
        assert len(open_dataset("banking77", options).train) == 36

    def test_a_missing_file_says_where_to_get_it(self, served: Path, tmp_path: Path) -> None:
        with pytest.raises(MissingFile, match="or use --download"):
            open_dataset("clinc150", Options(data_dir=tmp_path))
        with pytest.raises(MissingFile, match="answered 404"):
            open_dataset("clinc150", Options(data_dir=tmp_path, download=True))

    @pytest.mark.shared(twin="tests/eval/test_texts.py::test_a_folder_of_two_tables")
    def test_banking77s_own_files(self, shared: Path, tmp_path: Path) -> None:
        for side in ("train", "test"):
            data = (shared / "intent" / f"banking77_{side}.csv").read_bytes()
            assert sha256_bytes(data) == intents.SHA256[f"{side}.csv"]
            (tmp_path / "banking77").mkdir(exist_ok=True)
            (tmp_path / "banking77" / f"{side}.csv").write_bytes(data)
        base = open_dataset("banking77", Options(data_dir=tmp_path))
        assert (len(base.train), len(base.test), len(base.classes)) == (10_003, 3_080, 77)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """Nothing."""


class TestEncoders:
    def test_hashed_ngrams_find_similar_texts(self) -> None:
        a, b, c = Ngrams("512").texts(["my card is lost", "the card was lost", "mortgage"])
        assert a @ b > 0.3 > a @ c
        assert np.linalg.norm(a) == pytest.approx(1)

    def test_names(self) -> None:
        assert spec_of("ngrams:64").load().width == 64
        assert spec_of("clip:hf-hub:org/name").model == "hf-hub:org/name"
        with pytest.raises(UnknownName):
            spec_of("word2vec:a")
        with pytest.raises(BadConfig, match="KIND:MODEL"):
            spec_of("ngrams")
        with pytest.raises(BadConfig, match="width"):
            spec_of("ngrams:many").load()

    def test_a_stream_of_vectors_keeps_everything_else(self, texts: Stream) -> None:
        made = encode(texts, Ngrams("64"), "ngrams:64")
        assert made.x_shape == (64,)
        assert made.facts["encoder"] == "ngrams:64"
        assert (made.steps[0]["test"].ids == texts.steps[0]["test"].ids).all()
        with pytest.raises(BadArray, match="Expected texts"):
            encode(made, Ngrams("64"), "again")

    @pytest.mark.parametrize("answer", ["silence", "refusal"])
    def test_a_model_that_cannot_be_had_is_one_sentence_within_seconds(self, answer, monkeypatch):
        def ask(*_: Any, **__: Any) -> None:
            time.sleep(8 if answer == "silence" else 0)
            raise OSError("no way")

        monkeypatch.setattr("huggingface_hub.get_session", lambda: SimpleNamespace(head=ask))
        begun = time.monotonic()
        with pytest.raises(Unreachable, match="tiny/none is not on this machine, and .* does not answer"):
            spec_of("sentence:tiny/none", "cpu").load()
        with pytest.raises(Unreachable, match="tiny/none is not on this machine"):
            Lora(model="tiny/none").begin(Task(3, ()), rng_for(0))
        assert time.monotonic() - begun < 10

    def test_a_sentence_model_from_a_folder(self, tmp_path: Path) -> None:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.models import Pooling, Transformer

        folder = tiny_bert(tmp_path / "bert", KNOWN)
        body = Transformer(str(folder), max_seq_length=16)
        SentenceTransformer(modules=[body, Pooling(32)], device="cpu").save(str(tmp_path / "sentence"))
        encoder = spec_of(f"sentence:{tmp_path / 'sentence'}", "cpu").load()
        one, two = encoder.texts(["my card", "a loan"])
        assert (encoder.width, one.shape) == (32, (32,))
        assert np.linalg.norm(one) == pytest.approx(1)
        assert not np.allclose(one, two)
        assert encoder.truncated("card " * 30).count("card") == 16
        assert encoder.truncated("card") == ""
        with pytest.raises(MissingFile, match="cannot be loaded"):
            spec_of(f"sentence:{tmp_path / 'none'}", "cpu").load()

    def test_the_code_in_its_folder_is_not_run(self, tmp_path: Path) -> None:
        (tmp_path / "modules.json").write_text('[{"idx": 0, "name": "0", "path": "", "type": "evil.Evil"}]')
        (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w')\nclass Evil: ...\n")
        with pytest.raises(BadInput, match=r"cannot be loaded \(.*code of its own is never run"):
            spec_of(f"sentence:{tmp_path}", "cpu").load()
        assert not (tmp_path / "mark").exists()

    def test_learners_of_vectors_say_that_texts_must_be_encoded(self, texts: Stream) -> None:
        found = evaluate(texts, "ocrr", ["substrate"], settings={"held_out": 1})
        assert "It learns from vectors; 'intent' holds texts" in found["skipped"][0]["because"]


class TestLora:
    def begun(self, folder: Path, **more: Any) -> Lora:
        learner = Lora(**({"model": str(folder), "lr": 2e-2, "epochs": 6, "batch": 8} | more))
        learner.begin(Task(3, ()), rng_for(0))
        return learner

    def test_it_learns_texts_and_the_seed_decides_all(self, texts: Stream, tmp_path: Path) -> None:
        folder, train, test = tiny_bert(tmp_path / "bert", KNOWN), texts.steps[0]["train"], texts.steps[0]["test"]
        answers = []
        for _ in range(2):
            learner = self.begun(folder, lr=0.05, epochs=25, dropout=0.0)
            learner.learn(train.x, train.y)
            answers.append(learner.predict(test.x))
        assert (answers[0] == answers[1]).all()
        assert (answers[0] == test.y).mean() > 0.8

    def test_texts_become_tokens_once_and_a_batch_is_as_wide_as_its_longest_text(self, tmp_path: Path) -> None:
        learner, calls = self.begun(tiny_bert(tmp_path / "bert", KNOWN), epochs=3, batch=2), []
        reader, widths = learner.reader, []
        learner.reader = lambda *given, **more: calls.append(given) or reader(*given, **more)
        learner.net.register_forward_pre_hook(
            lambda _, args, given: widths.append(given["input_ids"].shape[1]), with_kwargs=True
        )
        learner.learn(np.array(["1", "2 2", "3 3 3", "4 4 4 4"]), np.array([0, 1, 2, 0]))
        assert len(calls) == 1
        assert len(widths) == 6
        assert min(widths) < max(widths) == 6  # four words and two marks

    def test_only_adapters_and_the_classifier_learn(self, texts: Stream, tmp_path: Path) -> None:
        learner = self.begun(tiny_bert(tmp_path / "bert", KNOWN))
        frozen = {n: p.clone() for n, p in learner.net.named_parameters() if not p.requires_grad}
        train = texts.steps[0]["train"]
        learner.learn(train.x[:8], train.y[:8])
        learner.correct(train.x[:1], train.y[:1])
        assert all(bool((dict(learner.net.named_parameters())[n] == p).all()) for n, p in frozen.items())
        # Rank 8 on two 32 × 32 projections, and 32 × 3 + 3 of the classifier, of four bytes.
        assert learner.stored_bytes() == 4 * (2 * 2 * 8 * 32 + 32 * 3 + 3)
        assert learner.gradient_steps == 6 + 1

    def test_scores_and_a_correction_are_those_of_the_plain_network_with_w_plus_ba(self, texts, tmp_path):
        """Hu et al. 2021, sec. 4.1: h = W x + α / r B A x, in a network without peft."""
        import torch
        from transformers import BertForSequenceClassification

        folder, train = tiny_bert(tmp_path / "bert", KNOWN), texts.steps[0]["train"]
        learner = self.begun(folder, epochs=1, alpha=4, correct_lr=0.5)
        learner.learn(train.x[:16], train.y[:16])
        size: dict[str, Any] = {"num_labels": 3, "ignore_mismatched_sizes": True}
        plain = BertForSequenceClassification.from_pretrained(folder, **size).eval()
        attention = plain.bert.encoder.layer[0].attention.self
        theirs = {n.removeprefix("base_model.model."): p for n, p in learner.net.named_parameters() if p.requires_grad}
        low = {n: p.detach().clone() for n, p in theirs.items()}
        inputs = learner._inputs(train.x[:5])
        with torch.no_grad():
            for kind in ("weight", "bias"):
                getattr(plain.classifier, kind).copy_(low[f"classifier.modules_to_save.default.{kind}"])
            for name in ("query", "value"):
                a, b = (low[f"bert.encoder.layer.0.attention.self.{name}.lora_{m}.default.weight"] for m in "AB")
                getattr(attention, name).weight.add_(4 / 8 * b @ a)
            assert np.allclose(learner.scores(train.x[:5]), plain(**inputs).logits.numpy(), atol=1e-5)
        learner.correct(train.x[:5], train.y[:5])
        torch.nn.functional.cross_entropy(plain(**inputs).logits, torch.tensor(train.y[:5])).backward()
        for name in ("query", "value"):
            a, b = (f"bert.encoder.layer.0.attention.self.{name}.lora_{m}.default.weight" for m in "AB")
            slope = getattr(attention, name).weight.grad * 4 / 8
            assert torch.allclose(theirs[a], low[a] - 0.5 * low[b].T @ slope, atol=1e-6)
            assert torch.allclose(theirs[b], low[b] - 0.5 * slope @ low[a].T, atol=1e-6)

    def test_they_run_under_every_protocol(self, texts: Stream, tmp_path: Path) -> None:
        folder, whole = str(tmp_path / "bert"), texts.steps[0]
        tiny_bert(tmp_path / "bert", KNOWN)
        parts = [{name: split.take(slice(t, None, 2)) for name, split in whole.splits.items()} for t in (0, 1)]
        stream = replace(texts, steps=[Step(t, str(t), splits) for t, splits in enumerate(parts)], sha256="halves")
        for protocol in (name for name in PROTOCOLS if PROTOCOLS.entry(name).origin == HOME):
            settings: dict[str, Any] = {
                "near-future": {"batch": 6, "shift": 6}, "ocrr": {"held_out": 1, "every": 20},
                "seq-to-final": {"val_share": 0.2},
            }.get(protocol, {})  # fmt: skip
            short = {} if protocol == "near-future" else {"epochs": 1}  # which has a budget instead
            found = evaluate(stream, protocol, [Lora(model=folder, **short)], settings=settings)
            assert len(found["results"]) == 1, (protocol, found["skipped"])

    def test_it_refuses_other_samples(self, tmp_path: Path) -> None:
        with pytest.raises(IncompatibleStream, match="has no model"):
            Lora().begin(Task(3, ()), rng_for(0))
        with pytest.raises(IncompatibleStream, match="reads texts"):
            Lora(model="a").begin(Task(3, (8,)), rng_for(0))
        with pytest.raises(MissingFile, match="cannot be loaded"):
            Lora(model=str(tmp_path / "none")).begin(Task(3, ()), rng_for(0))
        learner = self.begun(tiny_bert(tmp_path / "bert", KNOWN))
        with pytest.raises(BadConfig, match="Class 7 was never declared"):
            learner.correct(np.array(["a"]), np.array([7]))

    @pytest.mark.parametrize("attack", ["code", "pickle"])
    def test_what_is_in_its_models_folder_is_not_run_and_nobody_is_asked(self, tmp_path: Path, attack: str) -> None:
        folder = tiny_bert(tmp_path / "bert", KNOWN)
        config = json.loads((folder / "config.json").read_text())
        if attack == "code":
            (folder / "evil.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w')\nclass Evil: ...\n")
            config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil"}}
            (folder / "config.json").write_text(json.dumps(config))
        else:
            (folder / "model.safetensors").unlink()
            (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(tmp_path / "mark")))
        with pytest.raises(BadInput, match=r"bert cannot be loaded \(.*code of its own is never run"):
            self.begun(folder)
        assert not (tmp_path / "mark").exists()


class TestLlm:
    def begun(self, chat: Chat, **more: Any) -> Llm:
        learner = Llm(endpoint=chat.url, model="small", **({"workers": 1, "timeout": 0.3} | more))
        learner.begin(Task(3, (), classes=("card", "loan", "rate")), rng_for(0))
        pairs = rows(6)
        learner.learn(np.array([t for t, _ in pairs]), np.array([list(WORDS).index(n) for _, n in pairs]))
        return learner

    def test_it_shows_the_nearest_examples_and_reads_the_class(self) -> None:
        with chat_server() as chat:
            learner = self.begun(chat)
            assert learner.predict(np.array(["my card is lost", "loan please"])).tolist() == [0, 1]
        asked = chat.bodies[0]["messages"][1]["content"]
        assert asked.startswith("Classes: card, loan, rate")
        assert asked.count("Class: ") == 6
        assert asked.endswith("Text: my card is lost\nClass:")
        assert chat.bodies[0]["temperature"] == 0

    def test_a_correction_is_an_example_at_once(self) -> None:
        with chat_server() as chat:
            learner = self.begun(chat)
            learner.learn(np.array(["zebra crossing"]), np.array([2]))
            assert learner.predict(np.array(["zebra crossing"])).tolist() == [2]

    @pytest.mark.parametrize(
        ("moods", "counted"),
        [
            (["nonsense"], {"nonsense": 1, "requests": 2, "retries": 1}),
            (["broken"], {"nonsense": 1, "requests": 2, "retries": 1}),
            (["503"], {"status 503": 1, "requests": 2, "retries": 1}),
            (["slow"], {"timeouts": 1, "requests": 2, "retries": 1}),
            (["error in 200"], {"nonsense": 1, "requests": 2, "retries": 1}),
            (["list"], {"nonsense": 1, "requests": 2, "retries": 1}),
            (["429 bare"], {"status 429": 1, "requests": 2, "retries": 1}),
            (["429 absurd"], {"status 429": 1, "requests": 1, "given up": 1}),
            (["nonsense"] * 3, {"nonsense": 3, "requests": 3, "retries": 2, "given up": 1}),
        ],
    )
    def test_bad_answers_are_repeated_and_counted(self, moods: list[str], counted: dict[str, int]) -> None:
        with chat_server() as chat:
            chat.moods += moods
            learner = self.begun(chat)
            assert learner.predict(np.array(["my card is lost"])).tolist() == [0]
        assert {k: v for k, v in learner.metadata()["requests"].items() if v} == counted

    def test_threads_lose_no_count_and_checkpoints_no_memory(self) -> None:
        with chat_server() as chat:
            learner = pickle.loads(pickle.dumps(self.begun(chat, workers=8, timeout=5.0)))
            texts = np.array([text for text, _ in rows(20)])
            assert learner.predict(texts).tolist() == [list(WORDS).index(name) for _, name in rows(20)]
        assert learner.metadata()["requests"] == {"requests": 60}

    def test_the_key_comes_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MY_KEY", "secret")
        with chat_server() as chat:
            self.begun(chat, key_env="MY_KEY").predict(np.array(["card"]))
        assert chat.keys == ["Bearer secret"]

    def test_a_wrong_key_ends_the_run(self) -> None:
        with chat_server() as chat:
            chat.moods.append("401")
            with pytest.raises(BadInput, match="answered 401"):
                self.begun(chat).predict(np.array(["card"]))

    def test_a_server_that_is_gone_is_counted(self) -> None:
        with chat_server() as chat:
            learner, never = self.begun(chat), self.begun(chat)
            learner.predict(np.array(["my card is lost"]))
        learner = pickle.loads(pickle.dumps(learner))  # without its connections
        assert learner.predict(np.array(["my card is lost"])).tolist() == [0]
        assert learner.metadata()["requests"]["given up"] == 1
        with pytest.raises(Unreachable, match="cannot be reached. Start the server"):
            never.predict(np.array(["my card is lost"]))

    def test_a_held_out_class_is_named_only_after_its_first_correction(self, texts: Stream) -> None:
        with chat_server() as chat:
            name = f"llm(endpoint={chat.url},model=small,workers=1)"
            evaluate(texts, "ocrr", [name], settings={"held_out": 1, "every": 6})
        prompts = [body["messages"][1]["content"] for body in chat.bodies]
        named = [set(prompt.partition("\n")[0].removeprefix("Classes: ").split(", ")) for prompt in prompts]
        (held_out,) = set(texts.classes) - named[0]
        first = next(i for i, classes in enumerate(named) if held_out in classes)
        assert not any(held_out in body["messages"][0]["content"] for body in chat.bodies)
        assert not any(f"Class: {held_out}" in prompt for prompt in prompts[:first])
        assert f"Class: {held_out}" in "".join(prompts[first : first + 1])
        assert named[first:] == [set(texts.classes)] * len(named[first:])

    def test_without_an_endpoint_it_is_skipped(self, texts: Stream) -> None:
        found = evaluate(texts, "ocrr", ["llm"], settings={"held_out": 1})
        assert "Expected a URL such as" in found["skipped"][0]["because"]
