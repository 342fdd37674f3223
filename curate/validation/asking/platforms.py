"""Platforms: a batch → the files that a marketplace or annotation tool takes.

A new platform is one function here and one line in `PLATFORMS` (`__init__.py`), or an entry point of another package.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from driftline.curate.core.atomic_io import json_value, write_json, write_text
from driftline.curate.core.errors import BadInput
from driftline.curate.foreign.cells import NOTHING
from driftline.curate.foreign.documents import read_text
from driftline.curate.retrieval.settings import Concept
from driftline.curate.validation.asking.batches import COLUMNS, CREATED, NONE, marketplace_csv, question_html

WAY_OUT = "Export the project of this batch again, in the format JSON."
CLOSED = (
    "Amazon Mechanical Turk closed on 30 September 2026 (mturk.com/pricing, read 7 October 2026). These files are for "
    "compatible services and archives; for paid workers: driftline batch --format prolific.\n"
)


def mturk(
    batch: Mapping[str, Any], addresses: Mapping[str, str], concepts: Sequence[Concept], out: Path
) -> dict[str, int]:
    """MTurk's requester pages: the files of `turkle`, and `README.txt`, which says that the service is closed.

    Compatible services and the archives of laboratories use this format.
    """
    write_text(out / "README.txt", CLOSED)
    return requester_files(batch, addresses, concepts, out)


def requester_files(
    batch: Mapping[str, Any], addresses: Mapping[str, str], concepts: Sequence[Concept], out: Path
) -> dict[str, int]:
    """Turkle, a self-hosted clone of MTurk: a CSV with one line an image, and the HTML template of the question."""
    rows = [(batch["batch"], item, url) for item, url in addresses.items()]
    write_text(out / "batch.csv", marketplace_csv(COLUMNS, rows))
    write_text(out / "template.html", question_html(concepts))
    return {"images": len(addresses), "answers": len(addresses) * batch["workers"]}


def prolific(
    batch: Mapping[str, Any], addresses: Mapping[str, str], concepts: Sequence[Concept], out: Path
) -> dict[str, int]:
    """Prolific's task builder: `dataset.csv`, and the question, `instructions.json`.

    Participants see every column, so there are only two: the image, and the batch and item to which the answers belong.
    """
    rows = [(f"{batch['batch']}:{item}", url) for item, url in addresses.items()]
    write_text(out / "dataset.csv", marketplace_csv(("item", "image_url"), rows))
    options = [{"label": c.option, "value": c.name} for c in concepts] + [{"label": "None of the above", "value": NONE}]
    sensitive = [{"label": "Yes", "value": "yes"}, {"label": "No", "value": "no"}]
    write_json(
        out / "instructions.json",
        [
            {
                "name": "labels",
                "type": "multiple_choice",
                "description": "Select one or more elements in this image; “None of the above” stands alone.",
                "options": options,
                "answer_limit": len(options),
            },
            {
                "name": "sensitive",
                "type": "multiple_choice",
                "description": "Does this image contain sensitive content (pornography, abuse, hate speech, …)?",
                "options": sensitive,
                "answer_limit": 1,
            },
        ],
    )
    return {"images": len(rows), "answers": len(rows) * batch["workers"]}


def label_studio(
    batch: Mapping[str, Any], addresses: Mapping[str, str], concepts: Sequence[Concept], out: Path
) -> dict[str, int]:
    """Label Studio: `tasks.json` for its import, and `config.xml`, the labelling interface."""
    tasks = [{"data": {"image": url, "batch": batch["batch"], "item": item}} for item, url in addresses.items()]
    write_json(out / "tasks.json", tasks)
    write_text(out / "config.xml", _interface(concepts))
    return {"images": len(tasks), "answers": len(tasks) * batch["workers"]}


def _interface(concepts: Sequence[Concept]) -> str:
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


def read_label_studio(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """(number of the task, answer as a line of a results file) of every annotation in a raw JSON export of Label
    Studio ("JSON", not "JSON-MIN"), as its own converter reads it [labelstud.io/guide/task_format].

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


def _author_of(annotation: Mapping[str, Any]) -> str:
    """The name of who gave an annotation, as results files have it."""
    who = annotation.get("completed_by")
    if isinstance(who, dict):
        who = who.get("email") or who.get("id")
    name = str(who).strip().casefold()  # an address has no case
    if name in NOTHING:  # the account was deleted: of two such answers nobody can say that one person gave both
        name = f"annotation {annotation.get('id')}"
    return f"label-studio {name}"


def _line(data: Mapping[str, str], annotation: Mapping[str, Any]) -> dict[str, str]:
    took = annotation.get("lead_time")
    seconds = str(round(took)) if isinstance(took, int | float) and 0 <= took < 1e9 else ""
    return {
        "Input.batch": data["batch"],
        "Input.item": data["item"],
        "WorkerId": _author_of(annotation),
        "AssignmentId": str(annotation.get("id", "")),
        "AssignmentStatus": "Submitted",
        CREATED: str(annotation.get("created_at") or ""),
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
