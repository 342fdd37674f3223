"""Presets: where data comes from."""

from pathlib import Path

import pytest

import driftline as dl
from driftline.curate.core.errors import MissingFile


def test_where_to_get_the_metadata_of_yfcc_stands_in_the_message(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"yfcc100m_dataset\.bz2.*multimedia-commons.*s3://mmcommons"):
        dl.run(dl.init(tmp_path / "run", preset="yfcc"), until="ingest")
