"""The command `driftline`. Heavy imports happen inside the commands: `driftline --help` must answer at once."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from curate.core.errors import BadConfig, DriftlineError, UnknownName
from curate.core.executor import Executor
from curate.core.run_log import RunLog
from pipelines import VERSION
from pipelines.cli.common import Json, Run, Sets, command, context_of
from pipelines.cli.eval import eval_app
from pipelines.cli.figure import figure_app
from pipelines.cli.ledger import ledger_app
from pipelines.cli.pretrain import pretrain_app
from pipelines.cli.stream import stream_app
from pipelines.cli.submission import submit_app

app = typer.Typer(
    name="driftline",
    help="Benchmarks that ask how a model ages: build temporal datasets, compose streams, evaluate.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

DEBUG = False


def version(value: bool) -> None:
    """Print the version and leave."""
    if value:
        print(f"driftline {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    _: Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Benchmarks that ask how a model ages: build temporal datasets, compose streams, evaluate."""
    global DEBUG
    DEBUG = debug


@command(app, "demo", "driftline demo --out demo")
def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for everything.")] = Path("demo"),
    quick: Annotated[bool, typer.Option("--quick", help="A smaller world: about a minute.")] = False,
    as_json: Json = False,
) -> None:
    """Run the whole journey on the built-in photo world, offline: photos, build, stream, evaluation, report."""
    from pipelines.demo.journey import QUICK, Scale
    from pipelines.demo.journey import demo as journey

    result = journey(out, QUICK if quick else Scale(), RunLog(out / "log.jsonl", as_json))
    print(json.dumps(result) if as_json else f"report: {result['report']}")


@command(app, "init", "driftline init photos2024 --preset folder")
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the run; made if it is not there.")],
    preset: Annotated[str, typer.Option("--preset", help="mini, folder, clear10 or clear100.")],
    sets: Sets = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a driftline.yaml that is there.")] = False,
) -> None:
    """Write DIR/driftline.yaml: every setting, with a comment."""
    from curate.core.atomic_io import write_text
    from pipelines.config import presets
    from pipelines.config.loader import apply, load

    path = directory / "driftline.yaml"
    if path.exists() and not force:
        raise BadConfig(f"{path} is there already.", "", "Edit it, or replace it with --force.")
    values = presets.values(preset)
    for change in sets or ():
        apply(values, change)
    write_text(path, presets.full_text(values, f"preset {preset}: {presets.summary(preset)}"))
    load(path)
    print(f"wrote {path}. Set collection.path, then: driftline run {directory}")


@command(app, "run", "driftline run photos2024 --until retrieve")
def run(
    directory: Run,
    until: Annotated[str | None, typer.Option("--until", metavar="STAGE", help="Stop after this stage.")] = None,
    start: Annotated[
        str | None, typer.Option("--from", metavar="STAGE", help="Do this stage and all after it again.")
    ] = None,
    sets: Sets = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, max=256, help="Processes at a time (default: one a core).")
    ] = None,
    engine: Annotated[
        str,
        typer.Option("--engine", help="local, or ray (the cluster that RAY_ADDRESS names, else this machine)."),
    ] = "local",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and why; change nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run all stages that are not done: ingest, filter, fetch, bucket, embed, retrieve, ask, tally, publish.

    A run that was stopped, killed or waits for answers goes on with the same command.
    """
    from dataclasses import asdict

    from pipelines import runner

    if engine not in ("local", "ray"):
        raise BadConfig(f"--engine is {engine!r}.", "Expected local or ray.")
    executor = Executor("ray" if engine == "ray" else "local", workers or len(os.sched_getaffinity(0)))
    context = context_of(directory, sets, as_json, executor)
    if dry_run:
        plans = [asdict(p) for p in runner.plan(context, start, until)]
        print(
            json.dumps({"plan": plans})
            if as_json
            else "\n".join(f"{p['stage']:<10}{p['action']:<8}{p['because']}" for p in plans)
        )
        return
    entries = runner.run(context, start, until)
    print(runner.status_json(entries) if as_json else runner.table(entries))


@command(app, "status", "driftline status photos2024 --json")
def status(directory: Run, sets: Sets = None, as_json: Json = False) -> None:
    """Show each stage: state, records read and kept, drops by reason, seconds."""
    from pipelines import runner

    entries = runner.status(context_of(directory, sets, True))
    print(runner.status_json(entries) if as_json else runner.table(entries))


@command(app, "trace", "driftline trace photos2024 6985418911")
def trace(
    directory: Run,
    id_: Annotated[str, typer.Argument(metavar="ID", help="A photo's id.")],
    as_json: Json = False,
) -> None:
    """Tell one photo's whole fate: where it came in, where it left and why, bucket, scores, votes."""
    from pipelines.reporting.trace import trace as follow

    found = follow(directory, id_)
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
        return
    for event in found["events"]:
        facts = {k: v for k, v in event.items() if k not in ("stage", "outcome")}
        print(f"{event['stage']:<10}{event['outcome']}")
        for name, value in facts.items():
            print(f"{'':<12}{name}: {value}")
    print(found["ended"])


@command(app, "explore", "driftline explore photos2024 --port 8765")
def explore(
    directory: Run,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on loopback; 0: any free one.")] = 8765,
    prompts: Annotated[
        list[str] | None,
        typer.Option("--prompt", help="Without a browser: write a contact sheet of this prompt; may be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for contact sheets and candidates.csv.")] = None,
    concept: Annotated[str, typer.Option("--concept", help="The concept that the prompts are for.")] = "",
    k: Annotated[int, typer.Option("--pictures", min=1, max=200, help="Pictures of a bucket on a sheet.")] = 12,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Open a local page: try prompts, see the retrieved images per bucket, mark, compare, save.

    With --prompt and --out it writes contact sheets (PNG) and a CSV instead.
    """
    executor = Executor("local", len(os.sched_getaffinity(0)))
    context = context_of(directory, sets, as_json, executor)
    if (prompts is None) != (out is None):
        raise BadConfig("--prompt and --out belong together.", "Expected both for sheets, or neither for the page.")
    if prompts is not None and out is not None:
        from pipelines.prompt_explorer.contact_sheets import sheets
        from pipelines.prompt_explorer.explorer import Explorer

        made = sheets(Explorer(context), [p.replace("\\n", "\n") for p in prompts], concept, k, out)
        print(json.dumps({"sheets": made}) if as_json else "\n".join(f"{m['picture']}  {m['prompt']}" for m in made))
        return
    from pipelines.prompt_explorer.server import application
    from pipelines.web.local_server import serve

    serve(lambda taken: (application(context, taken), "/"), port, lambda line: print(line, flush=True))


@command(app, "annotate", "driftline annotate photos2024 --port 8766")
def annotate(
    directory: Run,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on loopback; 0: any free one.")] = 8766,
    export: Annotated[
        bool, typer.Option("--export", help="Serve nothing: write the answers so far into DIR/answers, and leave.")
    ] = False,
    host: Annotated[
        str, typer.Option("--host", help="Answer under this name or address of the machine, too: others can reach it.")
    ] = "127.0.0.1",
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Open a local page for validation: the question that workers on a marketplace see, keyboard first.

    Several people answer under their own names; driftline run goes on with their answers.
    """
    from pipelines.annotation.server import application, desk_of, results_of
    from pipelines.web.local_server import serve

    context = context_of(directory, sets, True)
    if export:
        path = results_of(context)
        n = desk_of(context).export(path)
        print(json.dumps({"answers": n, "file": str(path)}) if as_json else f"{n:,} answers in {path}")
        return
    serve(lambda taken: application(context, taken, host=host), port, lambda line: print(line, flush=True), host)


@command(app, "batch", "driftline batch photos2024 --format turkle --out for-turkle")
def batch(
    directory: Run,
    formats: Annotated[str, typer.Option("--format", help="mturk, turkle, prolific; several with commas.")],
    out: Annotated[Path, typer.Option("--out", help="Folder; each format gets one inside.")],
    images: Annotated[
        str | None,
        typer.Option("--images", help="Where workers find them: an address, s3://bucket/prefix (signed), or inline."),
    ] = None,
    hours: Annotated[float, typer.Option("--hours", help="s3: how long signed addresses live.")] = 72.0,
    profile: Annotated[str | None, typer.Option("--profile", help="s3: AWS profile.")] = None,
    endpoint: Annotated[str | None, typer.Option("--endpoint", help="s3: another server that speaks it.")] = None,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Write the batch that is asked now in the form that a marketplace, or your own Turkle, takes."""
    from curate.core.s3 import S3Rules
    from pipelines.annotation.batches import hand_out

    names = [n.strip() for n in formats.split(",") if n.strip()]
    rules = S3Rules(profile, endpoint=endpoint)
    counts = hand_out(context_of(directory, sets, True), names, out, images, hours, rules)
    if as_json:
        print(json.dumps({"batches": counts}))
    else:
        for name, count in counts.items():
            print(f"{name}: {', '.join(f'{v:,} {k}' for k, v in count.items())} in {out / name}")


@command(app, "mturk", "driftline mturk estimate photos2024")
def mturk(
    action: Annotated[str, typer.Argument(metavar="ACTION", help="estimate, publish, status, collect or approve.")],
    directory: Run,
    production: Annotated[bool, typer.Option("--production", help="Ask real people, for money.")] = False,
    max_spend: Annotated[
        float | None, typer.Option("--max-spend", metavar="USD", help="Publish nothing above.")
    ] = None,
    endpoint: Annotated[str | None, typer.Option("--endpoint", help="Another service that speaks the API.")] = None,
    profile: Annotated[str | None, typer.Option("--profile", help="AWS profile.")] = None,
    reject: Annotated[
        Path | None, typer.Option("--reject", help="approve: CSV with AssignmentId and Reject (the reason).")
    ] = None,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Publish the batch through Mechanical Turk's API, collect answers, pay: in the sandbox unless --production.

    A crash never pays twice; answers go to DIR/answers, and driftline run goes on with them.
    """
    from pipelines.annotation.batches import ACTIONS, act

    if action not in ACTIONS:
        raise BadConfig(f"The action is {action!r}.", f"Expected one of {', '.join(ACTIONS)}.")
    context = context_of(directory, sets, as_json)
    told = act(context, action, production, max_spend, endpoint, profile, reject)
    print(json.dumps(told) if as_json else "\n".join(f"{name}: {value}" for name, value in told.items()))


@command(app, "audit", "driftline audit photos2024 --out audit")
def audit(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A release, the run that published it, or a stream.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder for audit.html and audit.json.")] = None,
    against: Annotated[Path | None, typer.Option("--against", help="Another release: what do both hold?")] = None,
    bits: Annotated[int, typer.Option("--bits", min=0, max=16, help="Hash bits that near copies may differ in.")] = 4,
    as_json: Json = False,
) -> None:
    """Look a release or a stream over: balance, near copies, uploader leaks, label noise, drift, suggested shift."""
    from curate.core.atomic_io import write_json, write_text
    from pipelines.reporting.audit import audit as look
    from pipelines.reporting.audit import lines, page

    found = look(path, against, bits)
    if out is not None:
        write_json(out / "audit.json", found)
        write_text(out / "audit.html", page(found))
    print(json.dumps(found) if as_json else "\n".join(lines(found)))


@command(app, "release", "driftline release photos2024 --format webdataset,clear --out exports")
def release(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run folder, or a release folder.")],
    formats: Annotated[
        str, typer.Option("--format", help="webdataset, huggingface, clear, imagefolder, urls; several with commas.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder; each format gets one inside.")],
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail while the card lacks a part that only a person can write.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Export a release in the layouts that the ecosystem loads; checksums are verified first."""
    from curate.export import EXPORTS
    from curate.release import Release
    from curate.release.card_sections import unwritten

    names = [n.strip() for n in formats.split(",") if n.strip()]
    exporters = {name: EXPORTS[name] for name in names}
    opened = Release.open(directory)
    opened.verify()
    if strict and (lacking := unwritten(opened.facts["provenance"]["judgement"])):
        raise BadConfig(
            f"The card of {opened.name} lacks the parts {', '.join(lacking)}.",
            "Expected each as a paragraph that begins with its name in bold.",
            "Write them into the file that release.judgement names, and publish again.",
        )
    counts = {name: export(opened, out / name) for name, export in exporters.items()}
    if as_json:
        print(json.dumps({"release": opened.name, "exports": counts}))
    else:
        for name, count in counts.items():
            print(f"{name}: {', '.join(f'{v:,} {k}' for k, v in count.items())} in {out / name}")


KINDS = ("sources", "shifts", "protocols", "learners", "exports", "venues", "presets", "networks", "encoders")


@command(app, "list", "driftline list learners")
def list_(what: Annotated[str, typer.Argument(metavar="|".join(KINDS))], as_json: Json = False) -> None:
    """List what there is, one line each."""
    if what not in KINDS:
        raise UnknownName(f"There is no list {what!r}.", f"Known: {', '.join(KINDS)}.")
    entries = _entries(what)
    if as_json:
        print(json.dumps([{"name": n, "summary": s} for n, s in entries.items()]))
    else:
        for name, summary in entries.items():
            print(f"{name:<18}{summary}")


def _entries(what: str) -> dict[str, str]:
    if what == "presets":
        from eval.experiment.presets import PRESETS, settings_of
        from pipelines.config import presets

        found = {name: presets.summary(name) for name in presets.names()}
        return found | {name: f"eval --preset: {settings_of(name)}" for name in PRESETS}
    if what == "sources":
        from curate.sources import SOURCES as REGISTRY
    elif what == "shifts":
        from stream_builder.shifts import SHIFTS as REGISTRY
    elif what == "protocols":
        from eval.protocol import PROTOCOLS as REGISTRY
    elif what == "learners":
        from eval.learners import LEARNERS as REGISTRY
    elif what == "venues":
        from curate.validation.platforms import VENUES as REGISTRY
    elif what == "networks":
        from eval.nets import NETS as REGISTRY
    elif what == "encoders":
        from curate.encoders import ENCODERS as REGISTRY
    else:
        from curate.export import EXPORTS as REGISTRY
    return {name: REGISTRY.summary(name) for name in REGISTRY}


app.add_typer(eval_app)  # without a name: its commands are ours
app.add_typer(submit_app)
app.add_typer(pretrain_app)
app.add_typer(stream_app, name="stream")
app.add_typer(ledger_app, name="ledger")
app.add_typer(figure_app, name="figure")


def main() -> None:
    """Entry point: exit code 0 on success, 1 on a failed run, 2 on bad usage; errors are one clear paragraph."""
    try:
        app()
    except (BadConfig, UnknownName) as error:
        _fail(error, 2)
    except DriftlineError as error:
        _fail(error, 1)
    except KeyboardInterrupt:
        print("stopped; the same command goes on where it stopped", file=sys.stderr)
        sys.exit(130)
    except OSError as error:
        _fail(error, 1)


def _fail(error: Exception, code: int) -> None:
    if DEBUG:
        raise error
    print(f"driftline: {error}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
