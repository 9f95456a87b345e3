"""PODNet: Pooled Outputs Distillation for Small-Tasks Incremental Learning (Douillard et al., ECCV 2020).

Each class has ten proxies, imprinted by k-means. Two losses keep the old model's features and its maps, pooled along
rows and columns. A balanced fine-tuning of the proxies follows, which the paper does not mention. All of this is as in
the published code. `nca` is what it computes: its margin cancels out, and the label's own term in the sum is 1 instead
of absent (acknowledged after the CwD paper's experiments). `true_margin` selects the PODNet paper's loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.data.stream import Phase
from phasezero.errors import UserError
from phasezero.methods.base import Method, MethodOptions, both_phases, register_method, trainable
from phasezero.methods.lucir import less_forget
from phasezero.methods.stage import Batch, Loss, PhaseImages, Stage, balanced_exemplars
from phasezero.nets import GrowingHead, IncrementalModel, LocalSimilarityHead, imprint_proxies
from phasezero.schedule import Schedule
from phasezero.validation import COUNT, EPOCHS, POSITIVE, RATE, WEIGHT, option

pod_flat = less_forget  # as coded: the mean of 1 - cos


def nca(logits: Tensor, labels: Tensor) -> Tensor:
    """Return -z_y + log(1 + sum of exp z_j over j != y), where z are the logits minus the largest logit of the sample.

    The maximum has a gradient. The loss is cross-entropy where y has the largest logit, elsewhere up to log 2 larger.

    >>> import torch
    >>> from phasezero import nca
    >>> nca(torch.zeros(1, 2), torch.tensor([0]))
    tensor(0.6931)
    """
    z = logits - logits.max(1, keepdim=True).values
    own = labels[:, None]
    denominator = z.scatter(1, own, 0.0).exp().sum(1)
    return (denominator.log() - z.gather(1, own)[:, 0]).mean()


def nca_with_margin(logits: Tensor, labels: Tensor, margin: Tensor) -> Tensor:
    """Return the paper's loss: the label's logit should exceed the others' logsumexp by the margin, eta * delta."""
    own = labels[:, None]
    rivals = logits.scatter(1, own, -torch.inf).logsumexp(1)
    return F.relu(rivals - logits.gather(1, own)[:, 0] + margin).mean()


def pod_spatial(maps: Sequence[Tensor], old_maps: Sequence[Tensor]) -> Tensor:
    """Return POD-spatial as coded: the distance between pooled squares of maps, mean over the batch and the maps.

    >>> import torch
    >>> from phasezero import pod_spatial
    >>> pod_spatial([torch.ones(1, 2, 4, 4)], [torch.ones(1, 2, 4, 4)])
    tensor(0.)
    """
    if not maps:
        raise UserError("PODNet needs the maps of the network's stages, and this network returns none; choose another")
    moved = [pooled_squares(new) - pooled_squares(old) for new, old in zip(maps, old_maps, strict=True)]
    return torch.stack([torch.linalg.vector_norm(difference, dim=1).mean() for difference in moved]).mean()


def pooled_squares(maps: Tensor) -> Tensor:
    """Return vectors [n, C * H + C * W] of unit length: squares of maps [n, C, H, W] summed along rows and columns."""
    squares = maps.to(torch.promote_types(maps.dtype, torch.float32)).square()
    return F.normalize(torch.cat([squares.sum(3).flatten(1), squares.sum(2).flatten(1)], 1), dim=1)


_JITTER = {"training.brightness": 63 / 255}
_IMAGENET = _JITTER | {"network.name": "resnet18-podnet", "method.finetune_lr": 0.01}
_IMAGENET |= {"method.flat": 10.0, "method.spatial": 8.0}


@register_method("podnet", "PODNet (ECCV 2020): proxies, distils features and maps")
class Podnet(Method):
    @dataclass(frozen=True)
    class Options(MethodOptions):
        name: str = "podnet"
        proxies: int = option(10, **COUNT)  # proxies of each class: K
        flat: float = option(1.0, **WEIGHT, later=True)  # factor of POD-flat, times sqrt(seen / new classes)
        spatial: float = option(3.0, **WEIGHT, later=True)  # factor of POD-spatial, times sqrt(seen / new classes)
        true_margin: bool = False  # the NCA loss of the paper; in that of the code the margin has no effect
        margin: float = option(0.6, **WEIGHT)  # delta; has no effect without `true_margin`
        clamp: float = option(5.0, **POSITIVE)  # largest entry of a gradient (the code)
        finetune_epochs: int = option(20, **EPOCHS, later=True)  # epochs of fine-tuning the proxies: the code
        finetune_lr: float = option(0.05, **RATE, later=True)  # learning rate of this fine-tuning
        # Whether the statistics of BatchNorm keep moving in it, though the network's weights do not. The code: true.
        finetune_statistics: bool = option(True, later=True, before=True)

    label, later_cost = "PODNet", {"cpu": 3.8, "cuda": 1.6}
    # options/podnet/podnet_cnn_*.yaml. The cosine schedule lags: epochs 0 and 1 both have the full rate.
    published = {
        "*": both_phases(shape="cosine", shift=-1),
        # ResNet-18, as the CwD paper says. Fixed statistics are ours: moving them costs a point (notebook/results.md).
        "cifar100": _JITTER | {"network.name": "resnet18-cifar-podnet", "method.finetune_statistics": False},
        "imagenet100": _IMAGENET | both_phases(lr=0.05, weight_decay=5e-4, batch_size=64),
        "imagenet": _IMAGENET | both_phases(lr=0.05, weight_decay=1e-4, batch_size=64),
        "glyphs": {"network.name": "resnet-glyphs-podnet", "method.finetune_epochs": 4},  # ours
    }
    variants = {"original": {"cifar100": {"network.name": "resnet32-podnet", "method.finetune_statistics": True}}}
    needs_maps = True
    options: Options

    def make_head(self, feature_size: int) -> GrowingHead:
        return LocalSimilarityHead(feature_size, proxies=self.options.proxies)

    def grow(self, model: IncrementalModel, phase: Phase, rng: torch.Generator) -> None:
        model.head.grow(phase.new, rng)
        model.head.freeze_old()

    def begin(self, model: IncrementalModel, phase: Phase, images: PhaseImages) -> None:
        if phase.index:
            *old_blocks, new_block = model.head.blocks
            features = [images.class_features(position) for position in range(phase.old, phase.seen)]
            new_block.data.copy_(imprint_proxies(torch.cat(old_blocks), features, images.generator("k-means")))

    def stages(self, model: IncrementalModel, phase: Phase, schedule: Schedule) -> list[Stage]:
        assert isinstance(model.head, LocalSimilarityHead)
        own, loss = self.options, self.loss_with(model.head.scale, phase)
        train = Stage("train", schedule, loss, trainable(model), clamp_gradients=own.clamp)
        if not (phase.index and own.finetune_epochs):
            return [train]
        constant = replace(schedule, epochs=own.finetune_epochs, lr=own.finetune_lr, shape="step", milestones=())
        proxies = list(model.head.blocks)  # of old and new classes; eta and the network's weights stay
        tune = replace(train, name="finetune", schedule=constant, parameters=proxies, images=balanced_exemplars)
        return [train, replace(tune, batch_statistics=own.finetune_statistics)]

    def loss_with(self, scale: Tensor, phase: Phase) -> Loss:
        """Return the loss of a phase. `scale` is the head's learned eta."""
        options, growth = self.options, math.sqrt(phase.seen / phase.new)

        def loss(batch: Batch) -> Tensor:
            scores = batch.output.logits, batch.labels
            learned = nca_with_margin(*scores, options.margin * scale) if options.true_margin else nca(*scores)
            if batch.teacher is None:
                return learned
            flat = pod_flat(batch.output.features, batch.teacher.features)
            spatial = pod_spatial(batch.output.maps, batch.teacher.maps)
            return learned + growth * (options.flat * flat + options.spatial * spatial)

        return loss
