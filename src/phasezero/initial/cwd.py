"""Class-wise Decorrelation (CwD): the paper's phase-0 term, "Mimicking the Oracle" (CVPR 2022), Sec. 3.3.

Three losses have this name. Their coefficients are not interchangeable: at B=50 and batch 128 they differ by a factor
of up to 50. The form is therefore an option:

`code`       the published code, which produced the paper's numbers: the off-diagonal squares of the *unscaled* product
             X'X of each class, divided by the number of samples used.
`equation`   Eq. 8: the mean over all C classes of ||R_c||_F^2 / d^2.
`algorithm`  Algorithm 1: the sum, over the classes with two samples or more, of the mean of R_c's squares.

R_c is the d x d correlation matrix of class c within the batch. It is never computed: with Z_c the standardised
features of class c, ||Z_c' Z_c||_F = ||Z_c Z_c'||_F. One N x N Gram product of the whole batch, masked by "same class",
replaces it for all classes at once, without a loop and without a data-dependent shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.initial.base import StrategyOptions, Term, register_initial
from phasezero.methods.stage import Batch
from phasezero.validation import WEIGHT, option

Form = Literal["code", "equation", "algorithm"]

VARIANCE_FLOOR = 1e-8  # added to each variance by the published code, though not by the paper's formulas


def class_wise_decorrelation(
    features: Tensor, labels: Tensor, *, form: Form = "code", normalize: bool = True, num_classes: int | None = None
) -> Tensor:
    """Return the CwD loss of a batch, a scalar to be minimised, for `features` [N, d] and integer `labels` [N].

    `normalize` first scales each feature vector to unit length, as the published training loop does (the paper's
    formula does not mention it). `num_classes` is the C of Eq. 8; only that form needs it. Classes with a single sample
    are skipped. A batch in which no class has two samples gives a zero that can be differentiated. Half-precision
    features are computed in float32.

    >>> import torch
    >>> from phasezero import class_wise_decorrelation
    >>> features = torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])  # of one class, fully correlated
    >>> class_wise_decorrelation(features, torch.zeros(3, dtype=torch.long), form="algorithm", normalize=False)
    tensor(1.)
    """
    if form not in ("code", "equation", "algorithm"):
        raise ValueError(f"form must be 'code', 'equation' or 'algorithm', got {form!r}")
    if form == "equation" and num_classes is None:
        raise ValueError("the equation's form divides by the number of classes: give num_classes")

    with torch.autocast(features.device.type, enabled=False):
        # Variances of unit 512-d features are near 1e-3 and shrink in training: too small for half precision.
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
            # ||X'X||_F^2 without its diagonal, (N_c - 1) var / (var + eps), which counts once per class.
            diagonal = freedom * variance / (variance + VARIANCE_FLOOR)
            diagonal_squares = (diagonal.square() * (usable / count)).sum()
            squares = ((z @ z.T).square() * same_class).sum() - diagonal_squares
            entries = dim * (dim - 1)
            return (squares / entries if entries else squares * 0) / usable.sum().clamp_min(1)

        # The paper's forms divide by the standard deviation without an epsilon. A feature that is constant within a
        # class, up to rounding (the mean of n terms errs by at most n eps), has no correlation: it counts as zero
        # instead of 0/0.
        mean_square = same_class @ x.square() / count
        precision = torch.finfo(x.dtype)
        varies = variance > (count * precision.eps) ** 2 * mean_square + precision.tiny
        z = centred * torch.where(varies, variance, 1).rsqrt() * varies * usable
        total = ((z @ z.T / freedom).square() * same_class).sum() / dim**2
        return total if num_classes is None or form == "algorithm" else total / num_classes


@register_initial("cwd", "Class-wise Decorrelation (CVPR 2022), in three forms")
class ClassWiseDecorrelation(Term):
    label, coefficient = "CwD", "eta"

    @dataclass(frozen=True)
    class Options(StrategyOptions):
        name: str = "cwd"
        weight: float = option(0.5, **WEIGHT)  # eta
        form: Form = "code"  # of the published code, of Eq. 8, or of the pseudocode; they differ in scale
        normalize: bool = True  # unit features first, as in the published training loop

    published = {
        # Ours: in such a short training 0.5 costs phase 0 more than it gains later (notebook/results.md).
        "glyphs": {"weight": 0.1},
        # LUCIR's scripts. The values for PODNet and AANet are not known; AANet has LUCIR's.
        "cifar100": {"weight": 0.5},
        # Ours: 0.76 points better than 0.5 (notebook/results.md).
        "podnet/cifar100": {"weight": 0.25},
        # Ours: from 0.25 on, that network collapses in its first epochs (notebook/results.md).
        "podnet-original/cifar100": {"weight": 0.1},
        "imagenet100": {"weight": 0.75},
        # The published script with CwD has another phase-0 learning rate than the script without (0.1).
        "lucir/imagenet100": {"training.first.lr": 0.2},
        "imagenet": {"weight": 1.5},  # the paper's author, when asked
    }
    options: Options

    def __call__(self, batch: Batch) -> Tensor:
        form, normalize = self.options.form, self.options.normalize
        return class_wise_decorrelation(
            batch.output.features, batch.labels, form=form, normalize=normalize, num_classes=self.phase.new
        )
