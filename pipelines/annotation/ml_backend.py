"""Label Studio's ML-backend protocol: each judge of a run answers for the tasks of its batch.

Label Studio asks `/health`, then `/setup`, and `/predict` with tasks [labelstud.io/guide/ml_create]. The answers were
given at the stage ask: nothing that a request names is opened or downloaded, and no request costs money.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp

from driftline.curate.core.atomic_io import json_value
from driftline.curate.core.errors import BadInput
from driftline.curate.validation.asking.platforms.label_studio import prediction
from driftline.pipelines.annotation.batches import open_batch, opinions_of, unknown_judge
from driftline.pipelines.run.stage import Context
from driftline.pipelines.web.local_server import LOOPBACK, guarded
from driftline.pipelines.web.page import local_app

LARGEST = 32 << 20  # bytes of a request: Label Studio sends many tasks at a time, whose images may be inline


def application(context: Context, port: int, host: str = LOOPBACK) -> tuple[ASGIApp, str]:
    """(app, path before the name of a judge, which contains a secret): a backend for each judge of the run.

    host: a name or address, besides loopback, by which Label Studio reaches this machine. Raises MissingFile for a run
    without judges.
    """
    batch = open_batch(context)
    judges = [judge.name for judge in context.config.validation.judges]
    answers: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in judges}
    for item, rows in opinions_of(context, batch).items():
        for row in rows:
            answers.setdefault(row["judge"], {})[item] = prediction(row)
    app = local_app("driftline.pipelines.annotation")

    def of(judge: str) -> dict[str, dict[str, Any]]:
        if judge not in answers:
            raise unknown_judge(judge, judges)
        return answers[judge]

    @app.on("GET", "/{judge}/")
    @app.on("GET", "/{judge}/health")
    def health(judge: str) -> dict[str, Any]:
        return {"status": "UP", "model_class": judge, "answers": len(of(judge))}

    @app.on("POST", "/{judge}/setup")
    def setup(judge: str) -> dict[str, str]:
        of(judge)
        return {"model_version": judge}

    @app.on("POST", "/{judge}/predict")
    async def predict(judge: str, request: Request) -> JSONResponse:
        predictions = of(judge)
        results = []
        for task in tasks_of(await request.body()):
            data = task.get("data")
            own = data if isinstance(data, dict) and data.get("batch") == batch.facts["batch"] else {}
            item = own.get("item")
            nothing = {"model_version": judge, "score": 0.0, "result": []}  # a task of another project
            results.append(predictions.get(item, nothing) if isinstance(item, str) else nothing)
        return JSONResponse({"results": results, "model_version": judge})

    return guarded(app, port, "judges", host=host, largest=LARGEST, programs=True)


def tasks_of(body: bytes) -> list[dict[str, Any]]:
    """The tasks of a request. Raises BadInput for what is no request of Label Studio."""
    try:
        document = json_value(body)
    except (ValueError, RecursionError):
        raise BadInput("The request is not JSON.", "Expected a request of Label Studio.") from None
    tasks = document.get("tasks") if isinstance(document, dict) else None
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise BadInput("The request has no list of tasks.", "Expected a request of Label Studio.")
    return tasks
