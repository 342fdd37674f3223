"""Label Studio's own SDK on the files of tests/fixtures/label_studio.

It checks what we write, and writes an export [labelstud.io/guide/task_format]:

    python tests/support/label_studio.py

Run it where `pip install label-studio-sdk` was done (2.1.2 made the fixture): the SDK brings half a gigabyte of its own
packages, so that the tests compare with what it wrote. `tasks.json` and `config.xml` are ours, `export.json` is the
SDK's: a project's tasks, annotated by its own generator, through its own converter.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "fixtures" / "label_studio"
PEOPLE = (("bus", "no"), ("none", "yes"))  # what the annotator of each task says


def exported() -> list[dict[str, Any]]:
    """Check tasks by the SDK, annotate them, and return what its converter writes as JSON."""
    from label_studio_sdk.converter import Converter
    from label_studio_sdk.label_interface import LabelInterface

    config = (FOLDER / "config.xml").read_text()
    interface = LabelInterface(config)
    interface.validate()
    project = []
    for number, (task, said) in enumerate(zip(json.loads((FOLDER / "tasks.json").read_text()), PEOPLE, strict=True), 1):
        assert interface.validate_task({"data": task["data"]})
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
    sys.stdout.write("The SDK accepts tasks and annotations; export.json is written.\n")
