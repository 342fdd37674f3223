"""What a stream shows in a notebook: steps, sizes and images, escaped and fast."""

import base64
import io
import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.builders.release import from_release
from driftline.stream_builder.stream import Split, Step, Stream


def images(steps: int = 3, n: int = 40) -> Stream:
    rng = rng_for(0, "notebook")
    made = []
    for t in range(steps):
        y = np.arange(n) % 2
        x = (rng.integers(0, 60, (n, 12, 12, 3)) + 100 * y[:, None, None, None] + 20 * t).astype(np.uint8)
        split = Split(x, y, np.arange(n).astype(np.str_))
        made.append(Step(t, f"<step {t}>", {"train": split, "test": split}))
    return Stream("<b>images</b>", made, ["<cat>", "dog & co"])


def test_it_has_a_row_per_step_and_escapes_names() -> None:
    html = images()._repr_html_()
    assert html.count("<tr>") == 4
    for name in ("&lt;step 2&gt;", "&lt;b&gt;images", "&lt;cat&gt;", "dog &amp; co"):
        assert name in html
    for unsafe in ("<step", "<b>", "<cat>"):
        assert unsafe not in html


def test_a_row_has_an_image_of_each_class() -> None:
    thumbnails = re.findall(r'data:image/png;base64,([^"]+)', images()._repr_html_())
    assert len(thumbnails) == 3 * 2
    brightness = []
    for data in thumbnails[:2]:
        with Image.open(io.BytesIO(base64.b64decode(data))) as image:
            brightness.append(np.asarray(image).mean())
    assert brightness[1] > brightness[0] + 50, "in order of labels"


def test_without_test_data_or_images_there_are_sizes(stream: Stream) -> None:
    train = [replace(step, splits={"train": step["train"]}) for step in stream.steps]
    html = replace(stream, steps=train)._repr_html_()
    assert "<img" not in html
    assert f"<td>{len(train[0]['train'])}</td>" in html


def test_a_stream_of_lazy_images_shows_itself_in_two_seconds(journey: Path) -> None:
    made = from_release(journey, "images:32")
    begun = time.process_time()
    assert made._repr_html_().count("<img") >= len(made.steps)
    assert time.process_time() - begun < 2


def test_a_long_stream_says_how_many_steps_are_left_out() -> None:
    assert "and 10 more steps" in images(40, 4)._repr_html_()


def test_a_stream_with_times_shows_the_days_of_its_steps() -> None:
    made = images(2)
    dated = [
        replace(
            s, splits={n: replace(p, time=86_400 * (100 * s.index + np.arange(len(p)))) for n, p in s.splits.items()}
        )
        for s in made.steps
    ]
    html = replace(made, steps=dated)._repr_html_()
    assert re.search(r"<th[^>]*>from</th><th[^>]*>to</th>", html)
    assert "<td>1970-04-11</td>" in html
    assert ">from</th>" not in made._repr_html_()
