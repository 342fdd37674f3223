"""Candidates → questions: batches, rounds, who judges, the platforms that take them.

A platform is a function (batch, addresses, concepts, out) → number of images and of expected answers, which writes a
batch in the form of the platform into `out`. batch: content of `batch.json`. addresses: item → address of its image, in
the order of the questions. No file may show the expected class of an item or that it is a gold question.
"""

from driftline.curate.core.registry import Registry

FORMS = {"mturk": "mturk", "turkle": "requester_files", "prolific": "prolific", "label-studio": "label_studio"}
PLATFORMS = Registry("platform", __name__, {n: f".platforms:{form}" for n, form in FORMS.items()}, group="platforms")
