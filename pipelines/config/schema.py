"""The run file: its sections, each declared beside the code that uses it."""

from typing import Annotated, Any

from pydantic import BeforeValidator, SerializeAsAny

from driftline.curate.bucketing.settings import BucketSettings
from driftline.curate.core.settings import Section
from driftline.curate.encoders import EmbedSettings
from driftline.curate.fetch.settings import FetchSettings
from driftline.curate.metadata.settings import FilterSettings
from driftline.curate.release.settings import ReleaseSettings
from driftline.curate.retrieval.settings import RetrieveSettings
from driftline.curate.sources.base import Source, source_of
from driftline.curate.store import StoreSettings
from driftline.curate.validation.settings import ValidationSettings


class Config(Section):
    """One run."""

    seed: int = 0
    """random seed"""

    collection: Annotated[SerializeAsAny[Source], BeforeValidator(source_of)]
    filter: FilterSettings = FilterSettings()
    fetch: FetchSettings = FetchSettings()
    buckets: BucketSettings = BucketSettings()
    embed: EmbedSettings
    retrieve: RetrieveSettings
    validation: ValidationSettings = ValidationSettings()
    release: ReleaseSettings = ReleaseSettings()
    store: StoreSettings = StoreSettings()

    def identity(self, stage: str) -> dict[str, Any]:
        """The settings of all sections that the fingerprint of `stage` holds, as plain data."""
        values = ((name, getattr(self, name)) for name in type(self).model_fields if name != "store")
        return {name: value.identity(stage) if isinstance(value, Section) else value for name, value in values}
