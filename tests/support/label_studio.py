"""Label Studio: as it asks an ML backend, and its own SDK on the files of tests/fixtures/label_studio.

`LabelStudio` asks in the way of https://labelstud.io/guide/ml_create and of Label Studio's own code
(github.com/HumanSignal/label-studio, label_studio/ml/api_connector.py and models.py), read on 27 November 2026.

The SDK checks what we write, and writes an export [labelstud.io/guide/task_format]:

    python tests/support/label_studio.py

Run it where `pip install label-studio-sdk` was done (2.1.2 made the fixture): the SDK brings half a gigabyte of its own
packages, so that the tests compare with what it wrote. `tasks.json` and `config.xml` are ours, `export.json` is the
SDK's: a project's tasks, annotated by its own generator, through its own converter.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, ClassVar

FOLDER = Path(__file__).parents[1] / "fixtures" / "label_studio"
CONFIG = "<View/>"
PEOPLE = (("bus", "no"), ("none", "yes"))  # what the annotator of each task says


class LabelStudio:
    """A project with an ML backend. backend: an HTTP client whose addresses begin with the backend's."""

    RULES: ClassVar = (
        "health: GET, answered by JSON; then setup",
        "setup: POST project, schema, hostname, access_token; model_version is read",
        "predict: POST tasks, model_version, project, label_config, params; results is read",
        "as many results as tasks, in their order",
        "a prediction has result and score",
    )

    def __init__(self, backend: Any, broken: str = "") -> None:
        assert broken in ("", *self.RULES)
        self.backend, self.broken = backend, broken

    def _keeps(self, number: int) -> bool:
        return self.broken != self.RULES[number]

    def _answer(self, method: str, name: str, body: Any = None) -> Any:
        reply = self.backend.request(method, name, json=body)
        assert reply.status_code == 200
        return reply.json()

    def predictions(self, tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What is stored for some tasks: task, result, score, model_version."""
        project = "83.1796000000"
        assert isinstance(self._answer("GET" if self._keeps(0) else "PUT", "health"), dict)
        asked = {"project": project, "schema": CONFIG, "hostname": "http://studio.test", "access_token": "t"}
        version = self._answer("POST", "setup", asked)["model_version" if self._keeps(1) else "version"]
        params = {"login": None, "password": None, "context": None}
        body = {"tasks" if self._keeps(2) else "annotations": tasks, "model_version": version, "project": project,
                "label_config": CONFIG, "params": params}  # fmt: skip
        results = self._answer("POST", "predict", body)["results"]
        assert len(results) == len(tasks)
        result = "result" if self._keeps(4) else "value"
        pairs = zip(tasks, results if self._keeps(3) else results[::-1], strict=True)
        return [{"task": t["id"], "result": r[result], "score": float(r["score"]), "model_version": version}
                for t, r in pairs]  # fmt: skip


def exported() -> list[dict[str, Any]]:
    """Check tasks and predictions by the SDK, annotate them, and return what its converter writes as JSON."""
    from label_studio_sdk.converter import Converter
    from label_studio_sdk.label_interface import LabelInterface

    config = (FOLDER / "config.xml").read_text()
    interface = LabelInterface(config)
    interface.validate()
    project = []
    for number, (task, said) in enumerate(zip(json.loads((FOLDER / "tasks.json").read_text()), PEOPLE, strict=True), 1):
        assert interface.validate_task({"data": task["data"]})
        for prediction in task["predictions"]:
            assert interface.validate_prediction(prediction, return_errors=True) == []
        regions = interface.create_regions(dict(zip(("labels", "sensitive"), said, strict=True)))
        result = [region._dict() for region in regions]
        annotation = {"id": number, "completed_by": 10, "result": result, "was_cancelled": False, "lead_time": 4.288}
        assert interface.validate_annotation(annotation)
        project.append({"id": number, "project": 83, **task, "annotations": [annotation]})
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "project.json").write_text(json.dumps(project))
        converter = Converter(config, place, download_resources=False)
        converter.convert(str(Path(place) / "project.json"), f"{place}/out", "JSON", is_dir=False)
        return list(json.loads((Path(place) / "out" / "result.json").read_text()))


if __name__ == "__main__":
    (FOLDER / "export.json").write_text(json.dumps(exported(), indent=1) + "\n")
    sys.stdout.write("The SDK accepts tasks, predictions and annotations; export.json is written.\n")
