"""Class-wise Decorrelation (CwD): the paper's phase-0 term, "Mimicking the Oracle" (CVPR 2022), Sec. 3.3.

Three losses bear the name; their coefficients are not interchangeable (at B=50 and batch 128 they differ by
a factor of up to 50), so the form is always named:

`code`       what the published code computes and what produced the paper's numbers: off-diagonal squares of
             the *unscaled* product X'X of each class, divided by the number of samples used.
`equation`   Eq. 8: the mean over all C classes of ||R_c||_F^2 / d^2.
`algorithm`  Algorithm 1: the sum, over the classes with two samples or more, of the mean of R_c's squares.

R_c is the d x d correlation matrix of class c within the batch. It is never formed: with Z_c the standardised
features of class c, ||Z_c' Z_c||_F = ||Z_c Z_c'||_F, so one N x N Gram product of the whole batch, masked by
"same class", serves all classes at once, without a loop and without a data-dependent shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.initial.base import TERMS, Term, TermOptions
from phasezero.methods.base import Batch

Form = Literal["code", "equation", "algorithm"]

VARIANCE_FLOOR = 1e-8  # added to each variance by the published code, though not by the paper's formulas


def class_wise_decorrelation(
    features: Tensor,
    labels: Tensor,
    *,
    form: Form = "code",
    normalize: bool = True,
    num_classes: int | None = None,
) -> Tensor:
    """The CwD loss of a batch: `features` [N, d], integer `labels` [N] -> a scalar to be minimised.

    `normalize` first scales each feature vector to unit length, as the published training loop does (the
    paper's formula does not mention it). `num_classes` is the C of Eq. 8 and needed for that form alone.
    Classes with a single sample are skipped; a batch with nothing to decorrelate gives a zero that still
    backpropagates. Half-precision features are computed in float32.
    """
    if form not in ("code", "equation", "algorithm"):
        raise ValueError(f"form must be 'code', 'equation' or 'algorithm', got {form!r}")
    if form == "equation" and num_classes is None:
        raise ValueError("the equation's form divides by the number of classes: give num_classes")

    with torch.autocast(features.device.type, enabled=False):
        # Variances of unit 512-d features are near 1e-3 and shrink in training: never in half precision.
        x = features.to(torch.promote_types(features.dtype, torch.float32))
        if normalize:
            x = F.normalize(x, dim=1)
        dim = x.shape[1]

        same_class = (labels[:, None] == labels[None, :]).to(x.dtype)
        count = same_class.sum(1, keepdim=True)  # N_c of each sample's own class
        usable = (count > 1).to(x.dtype)
        freedom = (count - 1).clamp_min(1)

        centred = x - same_class @ x / count
        variance = same_class @ centred.square() / freedom  # unbiased, of each sample's own class
        if form == "code":
            z = centred * (variance + VARIANCE_FLOOR).rsqrt() * usable
            # ||X'X||_F^2 without its diagonal, (N_c - 1) var / (var + eps), counted once a class.
            diagonal = freedom * variance / (variance + VARIANCE_FLOOR)
            diagonal_squares = (diagonal.square() * (usable / count)).sum()
            squares = ((z @ z.T).square() * same_class).sum() - diagonal_squares
            entries = dim * (dim - 1)
            return (squares / entries if entries else squares * 0) / usable.sum().clamp_min(1)

        # The paper's forms divide by the plain deviation. A feature that is constant within a class, up to
        # rounding (a mean of n terms errs by n eps at most), has no correlation and counts as zero, not as 0/0.
        mean_square = same_class @ x.square() / count
        precision = torch.finfo(x.dtype)
        varies = variance > (count * precision.eps) ** 2 * mean_square + precision.tiny
        z = centred * torch.where(varies, variance, 1).rsqrt() * varies * usable
        total = ((z @ z.T / freedom).square() * same_class).sum() / dim**2
        return total if num_classes is None or form == "algorithm" else total / num_classes


@TERMS.register("cwd")
class ClassWiseDecorrelation(Term):
    """CwD as a plug-in of phase 0 on any method."""

    @dataclass(frozen=True)
    class Options(TermOptions):
        name: str = "cwd"
        weight: float = 0.5  # eta
        form: Form = "code"
        normalize: bool = True  # unit features first, as in the published training loop

    published = {
        # Ours: in so short a training 0.5 costs phase 0 more than it gives later (docs/results.md).
        "glyphs": {"weight": 0.1},
        # LUCIR's scripts. What PODNet and AANet had there is not known: AANet has the same.
        "cifar100": {"weight": 0.5},
        # Ours: 0.76 points ahead of 0.5 (docs/results.md).
        "podnet/cifar100": {"weight": 0.25},
        # Ours: at 0.25 and above that network collapses in its first epochs (docs/results.md).
        "podnet-original/cifar100": {"weight": 0.1},
        "imagenet100": {"weight": 0.75},
        # The published script with CwD has a phase-0 rate that the one without it does not have (0.1 there).
        "lucir/imagenet100": {"training.first.lr": 0.2},
        "imagenet": {"weight": 1.5},  # the paper's author, asked about ImageNet
    }
    options: Options

    def __call__(self, batch: Batch) -> Tensor:
        return class_wise_decorrelation(
            batch.output.features,
            batch.labels,
            form=self.options.form,
            normalize=self.options.normalize,
            num_classes=self.phase.new,
        )
