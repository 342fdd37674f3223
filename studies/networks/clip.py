"""Train the small CLIP model of the demo: `python studies/networks/clip.py [OUT]` (3 minutes, two cores).

The training photos and captions come from a photo world with another seed, so that they contain no photo of the demo.
Most are of the early years: like every model, it is used on photos that are newer than its training data.
"""

import io
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import rng_for
from driftline.curate.pretrain.small_clip import train
from driftline.pipelines.demo.draw import CONCEPTS, SCENES, jpeg, photo

SEED = 90_210  # the demo's worlds use seeds below 90,000
PHOTOS = 9_000
SYNONYMS = {
    "phone": ["phone", "mobile phone", "cell phone"],
    "television": ["television", "tv", "tv set"],
    "computer": ["computer", "pc", "laptop"],
    "bicycle": ["bicycle", "bike"],
    "shoe": ["shoe", "sneaker"],
    "headphones": ["headphones"],
    "hills": ["hills", "landscape", "green hills"],
    "trees": ["trees", "forest"],
}
TEMPLATES = ["a photo of {}", "{}", "a picture of {}", "my {}", "this is {}", "photo: {}", "a small photo of {}"]


def caption(things: list[str], age: float, rng: np.random.Generator) -> str:
    """A caption as an uploader would write it; one in three says whether the thing is old or modern."""
    words = []
    for thing in things:
        names = SYNONYMS.get(thing, [thing])
        word = names[int(rng.integers(len(names)))]
        if thing in CONCEPTS:
            if rng.random() < 0.33:
                word = ("an old " if age < 0.5 else "a modern ") + word
            elif thing != "headphones":
                word = "a " + word
        words.append(word)
    return TEMPLATES[int(rng.integers(len(TEMPLATES)))].format(" and ".join(words))


def main(out: Path) -> None:
    """Render, train, save."""
    run_log = RunLog()
    names = [*CONCEPTS, *SCENES]
    shown: list[list[str]] = []
    ages: list[float] = []
    pixels = np.empty((PHOTOS, 64, 64, 3), np.uint8)
    with run_log.progress("render", PHOTOS, "photos") as tick:
        for i in range(PHOTOS):
            rng = rng_for(SEED, "photo", i)
            n = 2 if rng.random() < 0.08 else 1
            things = [names[k] for k in rng.choice(len(names) if n == 1 else len(CONCEPTS), n, replace=False)]
            age = float(rng.random() if rng.random() < 0.3 else rng.beta(1, 4))  # 1 in 5 is from the later half
            image = Image.open(io.BytesIO(jpeg(photo(things, age, rng))))
            pixels[i] = np.asarray(image.resize((64, 64), Image.Resampling.BICUBIC))
            shown.append(things)
            ages.append(age)
            tick(1)
    keys = ["+".join(sorted(things)) for things in shown]
    train(pixels, lambda i, rng: caption(shown[i], ages[i], rng), keys, out, run_log, SEED, epochs=9)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2] / "pipelines" / "demo" / "model")
