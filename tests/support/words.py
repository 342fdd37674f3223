"""Words of our own that users should not meet, the standard term of each, and the texts where users could meet them."""

import ast
import re
import runpy
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("curate", "stream_builder", "eval", "pipelines", "driftline")
PRIVATE = {  # pattern → the term of the field
    r"\b(eval|stored|stale|shipped|submitter's own) rows\b|\brows of (a run|runs|results|driftline)\b": "results",
    r"\b[Oo]utcomes?\b": "per-sample predictions",
    r"\b(same|last|other|later|own|of|as|no|their|are) tests\b(?! (on|every|that|of))": "test samples, test periods",
    r"\b[Ff]resh (models?|ones?)\b|\bwhen fresh\b": "newly trained",
    r"\b[Nn]ear[- ]cop(y|ies)\b": "near-duplicate",
    r"\b(on|in) (one|both|the same|which|another|each|either) sides?\b|\b(their|the other|other) sides?\b": "split",
    r"\bshift S\b": "lookahead S",
    r"\b[Pp]ictures?\b": "image, photo",
    r"\b[Dd]ata sets?\b": "dataset",
    r"\bper cents?\b": "%",
    r"\b[Vv]erdicts?\b": "label",
    r"\b[Mm]isses\b|\bphotos that were missed\b": "failed downloads",
    r"\btold apart\b": "differ measurably",
    r"\b[Mm]arketplaces?\b": "crowdsourcing platform",
    r"\bpoints? a (year|month|week|step|\{|$)|\bpoints a *$|\b[Ff]all a year\b": "points per year",
    r"\braced\b": "successive halving",
    r"\bphoto world\b": "rendered photos",
    r"\b(image|dead|private|own|such|right|its|their|no|URL) address(es)?\b": "URL",
    r"\b[Pp]rimary scores?\b": "ranking score",
    r"\b[Cc]losed forms\b": "closed-form classifiers",
    r"\b[Rr]efuses? (half|to|streams?|the)\b": "raises an error",
    r"\b(own|random|independent|published|all) draws?\b|\bdraws of\b": "random samples, splits, permutations",
    r"\bthe prior\b|\*\*prior\*\*": "unlabelled past",
    r"\b(is|are|was not) drawn\b|\bsettle\b|\bstrong row\b": "random, chosen, decide, result",
    r"\banew\b|\bwhoever\b|\bwhatever\b|\bstands? beside\b": "a plain word",
    r"\b(seen\.yaml|outcomes\.parquet|addresses\.parquet)\b": "training_data.yaml, predictions.parquet, urls.parquet",
}
NO_PROSE = re.compile(r"\b(SELECT|FROM|TABLE|INTO)\b|\w\[|\|\w+\||^a \w+ of \{\}$")  # SQL, types, patterns, prompts


def is_generated(page: Path) -> bool:
    """Whether docs/conf.py writes it, or includes a file of the repository there."""
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    return page.relative_to(ROOT).as_posix() in ignored


def pages() -> Iterator[tuple[str, str]]:
    """The lines of the manual without its code: what is written, and what docs/conf.py generates."""
    found = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
    found += [p for p in sorted((ROOT / "docs").rglob("*.md")) if not is_generated(p)]
    texts = {p.relative_to(ROOT).as_posix(): p.read_text(encoding="utf-8") for p in found if p.name != "lab_book.md"}
    made = runpy.run_path(str(ROOT / "docs" / "conf.py"))
    texts |= {"commands": made["commands"]().replace("```text", "").replace("```", "")}
    for file in ("learner_page", "parts_page", "reasons_page", "run_file"):
        texts[file] = runpy.run_path(str(ROOT / "docs" / f"{file}.py"))["page"]()
    for name, text in texts.items():
        prose = re.sub(r"^```.*?^```", lambda m: "\n" * m[0].count("\n"), text, flags=re.S | re.M)
        prose = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`\n]*`", "`…`", prose))
        yield from ((f"{name}:{n}", line) for n, line in enumerate(prose.splitlines(), 1))


def strings() -> Iterator[tuple[str, str]]:
    """Every text of several words in the source that is no docstring: messages, help, captions, notes."""
    for path in (p for top in PACKAGES for p in sorted((ROOT / top).rglob("*.py")) if p.resolve() == p):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        bodies = [node.body for node in ast.walk(tree) if isinstance(getattr(node, "body", None), list)]
        docs = {id(s.value) for body in bodies for s in body if isinstance(s, ast.Expr)}
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if " " in text.strip() and id(node) not in docs and not NO_PROSE.search(text):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", text


def templates() -> Iterator[tuple[str, str]]:
    """The lines of the pages' templates without code."""
    for path in (p for top in PACKAGES for p in sorted((ROOT / top).rglob("*.j2")) if p.resolve() == p):
        text = re.sub(r"\{[{%].*?[%}]\}|<script.*?</script>", "…", path.read_text(encoding="utf-8"), flags=re.S)
        text = re.sub(r"<(?![^>]*aria-label)[^>]*>", " ", text)
        yield from ((f"{path.relative_to(ROOT)}:{n}", line) for n, line in enumerate(text.splitlines(), 1))


def names() -> Iterator[tuple[str, str]]:
    """The public names of Python as words."""
    for face in ("driftline", "driftline.ext"):
        for name in import_module(face).__all__:
            yield f"{face}.{name}", re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name).lower()


def private_words() -> list[str]:
    """Place, word and standard term of each private word."""
    return [
        f"{place}: {found[0]!r} → {term}: {text.strip()[:110]}"
        for texts in (pages, strings, templates, names)
        for place, text in texts()
        for pattern, term in PRIVATE.items()
        if (found := re.search(pattern, text))
    ]
