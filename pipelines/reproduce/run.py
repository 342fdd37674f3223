"""Compose, evaluate, compare: the items of a paper, one cell after the other; what is finished is not repeated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from driftline.curate.core.atomic_io import fingerprint, read_json, write_json
from driftline.curate.core.errors import BadConfig, DriftlineError, MissingFile, available, did_you_mean
from driftline.curate.core.executor import Executor
from driftline.curate.core.run_log import RunLog
from driftline.pipelines.kinds import kind_of
from driftline.pipelines.reproduce.items import Cell, Item, Need, Paper, Row, judged, means_of, rows_of
from driftline.stream_builder.stream import Stream

SOLVER = 0.01  # of a ratio of distances: what other draws of an optimal transport that stops early give
PAPERS = ("clear", "near-future", "seq-to-final", "ocrr")


def paper_named(name: str) -> Paper:
    """A paper's list. Raises BadConfig for another name."""
    if name not in PAPERS:
        raise BadConfig(f"The paper is {name!r}.", did_you_mean(name, PAPERS), available(name, PAPERS))
    paper: Paper = import_module(f"driftline.pipelines.reproduce.{name.replace('-', '_')}").PAPER
    return paper


def chosen(paper: Paper, only: Sequence[str]) -> list[Item]:
    """The items that --only names; all without it. Raises BadConfig for an unknown one."""
    names = [item.name for item in paper.items]
    for name in only:
        if name not in names:
            raise BadConfig(f"--only is {name!r}.", did_you_mean(name, names), available(name, names))
    return [item for item in paper.items if not only or item.name in only]


def needs_of(cells: Sequence[Cell], paper: Paper) -> list[Need]:
    """Files of --data that cells read."""
    needs = [paper.needs[word] for cell in cells for word in cell.stream if word in paper.needs]
    needs += [value for cell in cells for value in cell.settings.values() if isinstance(value, Need)]
    return list(dict.fromkeys(needs))


def plan(paper: Paper, items: Sequence[Item], data: Path) -> dict[str, Any]:
    """What `--plan --json` prints."""
    return {
        "title": paper.title,
        "items": [
            {
                "item": item.name,
                "title": item.title,
                "needs": [
                    {"path": str(data / need.path), "there": (data / need.path).exists(), "what": need.what,
                     "from": need.source}
                    for need in needs_of(item.cells, paper)
                ],
                "cost": cost(item),
                "evaluations": len(item.cells),
                "because": item.because,
            }
            for item in items
        ],
    }  # fmt: skip


def cost(item: Item) -> str:
    """Core and GPU hours of the whole item, as they were estimated.

    >>> cost(Item("table-7", "Parameters", cells=[Cell((), ())])), cost(Item("figure-2", "A drawing"))
    ('minutes on one core', 'none: no evaluation')
    """
    if not item.cells:
        return "none: no evaluation"
    if not item.core_hours:
        return "minutes on one core"
    gpu = f", or {_hours(item.gpu_hours)} of one GPU (H200)" if item.gpu_hours else ""
    return f"about {_hours(item.core_hours)} of one core{gpu}, estimated"


def _hours(hours: float) -> str:
    """
    >>> _hours(5440), _hours(0.5)
    ('5,440 hours', '30 minutes')
    """
    return f"{hours:,.0f} hours" if hours >= 2 else f"{60 * hours:.0f} minutes"


@dataclass
class Work:
    """One call."""

    paper: Paper
    data: Path
    out: Path
    quick: bool
    device: str
    executor: Executor
    log: RunLog
    seeds: Sequence[int] = ()
    """in place of those of the cells; (): those"""
    refused: DriftlineError | None = None
    """why a stream could not be made"""

    def items(self, items: Sequence[Item]) -> dict[str, Any]:
        """The rows of all items, and what each lacks. Raises MissingFile, or what a stream's maker raised, if nothing
        can be done."""
        there = {item.name: self._there(item) for item in items}
        if not any(cells for cells, _ in there.values()):
            lacking = dict.fromkeys(text for _, missing in there.values() for text in missing)
            raise MissingFile(
                f"{self.data} has nothing for {', '.join(item.name for item in items)}: {'; '.join(lacking)}.",
                "", "See what each needs with --plan.",
            )  # fmt: skip
        done, rows = [], []
        for item in items:
            cells, missing = there[item.name]
            self.log.say(f"{item.name}: {item.title} ({len(cells)} evaluations; whole: {cost(item)})")
            found, skipped, files = self._item(item, cells)
            rows += found
            left_out = self.quick and item.cells and not cells and not missing
            notes = ["--quick leaves it out." if left_out else "", item.because]
            lacks = [*filter(None, notes), *(f"Missing: {text}." for text in missing), *skipped]
            done.append({"item": item.name, "title": item.title, "rows": len(found), "files": files, "because": lacks})
        if self.refused and not rows:
            raise self.refused
        reduced = self.paper.reduced if self.quick else ""
        return {"title": self.paper.title, "reduced": reduced, "items": done, "rows": [row.plain() for row in rows]}

    def _there(self, item: Item) -> tuple[list[Cell], list[str]]:
        """The cells whose files are there, each once, and which files are missing."""
        cells: dict[str, Cell] = {}
        missing: dict[str, None] = {}
        for cell in item.cells:
            if self.quick and cell.quick is None:
                continue
            one = _reduced(cell) if self.quick else cell
            lost = [need for need in needs_of([one], self.paper) if not (self.data / need.path).exists()]
            missing |= {f"{self.data / need.path} ({need.what}; {need.source})": None for need in lost}
            if not lost:
                settings = {k: str(self.data / v.path) if isinstance(v, Need) else v for k, v in one.settings.items()}
                one = replace(one, seeds=self.seeds or one.seeds, settings=settings)
                key = [one.stream, one.protocol, one.preset, list(one.learners), settings]
                cells.setdefault(fingerprint(key), one)
        return list(cells.values()), list(missing)

    def _item(self, item: Item, cells: Sequence[Cell]) -> tuple[list[Row], list[str], list[str]]:
        """Rows, sentences about what was skipped, and plots."""
        rows: list[Row] = []
        groups: dict[str, list[Row]] = {}
        skipped: dict[str, None] = {}
        files: list[str] = []
        for cell in cells:
            try:  # data may be too few for one stream, and enough for the others
                if cell.stream:
                    self._stream(cell)
            except DriftlineError as error:
                skipped[f"{cell.row} was skipped: {error}"] = None
                self.refused = error
                continue
            if item.kind == "parameters":
                rows += _parameters(item, cell)
            elif item.kind == "scale":
                rows += self._scale(item, cell)
            elif item.kind == "distances":
                rows += _distances(item, cell, self._stream(cell)[1])
            else:
                document, folder = self._evaluated(item, cell)
                skipped |= {
                    f"{cell.row}: {s['learner']} was skipped: {s['because']}": None for s in document["skipped"]
                }
                found = rows_of(item, cell, document, self.paper.best_of)
                groups.setdefault(cell.group or cell.row, []).extend(found)
                rows += found if item.kind == "scores" else []
                try:
                    files += self._plots(item, cell, folder, len(cells))
                except DriftlineError as error:  # no oracle, if the dataset is too small for one
                    skipped[f"{cell.row}: no plot: {error}"] = None
        if item.kind == "means":
            rows = means_of(item.name, groups, _counts)
        return judged(rows, item.digits), list(skipped), files

    def _stream(self, cell: Cell) -> tuple[Path, Stream]:
        """The cell's stream, made once. Raises what its maker raises."""
        from driftline.pipelines.reproduce.streams import MAKERS

        name = "-".join(word.replace(":", "") for word in cell.stream)
        folder = self.out / ("quick-streams" if self.quick else "streams") / name
        if kind_of(folder) == "stream":
            stream = Stream.load(folder)
            stream.verify_once(folder)
            return folder, stream
        self.log.say(f"  composing {name}")
        maker, *words = cell.stream
        return folder, MAKERS[maker](self.data, self.quick, *words).save(folder)

    def _evaluated(self, item: Item, cell: Cell) -> tuple[dict[str, Any], Path]:
        """The document of an evaluation, and the folder of its runs. Weights of fits are deleted when a table's cell is
        done, unless plots may need them."""
        from driftline.eval.run import evaluate, plan
        from driftline.eval.settings import spec_of

        folder, stream = self._stream(cell)
        drawn = item.kind == "figure" and not self.quick
        network = str(cell.settings.get("network", cell.protocol))
        sweep = "adjacents" in cell.settings
        place = f"{item.name}-{network}" if drawn or sweep else network
        runs = self.out / ("quick-runs" if self.quick else "runs") / place
        bases = {spec.name.partition("(")[0]: spec for spec in map(spec_of, cell.learners)}
        settings = {f"{name}.device": self.device for name, spec in bases.items() if "device" in spec.settings}
        settings |= dict(cell.settings)
        given: Any = {"protocol": cell.protocol, "learners": list(cell.learners), "seeds": list(cell.seeds)}
        given |= {"settings": settings, "out": runs, "preset": cell.preset}
        work = plan(stream, **given)
        with self.log.progress(f"{item.name} {cell.row}", work.runs - work.finished, "runs") as tick:
            document = evaluate(stream, **given, progress=tick, stream_folder=folder, executor=self.executor)
        if cell.protocol == "seq-to-final" and not drawn and not self.quick:
            from driftline.eval.finetuning.search import Fits

            Fits(runs / "fits").thin()
        return document, runs

    def _scale(self, item: Item, cell: Cell) -> list[Row]:
        """What each search of so many entries finds and costs; measured once."""
        from driftline.eval.protocols.ocrr.scale_study import ASKED, Search, scale_study

        rows, entries, searches = [], cell.settings["entries"], cast(Sequence[Search], cell.learners)
        for search in searches:
            place = self.out / "scale-study" / f"{entries}-{search}.json"
            if not place.is_file():
                self.log.say(f"  {search} of {entries:,} entries")
                write_json(place, scale_study(entries, search))
            for score in ("recall", "accuracy", "predict_us", "correct_us"):
                value = read_json(place)[score]
                rows.append(Row(item.name, cell.row, search, score, value, value, value, None, 1, ASKED))
        return rows

    def _plots(self, item: Item, cell: Cell, runs: Path, cells: int) -> list[str]:
        """Files of an item's plots of networks."""
        files = []
        for kind in item.plots:
            from driftline.eval.plotting.finetuning import draw

            network = f"-{cell.row}" if cells > 1 else ""
            place = self.out / "figures" / f"{item.name}{network.replace(', ', '-')}"
            stream = None if kind == "adjacent" else self._stream(cell)[1]
            files += [str(path.relative_to(self.out)) for path in draw(kind, runs, stream, place, cell.learners)]
        return files


def _reduced(cell: Cell) -> Cell:
    """As --quick runs it."""
    settings = dict(cell.quick or {})
    preset = settings.pop("preset", cell.preset)
    usual, network = cell.settings.get("network"), settings.get("network")
    lacks = cell.lacks if usual == network else f"{network} in place of {usual}"
    return replace(cell, seeds=cell.seeds[:1], preset=preset, settings=settings, lacks=lacks)


def _counts(row: Row) -> bool:
    """Whether a mean over networks includes a row."""
    from driftline.eval.protocols.seq_to_final.published import counts_in_mean

    return counts_in_mean(row.row.rpartition(", ")[2], row.learner)


def _parameters(item: Item, cell: Cell) -> list[Row]:
    from driftline.curate.core.seeding import rng_for
    from driftline.eval.nets import build
    from driftline.eval.nets.chain import counted

    rows = []
    for name in cell.learners:
        millions = counted(build(name, 10, (32, 32, 3), rng_for(0))) / 1e6
        paper = cell.printed[name]["parameters"]
        rows.append(Row(item.name, cell.row, name, "parameters", millions, millions, millions, paper, 1, 0))
    return rows


def _distances(item: Item, cell: Cell, stream: Stream) -> list[Row]:
    from driftline.stream_builder.measures.shift_distance import measure

    ours: Mapping[str, Sequence[float]] = measure(stream)
    rows, n = [], len(stream.steps[-1]["test"])
    for kind in ("covariate", "conditional"):
        for t, distance in enumerate(ours[kind]):
            paper = cell.printed[kind].get(f"step {t}")
            low, high = distance - SOLVER, distance + SOLVER
            rows.append(Row(item.name, f"{cell.row}, {kind}", f"step {t}", kind, distance, low, high, paper, 1, n))
    return rows
