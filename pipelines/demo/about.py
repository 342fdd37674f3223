"""What the demo's report says of the demo."""

from __future__ import annotations

from driftline.pipelines.demo.draw import CHANGES, CONCEPTS, HALFWAY
from driftline.pipelines.demo.world import END, START

WORKER_ERROR = 0.05
NOTICE = (
    "Demonstration: the photos are rendered by a program and the workers are simulated "
    f"(each answer is wrong with probability {WORKER_ERROR:.0%}). "
    "The pipeline, the download, the model and the evaluation are the real ones."
)
PROMPTS_ALONE = (
    "Row 0 of a benchmark: accuracy in percent on each bucket's photos when they are compared with the prompts, in the "
    "vectors of the CLIP model that found them. zero-shot learns nothing, zero-shot-calibrated how often each "
    "class is answered, tip-adapter keeps 16 photos of each class. No prompt describes the class background, which "
    "zero-shot never answers. The model has seen photos of all years."
)


def about(seconds: float) -> str:
    """HTML: what is not real, which features are evaluated, and what the world draws differently each year.

    seconds: time of all steps.
    """
    rows = []
    for name, draw in CONCEPTS.items():
        year = (START + (HALFWAY - CHANGES[name]) * (END - START)).year
        old, _, new = (draw.__doc__ or "").rstrip(".").partition(" → ")
        rows.append(f"<tr><td>{name}</td><td>{old}</td><td>{new}</td><td>{year}</td></tr>")
    return (
        f"<p>{NOTICE}</p><p>Why accuracy falls: the learners see each photo through a small network that was trained "
        "on photos of 2004 only; the things and the cameras change after that. The CLIP model that found the "
        "candidates serves the prompts alone. It has seen photos of all years, and it finds the photos that it "
        "recognises: on its features the models would hardly age.</p>"
        "<p>What the world draws differently: shapes, proportions and colours change a little every year. The old form "
        "gives way to the new one around the year in the table, earlier or later in single photos because things are "
        "up to two years older or newer than usual. Cameras lose noise, blur and their warm cast, and gain contrast. "
        "The scenes of the class background stay the same.</p>"
        "<div class='scroll' tabindex='0'><table class='plain'><thead><tr><th>class</th><th>old form</th>"
        f"<th>new form</th><th>around</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        f"<p>All steps took {seconds:.0f} s.</p>"
    )
