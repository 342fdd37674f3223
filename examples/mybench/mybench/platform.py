from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from driftline.ext import Concept, write_text


def paper(
    batch: Mapping[str, Any], addresses: Mapping[str, str], concepts: Sequence[Concept], out: Path
) -> dict[str, int]:
    """A sheet to print: the address of an image and the options, per line."""
    options = " / ".join(concept.option or concept.name for concept in concepts)
    write_text(out / "sheet.txt", "".join(f"{item}  {address}  {options}\n" for item, address in addresses.items()))
    return {"images": len(addresses), "answers": len(addresses) * batch["workers"]}
