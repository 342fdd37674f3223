"""What is searched for: prompts, and texts to keep away from."""

from __future__ import annotations

from dataclasses import dataclass

from driftline.curate.core.errors import BadInput

MOST_PROMPTS = 200  # of one query


@dataclass(frozen=True)
class Query:
    """What is searched for."""

    prompts: tuple[str, ...]
    """texts that form one query together"""
    negatives: tuple[str, ...] = ()
    """texts that the query is moved away from"""

    @staticmethod
    def parse(text: str) -> Query:
        """One prompt per line; a line that begins with "-" is a negative.

        >>> Query.parse("a bus\\n- a toy bus")
        Query(prompts=('a bus',), negatives=('a toy bus',))
        """
        lines = [line.strip() for line in text.splitlines()]
        if len(lines) > MOST_PROMPTS:  # each one is computed with every template
            raise BadInput(f"The field has {len(lines):,} lines.", f"Expected at most {MOST_PROMPTS}, one a prompt.")
        return Query(
            tuple(line for line in lines if line and not line.startswith("-")),
            tuple(line[1:].strip() for line in lines if line.startswith("-") and line[1:].strip()),
        )
