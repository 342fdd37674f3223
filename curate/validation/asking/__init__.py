"""Candidates → questions: batches, rounds, who judges, the platforms that take them.

A platform is a function (batch, addresses, concepts, out) → number of images and of expected answers, which writes a
batch in the form of the platform into `out`. batch: content of `batch.json`. addresses: item → address of its image, in
the order of the questions. No file may show the expected class of an item or that it is a gold question.
"""

from driftline.curate.core.registry import Registry

PLATFORMS = Registry(
    "platform",
    {
        "mturk": "driftline.curate.validation.asking.platforms:mturk",
        "turkle": "driftline.curate.validation.asking.platforms:requester_files",
        "prolific": "driftline.curate.validation.asking.platforms:prolific",
        "label-studio": "driftline.curate.validation.asking.platforms:label_studio",
    },
    group="platforms",
)
