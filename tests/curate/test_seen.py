"""What encoders may have seen: claims with a source, and nothing guessed."""

from pathlib import Path

import pytest

from driftline.curate.core.errors import BadConfig
from driftline.curate.encoders.weights import FILE, NOBODY, UNKNOWN, checked, claims, recorded, seen
from driftline.pipelines.stages.embed import FOLDERS, built_in


@pytest.mark.parametrize(
    ("encoder", "until"),
    [
        (("clip", "ViT-B-32", "openai"), "2021-01"),
        (("clip", "RN50", "yfcc15m"), "2014"),
        (("clip", "ViT-B-32", "laion400m_e32"), "2021-08"),
        (("clip", "ViT-L-14", "laion2b_s32b_b82k"), "2022-03"),
        (("clip", "ViT-B-16", "datacomp_xl_s13b_b90k"), "2023-04"),
        (("clip", "ViT-B-16-SigLIP", "webli"), UNKNOWN),
        (("backbone", "resnet50", "tv_in1k"), "2012"),
        (("backbone", "vit_base_patch16_224", "augreg_in21k_ft_in1k"), "2012"),
        (("backbone", "resnet50", "fb_swsl_ig1b_ft_in1k"), UNKNOWN),  # pictures of Instagram, too
        (("backbone", "vit_small_patch14_dinov2", "lvd142m"), "2023-04"),
        (("sentence", "all-MiniLM-L6-v2", None), "2021"),
        (("my.package:Name", "openai", "openai"), UNKNOWN),
    ],
)
def test_known_weights_have_a_date_and_others_are_never_guessed(encoder, until):
    assert seen(*encoder).trained_until == until


def test_every_claim_has_a_source_and_a_date() -> None:
    for kind, _, claim in claims():
        assert kind == "ngrams" or checked(claim.trained_until) != UNKNOWN
        assert UNKNOWN not in (claim.data, claim.source)


def test_a_models_folder_may_say_it(tmp_path: Path) -> None:
    assert {seen("clip", built_in(name)).trained_until for name in FOLDERS} == {"1903", "2004", "2014-04"}
    (tmp_path / FILE).write_text("trained_until: 1942\ndata: watercolours\nsource: us\n")
    assert seen("clip", str(tmp_path)).facts() == {
        "encoder_cutoff": "1942", "encoder_data": "watercolours", "encoder_source": "us",
    }  # fmt: skip
    for text in ("trained_until: soon", "until: 2014", "[", "trained_until: 2014-13"):
        (tmp_path / FILE).write_text(text)
        with pytest.raises(BadConfig, match=r"training_data.yaml|'soon'|'2014-13'"):
            seen("clip", str(tmp_path))


def test_a_releases_record_decides() -> None:
    said = {"trained_until": "2004", "data": "d", "source": "s"}
    maker = {"kind": "clip", "model": "RN50", "weights": "openai"}
    assert recorded({"encoder": {**maker, "seen": said}}, "clip").trained_until == "2004"
    assert recorded({"encoder": maker}, "clip") == NOBODY
    assert recorded({"encoder": maker, "seen": {"moco": said}}, "moco").trained_until == "2004"
    assert recorded({"encoder": maker}, "imagenet") == NOBODY
