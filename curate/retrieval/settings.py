"""Settings of retrieve: concepts, and CLEAR's rules with additions of driftline that are off by default."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from driftline.curate.core.settings import SPEED, Form, Positive, Section, Template, Text

BACKGROUND = "background"  # the class of everything else
EVERY = "{}"  # the template that is the prompt itself


class Concept(Section):
    """One concept: its prompts, the option that workers read, the source's own label."""

    name: Annotated[str, Field(pattern=r"^[^|$<>\n]{1,80}$"), Form("at most 80 characters, none of | $ < >")]
    """class name"""
    prompts: Annotated[tuple[Text, ...], Field(min_length=1)]
    """texts whose mean vector is the query"""
    templates: tuple[Template, ...] | None = None
    """each prompt is put in place of {} in each of these (null: retrieve.templates)"""
    subcategories: tuple[Text, ...] = ()
    """texts that are queries of their own; an image's score is that of its best query"""
    negatives: tuple[Text, ...] = ()
    """texts that the queries are moved away from"""
    option: str | None = None
    """what workers read beside the checkbox (null: the name)"""
    examples: tuple[Text, ...] = ()
    """what workers read below it, e.g. [bus stop, double-decker]"""
    label: str | None = None
    """the source's own name of the class (null: the name)"""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return {"name": value, "prompts": [value]} if isinstance(value, str) else value

    def texts(self) -> list[list[str]]:
        """The texts of each query, in all templates: the prompts together, then each sub-category."""
        groups = [self.prompts, *([s] for s in self.subcategories)]
        return [[t.replace(EVERY, text) for text in group for t in self.templates or (EVERY,)] for group in groups]


class RetrieveSettings(Section):
    """Concepts and CLEAR's retrieval rules."""

    concepts: Annotated[tuple[Concept, ...], Field(min_length=1)]
    """what to look for: a list, or the name of a YAML file that holds one; a text alone, [apple, pear], is name and
    prompt"""
    templates: Annotated[tuple[Template, ...], Field(min_length=1)] = (EVERY,)
    """what every prompt is put into, e.g. ["a photo of a {}", "{}"]; the vectors' mean is the query"""
    negative_weight: Annotated[float, Field(ge=0, le=1)] = 0.5
    """how far queries are moved away from a concept's negatives"""
    per_class: Positive = 600
    """candidates for each concept and bucket (CLEAR: 600)"""
    depth: Positive = 16_000
    """length of each list before overlap is removed (CLEAR: 16000)"""
    overlap: Literal["highest", "discard", "allow"] = "highest"
    """image in two lists: highest cosine (CLEAR's code), discard (its paper), or allow"""
    background_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    """images of the class of everything else, from the lowest cosines: for each concept, as a share of per_class (0: no
    such class; CLEAR: 0.1)"""
    short: Literal["fail", "fewer"] = "fail"
    """if there are fewer images than per_class: fail with a table, or take fewer (also none)"""
    per_user: Positive | None = None
    """at most this many candidates of one uploader in a concept and bucket (null: any)"""
    near_copy_cosine: Annotated[float, Field(gt=0, le=1)] | None = None
    """drop candidates with this cosine to a better one of their concept, because they are near-duplicates (null:
    keep)"""
    margin: Annotated[float, Field(ge=0, le=2)] | None = None
    """how much a candidate's score must exceed those of all other concepts (null: any)"""
    strata: Annotated[int, Field(ge=2)] | None = None
    """equal parts of the bucket's span that give equal shares of the candidates (null: by score alone)"""
    memory: Annotated[int, Field(ge=16), SPEED] = 256
    """MiB for the lists while searching; longer ones lie in a temporary file, and the vectors are still read once"""

    @model_validator(mode="after")
    def _makes_sense(self) -> "RetrieveSettings":
        names = [c.name for c in self.concepts]
        if len(set(names)) != len(names):
            raise ValueError(f"two concepts have the same name: {sorted({n for n in names if names.count(n) > 1})}")
        first_with: dict[str, str] = {}
        for c in self.complete_concepts():
            queries = repr([c.texts(), c.negatives])
            if (other := first_with.setdefault(queries, c.name)) != c.name:
                raise ValueError(f"the concepts {other!r} and {c.name!r} have the same prompts")
        if BACKGROUND in names:
            raise ValueError(f"no concept may be named {BACKGROUND!r}: it is the class of everything else")
        if self.background_share and self.negatives_each == 0:
            raise ValueError(
                f"per_class {self.per_class} × background_share {self.background_share} is less than one background "
                "image of a concept: raise either, or set background_share: 0"
            )
        return self

    @property
    def negatives_each(self) -> int:
        """Background images for each concept and bucket."""
        return int(self.per_class * self.background_share)

    @property
    def has_rules(self) -> bool:
        """Whether one of the rules is on that are not CLEAR's."""
        return any(rule is not None for rule in (self.per_user, self.near_copy_cosine, self.margin, self.strata))

    @property
    def classes(self) -> list[str]:
        """Names of the concepts, in order, and of the background."""
        return [c.name for c in self.concepts] + ([BACKGROUND] if self.background_share else [])

    def complete_concepts(self) -> list[Concept]:
        """The concepts with their templates, options and labels filled in."""
        return [
            c.model_copy(
                update={
                    "templates": self.templates if c.templates is None else c.templates,
                    "option": c.option or c.name,
                    "label": c.label or c.name,
                }
            )
            for c in self.concepts
        ]
