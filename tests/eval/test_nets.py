"""Networks: as large as the paper says, the same functions as torchvision's, and normalisation as torch's."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from driftline.curate.core.errors import IncompatibleStream
from driftline.eval.engine import fused, layers
from driftline.eval.engine.layers import Conv, Norm
from driftline.eval.finetuning import adapters
from driftline.eval.nets import build
from driftline.eval.nets.chain import counted

TABLE_7 = {  # convolutional and linear weights, and all parameters [Seq-to-Final, Table 7; spec, section 2]
    "conv-1": (309_450, 310_602), "conv-2": (678_090, 679_498), "conv-3": (1_562_826, 1_564_746),
    "conv-4": (1_599_690, 1_601_738), "dense-1": (1_227_594, 1_242_698), "dense-2": (1_723_850, 1_744_906),
    "dense-3": (3_027_658, 3_064_458), "dense-4": (6_880_458, 6_964_106), "res-1": (7_387_338, 7_425_354),
    "res-2": (8_198_346, 8_278_602), "res-3": (10_852_554, 11_033_674), "res-4": (11_000_010, 11_181_642),
}  # fmt: skip
IMAGE = (32, 32, 3)


def net_of(name: str, shape: tuple[int, ...] = IMAGE, seed: int = 0) -> Any:
    return build(name, 10, shape, np.random.default_rng(seed))


@pytest.mark.parametrize("name", TABLE_7)
def test_networks_are_as_large_as_table_7_says(name: str) -> None:
    net = net_of(name)
    assert (counted(net), sum(p.numel() for p in net.parameters())) == TABLE_7[name]


@pytest.mark.parametrize(("name", "theirs"), [("res-4", "resnet18"), ("dense-4", "densenet121")])
def test_the_largest_are_torchvisions(name: str, theirs: str) -> None:
    from torchvision import models

    net, other = net_of(name).eval(), getattr(models, theirs)(num_classes=10).eval()
    other.load_state_dict(dict(zip(other.state_dict(), net.state_dict().values(), strict=True)))
    x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.allclose(net(x), other(x), atol=1e-4)


def test_weights_leave_torchs_generator_alone() -> None:
    before = torch.random.get_rng_state()
    net_of("conv-2")
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.skipif(not fused.ready(), reason="the C kernel was not built")
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("relu", "pool"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("size", [16, 7])
def test_normalisation_in_c_equals_torch(kind: torch.dtype, relu: bool, pool: bool, size: int) -> None:
    torch.manual_seed(0)
    mine, theirs = Norm(24, relu, pool), nn.BatchNorm2d(24)
    with torch.no_grad():
        mine.weight.uniform_(-1, 1)
        mine.bias.uniform_(-1, 1)
    theirs.load_state_dict(mine.state_dict())
    x = (torch.randn(9, 24, size, size) * 3 + 1).to(kind).contiguous(memory_format=torch.channels_last)
    mine_x, theirs_x = x.clone().requires_grad_(), x.float().clone().requires_grad_()
    out, other = mine(mine_x), theirs(theirs_x)
    other = torch.relu(other) if relu or pool else other
    other = nn.functional.max_pool2d(other, 3, 2, 1) if pool else other
    slope = torch.randn_like(other).to(kind)
    out.backward(slope)
    other.backward(slope.float())
    near = 1e-5 if kind is torch.float32 else 1e-2

    def same(a: Any, b: Any) -> bool:
        return bool((a.float() - b.float()).abs().max() <= near * b.float().abs().max())

    assert same(out, other)
    assert same(mine_x.grad, theirs_x.grad)
    assert same(mine.weight.grad, theirs.weight.grad)
    assert same(mine.bias.grad, theirs.bias.grad)
    assert same(mine.running_var, theirs.running_var)
    assert torch.allclose(mine.running_mean, theirs.running_mean, atol=1e-4)
    mine.eval(), theirs.eval()
    with torch.no_grad():
        quick, slow = mine(x), theirs(x.float())
    slow = torch.relu(slow) if relu or pool else slow
    assert same(quick, nn.functional.max_pool2d(slow, 3, 2, 1) if pool else slow)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("inside", "outside", "size", "stride", "border", "side"),
    [(8, 16, 3, 1, 1, 1), (8, 16, 3, 2, 1, 2), (8, 16, 3, 2, 1, 5), (3, 8, 7, 2, 3, 9), (8, 16, 1, 2, 0, 4),
     (64, 512, 3, 2, 1, 8), (256, 256, 3, 1, 1, 2), (512, 512, 3, 1, 1, 1), (256, 512, 3, 2, 1, 2),
     (512, 512, 1, 2, 0, 7)],
)  # fmt: skip
def test_convolutions_are_torchs(inside, outside, size, stride, border, side, kind):
    """Without taps that meet nothing, and as a matrix product where that is faster."""
    torch.manual_seed(0)
    mine, theirs = (
        Conv(inside, outside, size, stride, border),
        nn.Conv2d(inside, outside, size, stride, border, bias=False),
    )
    theirs.load_state_dict(mine.state_dict())
    x = torch.randn(3, inside, side, side).to(kind).contiguous(memory_format=torch.channels_last)
    mine_x, theirs_x = x.clone().requires_grad_(), x.float().clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=kind is torch.bfloat16):
        out = mine(mine_x)
    other = theirs(theirs_x)
    slope = torch.randn_like(other).to(kind)
    out.backward(slope)
    other.backward(slope.float())
    near = 1e-5 if kind is torch.float32 else 2e-2
    for a, b in ((out, other), (mine_x.grad, theirs_x.grad), (mine.weight.grad, theirs.weight.grad)):
        assert (a.float() - b).abs().max() <= near * b.abs().max()


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("inside", "outside", "side"), [(64, 512, 8), (256, 512, 2)])
def test_few_pixels_and_many_weights_are_a_matrix_product(inside, outside, side, kind, monkeypatch):
    """Its gradient has the layout of the weights, so that autograd keeps it without a copy."""
    monkeypatch.setattr(layers, "conv2d", None)
    layer = Conv(inside, outside, 3, 2, 1).to(memory_format=torch.channels_last)
    x = torch.randn(3, inside, side, side).to(kind).contiguous(memory_format=torch.channels_last)
    (gradient,) = torch.autograd.grad(layer(x).sum(), layer.weight)
    assert gradient.stride() == layer.weight.stride()


def test_evaluation_in_float32_makes_no_patches_of_sixteen_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers._Product, "apply", None)
    with torch.no_grad():
        assert Conv(64, 512, 3, 2, 1)(torch.randn(3, 64, 8, 8).contiguous(memory_format=torch.channels_last)).any()


@pytest.mark.parametrize("kind", ["side-1", "side-b"])
def test_side_modules_at_zero_leave_the_frozen_network(kind: str) -> None:
    net = net_of("res-2").eval()
    sided = adapters.with_sides(net, kind, np.random.default_rng(0)).eval()
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        for name in sided.names:
            old, new = sided.parts[name]
            if name in ("stem", "fc"):
                new.load_state_dict(old.state_dict())
            else:
                for p in new.parameters():
                    p.zero_()
        assert torch.allclose(sided(x), net(x), atol=1e-6)
    assert [n for n, p in sided.named_parameters() if p.requires_grad and ".1." not in n] == []


@pytest.mark.parametrize("kind", ["lowrank-add", "lowrank-mul"])
def test_low_rank_adapters_begin_as_the_network_was_and_leave_its_weights(kind: str) -> None:
    net = net_of("conv-1").eval()
    low = adapters.with_low_rank(net, kind, 2, np.random.default_rng(0)).eval()
    x = torch.randn(2, 3, 32, 32)
    assert torch.allclose(low(x), net(x), atol=1e-5)
    learns = [name for name, p in low.named_parameters() if p.requires_grad]
    assert learns
    assert not [name for name in learns if "original" in name]


@pytest.mark.parametrize("name", ["linear", "mobilenetv3_small_050"])
def test_side_modules_need_blocks(name: str) -> None:
    net = net_of(name, (8,) if name == "linear" else IMAGE)
    with pytest.raises(IncompatibleStream, match="side module"):
        adapters.with_sides(net, "side-1", np.random.default_rng(0))


def test_times_of_a_joint_model_are_models_of_their_own() -> None:
    net = net_of("conv-1").eval()
    joint = adapters.over_times(net, 3, "all", ("fc",), np.random.default_rng(0)).eval()
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(joint(x, 0), net(x))
    assert not torch.equal(joint(x, 1), joint(x, 2))
    assert [len(joint.parts[name]) for name in joint.names] == [3, 3, 1]
