"""Label Studio both ways: tasks with predictions out, the JSON of annotated tasks in.

Out: `tasks.json` for its import, and `config.xml`, the labelling interface. In: the raw JSON export ("JSON", not
"JSON-MIN"), as Label Studio's own converter reads it [labelstud.io/guide/task_format].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from driftline.curate.core.atomic_io import json_value, write_json, write_text
from driftline.curate.core.errors import BadInput
from driftline.curate.core.outside.documents import read_text
from driftline.curate.retrieval.settings import Concept
from driftline.curate.validation.asking.batches import NONE

WAY_OUT = "Export the project of this batch again, in the format JSON."


def write(
    batch: Mapping[str, Any], addresses: Mapping[str, str], concepts: Sequence[Concept], out: Path
) -> dict[str, int]:
    """Write `tasks.json` and `config.xml`. The answers of judges (`batch["opinions"]`, if given) are predictions."""
    opinions: Mapping[str, Sequence[Mapping[str, Any]]] = batch.get("opinions") or {}
    tasks = [
        {
            "data": {"image": url, "batch": batch["batch"], "item": item},
            "predictions": [prediction(one) for one in opinions.get(item, ())],
        }
        for item, url in addresses.items()
    ]
    write_json(out / "tasks.json", tasks)
    write_text(out / "config.xml", interface(concepts))
    return {"images": len(tasks), "answers": len(tasks) * batch["workers"]}


def interface(concepts: Sequence[Concept]) -> str:
    """The labelling interface: the same two questions as on the question page."""
    options = [(c.option or c.name, c.name) for c in concepts] + [("None of the above", NONE)]
    choices = "".join(f"<Choice value={quoteattr(text)} alias={quoteattr(name)}/>\n    " for text, name in options)
    return (
        '<View>\n  <Image name="image" value="$image"/>\n'
        '  <Header value="Select every element that you see in this image"/>\n'
        f'  <Choices name="labels" toName="image" choice="multiple" required="true">\n    {choices.rstrip()}\n'
        '  </Choices>\n  <Header value="Does this image contain sensitive content?"/>\n'
        '  <Choices name="sensitive" toName="image" choice="single" required="true">\n'
        '    <Choice value="No" alias="no"/>\n    <Choice value="Yes" alias="yes"/>\n  </Choices>\n</View>\n'
    )


def prediction(opinion: Mapping[str, Any]) -> dict[str, Any]:
    """A judge's row of ANSWERS as a prediction for the labelling interface."""
    answers = {"labels": list(opinion["labels"]), "sensitive": ["yes" if opinion["sensitive"] else "no"]}
    result = [
        {"id": name, "from_name": name, "to_name": "image", "type": "choices", "value": {"choices": choices}}
        for name, choices in answers.items()
    ]
    return {"model_version": opinion["worker"], "result": result}


def read(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """(number of the task, answer as a line of a results file) of every annotation in an export.

    Skipped tasks (`was_cancelled`) give no line. The time is that of the last change. Raises BadInput for what is no
    export, and for another project's: its tasks lack the data of a driftline batch.
    """
    try:
        tasks = json_value(read_text(path, WAY_OUT))
    except (ValueError, RecursionError):
        raise BadInput(f"{path} is not JSON.", "Expected an export of Label Studio.", WAY_OUT) from None
    if not isinstance(tasks, list):
        raise BadInput(f"{path} holds no list.", "Expected the tasks of an export of Label Studio.", WAY_OUT)
    for number, task in enumerate(tasks, 1):
        place = f"{path}, task {number}"
        data = task.get("data") if isinstance(task, dict) else None
        if not isinstance(data, dict) or not all(isinstance(data.get(name), str) for name in ("batch", "item")):
            raise BadInput(
                f"{place} has no data.batch and data.item.", "Expected a task of a driftline batch.", WAY_OUT
            )
        annotations = task.get("annotations")
        if not isinstance(annotations, list):
            raise BadInput(f"{place} has no annotations.", "Expected the export JSON, not JSON-MIN.", WAY_OUT)
        for annotation in annotations:
            if not isinstance(annotation, dict) or not isinstance(annotation.get("result"), list):
                raise BadInput(f"{place}: an annotation has no result.", "Expected a list.", WAY_OUT)
            if not annotation.get("was_cancelled"):
                yield number, _line(data, annotation)


def author_of(annotation: Mapping[str, Any]) -> str:
    """The name of who gave an annotation, as results files have it."""
    who = annotation.get("completed_by")
    if isinstance(who, dict):
        who = who.get("email") or who.get("id")
    if who is None:  # the account was deleted: of two such answers nobody can say that one person gave both
        who = f"annotation {annotation.get('id')}"
    return f"label-studio {who}"


def _line(data: Mapping[str, str], annotation: Mapping[str, Any]) -> dict[str, str]:
    took = annotation.get("lead_time")
    seconds = str(round(took)) if isinstance(took, int | float) and 0 <= took < 1e9 else ""
    return {
        "Input.batch": data["batch"],
        "Input.item": data["item"],
        "WorkerId": author_of(annotation),
        "AssignmentId": str(annotation.get("id", "")),
        "AssignmentStatus": "Submitted",
        "WorkTimeInSeconds": seconds,
        "SubmitTime": str(annotation.get("updated_at") or annotation.get("created_at") or ""),
        "Answer.labels": "|".join(_chosen(annotation["result"], "labels")),
        "Answer.sensitive": "|".join(_chosen(annotation["result"], "sensitive")).lower(),
    }


def _chosen(result: Sequence[Any], name: str) -> list[str]:
    """The choices of one question; nothing where the result has another form, so that the answer does not count."""
    for region in result:
        value = region.get("value") if isinstance(region, dict) and region.get("from_name") == name else None
        choices = value.get("choices") if isinstance(value, dict) else None
        if isinstance(choices, list) and all(isinstance(choice, str) for choice in choices):
            return choices
    return []
