from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from driftline.ext import Counts, Stage, write_parquet


@dataclass(frozen=True)
class Weekday(Stage):
    """Keep images that were uploaded from Monday to Friday."""

    name: ClassVar[str] = "weekday"
    needs: ClassVar[tuple[str, ...]] = ("bucket",)

    def settings(self) -> Any:
        return {"days": [0, 1, 2, 3, 4]}

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        import pyarrow.parquet as pq  # here: driftline status imports every stage, and answers at once

        table = pq.read_table(inputs["bucket"] / "members.parquet")
        days = [(seconds // 86_400 + 3) % 7 for seconds in table["uploaded"].to_pylist()]  # 1970-01-01: a Thursday
        kept = table.filter([day < 5 for day in days])
        write_parquet(out / "members.parquet", kept)
        return Counts(len(table), len(kept), {"weekend": len(table) - len(kept)})
