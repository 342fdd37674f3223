"""filter: table → the rows that pass all filters; dropped rows are kept with their reason."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from driftline.curate.metadata.released_ids import released_ids
from driftline.curate.metadata.withdrawals import NAME, withdraw, withdrawals
from driftline.pipelines.stages.base import Counts, Records, Stage


class FilterTable(Stage):
    """Drop photos by their metadata; count each under the first reason that applies."""

    name: ClassVar[str] = "filter"
    records: ClassVar[Records] = (("rejects/*.parquet", "reason"), ("table/*.parquet", ""))
    needs: ClassVar[tuple[str, ...]] = ("ingest",)
    hint: ClassVar[str] = (
        "For your own photos, set filter.upload_after_capture: false; no_upload_date means that no photo has a date: "
        "driftline status DIR --dropped shows the photos and where dates were looked for."
    )

    def settings(self) -> Any:
        """The filter section; the list of withdrawn ids enters through `outside`."""
        return self.context.config.filter.identity(self.name)

    def outside(self) -> list[Path]:
        """The lists of withdrawn photos: of the setting, of the run, of its store."""
        asked = self.context.config.filter.withdrawn
        lists = [self.context.root / NAME, self.context.config.store.folder(self.context.root) / NAME]
        return ([] if asked is None else [self.context.path(asked)]) + [path for path in lists if path.is_file()]

    def check(self) -> None:
        """The list of withdrawn ids and the expression can be read."""
        from driftline.curate.metadata.filtering import check

        asked = self.context.config.filter.withdrawn
        check(self.context.config.filter.model_copy(update={"withdrawn": asked and str(self.context.path(asked))}))
        for path in self.outside():
            withdrawals(path)

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """table/*.parquet → table/*.parquet and rejects/*.parquet, part by part."""
        from driftline.curate.metadata.filtering import filter_table

        parts = sorted((inputs["ingest"] / "table").glob("part-*.parquet"))
        settings = self.context.config.filter.model_copy(update={"withdrawn": None})
        own = {released: id_ for id_, released in released_ids(self.context.root).items()}
        if photos := [one._replace(id=own.get(one.id, one.id)) for path in self.outside() for one in withdrawals(path)]:
            withdraw(out / NAME, photos)
            settings = settings.model_copy(update={"withdrawn": str(out / NAME)})
        counts = filter_table(parts, out, settings, self.context.run_log, self.context.executor)
        kept = counts.pop("", 0)
        return Counts(kept + sum(counts.values()), kept, counts)
