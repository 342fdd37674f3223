"""Vectors of texts that describe the classes of a stream, by the encoder that made its image vectors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadArray, BadConfig
from driftline.curate.core.vectors import unit

Vectors = npt.NDArray[np.float32]


class TextEncoder(Protocol):
    """What this module needs of an encoder."""

    fingerprint: str

    def texts(self, texts: Sequence[str]) -> Any:
        """N texts → (N, D), unit length."""
        ...


@dataclass(frozen=True)
class ClassTexts:
    """Prompts of classes and their vectors. A class may have several, or none."""

    x: Vectors
    """(P, D) float32, unit length"""
    y: npt.NDArray[np.int64]
    """(P,) class of each prompt"""
    prompts: npt.NDArray[np.str_]
    """(P,) the prompts"""
    encoder: str
    """fingerprint of the encoder"""

    def ensemble(self, classes: int) -> npt.NDArray[np.float32]:
        """(C, D): of each class the mean of its vectors, of unit length; zeros for a class without prompts [Radford et
        al. 2021, sec. 3.1.4]."""
        sums = np.zeros((classes, self.x.shape[1]))
        np.add.at(sums, self.y, self.x)
        return unit(sums)

    def of(self, labels: Sequence[int]) -> "ClassTexts":
        """The texts of some classes; labels[k] becomes class k."""
        new = {label: k for k, label in enumerate(labels)}
        rows = np.flatnonzero(np.isin(self.y, list(new)))
        y = np.array([new[label] for label in self.y[rows].tolist()], np.int64)
        return ClassTexts(self.x[rows], y, self.prompts[rows], self.encoder)


def prompts_of(
    classes: Sequence[str], prompts: Mapping[str, Sequence[str]], templates: Sequence[str] = ()
) -> list[tuple[int, str]]:
    """(class, prompt) pairs: each class's own prompts or, if there are templates, each template with the class's name.

    Raises BadConfig for a template without {}, and if no class has a prompt.
    """
    for template in templates:
        if template.count("{}") != 1:
            raise BadConfig(f"The template is {template!r}.", "Expected {} once, for the class's name.")
    pairs = [
        (label, prompt)
        for label, name in enumerate(classes)
        for prompt in ([t.format(name.replace("_", " ")) for t in templates] if templates else prompts.get(name, ()))
    ]
    if not pairs:
        raise BadConfig("No class has a prompt.", "", "Give templates: --template 'a photo of a {}'.")
    return pairs


def encoded(pairs: Sequence[tuple[int, str]], encoder: TextEncoder, width: int, made_by: str | None) -> ClassTexts:
    """Vectors of (class, prompt) pairs. width: of the image vectors. made_by: fingerprint of the encoder that made them
    (None: not known, their width is checked). Raises BadConfig for another encoder, BadArray for another width."""
    if made_by not in (None, encoder.fingerprint):
        raise BadConfig(
            "The image vectors were made by another encoder, or with other weights.",
            "Expected one model for images and texts.",
            "Name that model: --text-encoder KIND:MODEL:WEIGHTS.",
        )
    vectors = np.asarray(encoder.texts([prompt for _, prompt in pairs]), np.float32)
    if vectors.shape != (len(pairs), width):
        raise BadArray(f"The text vectors have shape {vectors.shape}.", f"Expected {(len(pairs), width)}.")
    y = np.array([label for label, _ in pairs], np.int64)
    return ClassTexts(vectors, y, np.array([prompt for _, prompt in pairs], np.str_), encoder.fingerprint)
