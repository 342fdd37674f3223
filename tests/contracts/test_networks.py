"""Every registered network: blocks that fit each other, weights that a seed repeats and that the scores depend on."""

from typing import Any

import numpy as np
import pytest
import torch

from driftline.curate.core.errors import BadConfig
from driftline.eval.nets import NETS, build
from driftline.eval.nets.chain import HEAD, Net

IMAGES, FEATURES = (32, 32, 3), (8,)
CLASSES, N = 3, 4


def shape_of(name: str) -> tuple[int, ...]:
    """Of a sample that it takes."""
    return FEATURES if NETS[name](name, CLASSES, FEATURES).features else IMAGES


def network(name: str, seed: int = 0) -> Net:
    return build(name, CLASSES, shape_of(name), np.random.default_rng(seed))


def batch(name: str) -> Any:
    shape = shape_of(name)
    x = torch.rand(N, *shape, generator=torch.Generator().manual_seed(0))
    return x.permute(0, 3, 1, 2) if len(shape) == 3 else x


@pytest.mark.parametrize("name", NETS)
class TestNetwork:
    def test_the_last_block_gives_a_score_for_each_class(self, name: str) -> None:
        net = network(name)
        assert net.names[-1] == HEAD
        scores = net(batch(name))
        assert scores.shape == (N, CLASSES)
        assert torch.isfinite(scores).all()

    def test_a_seed_gives_the_same_weights(self, name: str) -> None:
        one, two, other = network(name), network(name), network(name, seed=1)
        pairs = list(zip(one.parameters(), two.parameters(), strict=True))
        assert all(torch.equal(a, b) and a is not b for a, b in pairs)
        assert not all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))

    def test_every_block_has_weights_that_the_scores_depend_on(self, name: str) -> None:
        net = network(name)
        torch.nn.functional.cross_entropy(net(batch(name)), torch.arange(N) % CLASSES).backward()
        for block in net.names:
            weights = list(net.parts[block].parameters())
            assert weights
            assert all(weight.grad is not None for weight in weights), block

    def test_a_side_module_has_the_shapes_of_its_block(self, name: str) -> None:
        net, x = network(name), batch(name)
        assert set(net.blocks.side) <= set(net.names[:-1])
        for block in net.names[:-1]:
            output = net.block(block, x)
            if block in net.blocks.side:
                assert net.blocks.side[block]()(x).shape == output.shape
            x = output

    def test_other_samples_are_refused(self, name: str) -> None:
        wrong = IMAGES if shape_of(name) == FEATURES else FEATURES
        with pytest.raises(BadConfig, match="takes"):
            build(name, CLASSES, wrong, np.random.default_rng(0))

    def test_says_what_it_is(self, name: str) -> None:
        assert NETS.summary(name)
