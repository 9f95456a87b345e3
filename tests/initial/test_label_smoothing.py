"""Label smoothing: with cross-entropy it is the cross-entropy with smoothed targets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from phasezero import UserError
from phasezero.data.stream import Phase
from phasezero.initial.label_smoothing import LabelSmoothing
from phasezero.methods.stage import Batch
from slow import batch_of, cross_entropy, normal, same_with_gradient

LABELS = [0, 3, 1, 1, 2, 0]
every_share = pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])


def make(**options: float) -> LabelSmoothing:
    return LabelSmoothing(LabelSmoothing.Options(**options), Phase(0, 0, 4))


def plain(batch: Batch) -> torch.Tensor:
    return cross_entropy(batch.output.logits, batch.labels.tolist())


@every_share
def test_cross_entropy_plus_the_term_is_torchs_smoothed_cross_entropy(share: float) -> None:
    logits = normal(6, 4).requires_grad_()
    found = make(weight=share).compute_loss(plain, batch_of(logits, LABELS), torch.empty(0, 6))
    wanted = F.cross_entropy(logits, torch.tensor(LABELS), label_smoothing=share)
    same_with_gradient(found, wanted, logits)


@every_share
def test_the_target_is_1_minus_e_for_the_label_plus_e_over_c_for_every_class(share: float) -> None:
    logits = normal(6, 4)
    total = 0.0
    for row, label in zip(logits.numpy(), LABELS, strict=True):
        p = np.exp(row) / np.exp(row).sum()
        for other in range(4):
            target = share / 4 + (1 - share if other == label else 0)
            total -= target * np.log(p[other])
    found = make(weight=share).compute_loss(plain, batch_of(logits, LABELS), torch.empty(0, 6))
    assert found.item() == pytest.approx(total / 6, rel=1e-10)


def test_another_loss_is_changed_by_the_same_amount() -> None:
    batch, nothing = batch_of(normal(6, 4), LABELS), torch.empty(0, 6)
    change = make().compute_loss(plain, batch, nothing) - plain(batch)
    other = make().compute_loss(lambda one: one.output.logits.square().mean(), batch, nothing)
    assert (other - batch.output.logits.square().mean()).item() == pytest.approx(change.item(), rel=1e-10)


def test_the_share_is_a_tenth_unless_given_and_at_most_1() -> None:
    assert make().options.weight == 0.1
    with pytest.raises(UserError, match="weight: must be at least 0 and at most 1"):
        make(weight=1.5)
