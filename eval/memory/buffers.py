"""Bounded memories of past samples, for streams that are too long to store."""

from __future__ import annotations

import numpy as np

from driftline.eval.learner import Array, Labels

Share = tuple[Array, Labels]  # the samples of one past step in memory, in random order


def balanced(shares: list[Share], x: Array, y: Labels, limit: int, rng: np.random.Generator) -> list[Share]:
    """Every step seen so far has an equal share of `limit` samples, a random subset of its share before.

    Copies: a part of an array would hold all of it.
    """
    order = rng.permutation(len(y))
    share, more = divmod(limit, len(shares) + 1)
    past = [(a[: share + (i < more)].copy(), b[: share + (i < more)].copy()) for i, (a, b) in enumerate(shares)]
    return [*past, (np.asarray(x)[order[:share]], np.asarray(y)[order[:share]])]


def biased_reservoir(
    size: int, new: int, seen: int, limit: int, alpha: float, rng: np.random.Generator, shuffle: bool = True
) -> Array:
    """One bucket of CLEAR's biased reservoir sampling [CLEAR, supplement 4, algorithm 1].

    size: samples in the buffer. new: samples of the bucket. seen: samples of the stream so far, this bucket included.
    limit: k. alpha: α. shuffle: False as in CLEAR's code: accepted samples replace the newest ones, so that half of the
    first bucket stays forever (α = 1). Returns positions in "buffer, then bucket" (size + new): the buffer after this
    bucket. A bucket that would replace more than the whole buffer replaces all of it, by a random part of the accepted
    samples (the algorithm as printed would overflow).
    """
    fill = min(limit - size, new)
    buffer = np.arange(size + fill)
    candidates = np.arange(size + fill, size + new)
    accepted = candidates[rng.random(len(candidates)) <= alpha * limit / seen]
    accepted = rng.permutation(accepted)[:limit]
    stays = rng.permutation(buffer)[len(accepted) :] if shuffle else buffer[: len(buffer) - len(accepted)]
    return np.concatenate([stays, accepted])


def class_reservoirs(labels: Labels, weight: Array, limit: int) -> Array:
    """For every class an equal share of `limit` samples, those of the highest weight: with one random weight per
    sample, a uniform sample of all samples of the class so far [Avalanche's class-balanced buffer].

    labels, weight: (N,) of "buffer, then new samples". Returns the positions in the buffer afterwards.
    """
    classes = np.unique(labels)
    share, more = divmod(limit, len(classes))
    chosen = []
    for i, label in enumerate(classes.tolist()):
        members = np.flatnonzero(labels == label)
        chosen.append(members[np.argsort(-weight[members], kind="stable")[: share + (i < more)]])
    return np.sort(np.concatenate(chosen))


def greedy_balanced(labels: Labels, in_buffer: Array, limit: int, rng: np.random.Generator) -> Array:
    """GDumb's greedy balancing sampler [Prabhu et al. 2020, algorithm 1].

    labels: of "buffer, then new samples in order". in_buffer: positions in the buffer now. A new sample enters if its
    class has fewer than limit / classes seen; a full buffer drops a random sample of its largest class. Returns the
    positions in the buffer afterwards.
    """
    inside: dict[int, list[int]] = {}
    for position in in_buffer.tolist():
        inside.setdefault(int(labels[position]), []).append(position)
    total = len(in_buffer)
    for position in range(len(in_buffer), len(labels)):
        members = inside.setdefault(int(labels[position]), [])
        if len(members) >= limit / len(inside):
            continue
        if total >= limit:
            largest = max(inside.values(), key=len)
            largest.pop(int(rng.integers(len(largest))))
            total -= 1
        members.append(position)
        total += 1
    return np.array(sorted(p for positions in inside.values() for p in positions), np.int64)
