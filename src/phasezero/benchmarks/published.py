"""A baseline written like the published code: eager steps, a DataLoader, CwD and herding as Python loops.

It shares only the networks with the package. Each function does what its namesake in the package does, so tests can
compare their results and the benchmark only has to time them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from phasezero.nets import NETWORKS

Pixels = npt.NDArray[np.uint8]


def decorrelation_loop(features: Tensor, labels: Tensor) -> Tensor:
    """Return CwD in the published code's form: one d x d matrix for each class of the batch."""
    features, dim = F.normalize(features, dim=1), features.shape[1]
    total, samples = features.new_zeros(()), 0
    for label in labels.unique():
        members = features[labels == label]
        if len(members) < 2:
            continue
        centred = members - members.mean(0)
        z = centred / (centred.square().sum(0) / (len(members) - 1) + 1e-8).sqrt()
        products = z.T @ z
        off_diagonal = products - torch.diag(torch.diagonal(products))
        total = total + off_diagonal.square().sum() / (dim * (dim - 1))
        samples += len(members)
    return total / max(samples, 1)


def herding_loop(features: Tensor, count: int) -> list[int]:
    """Pick, step by step, the image that brings the mean of the picks nearest to the class mean."""
    unit = F.normalize(features, dim=1)
    mean, total = unit.mean(0), torch.zeros_like(unit[0])
    chosen: list[int] = []
    for k in range(count):
        best, nearest = -1, float("inf")
        for candidate in range(len(unit)):
            if candidate in chosen:
                continue
            distance = float(torch.linalg.vector_norm(mean - (total + unit[candidate]) / (k + 1)))
            if distance < nearest:
                best, nearest = candidate, distance
        chosen.append(best)
        total = total + unit[best]
    return chosen


def to_input(image: Pixels) -> Tensor:
    """Normalise an image [H, W, C] to [C, H, W]."""
    return (torch.from_numpy(image).permute(2, 0, 1).float() / 255 - 0.5) / 0.25


def feature_loop(backbone: nn.Module, images: Pixels, batch_size: int, device: torch.device) -> Tensor:
    """Return features of all images, normalised one by one and collected on the host batch by batch."""
    backbone.eval()
    with torch.no_grad():
        loader: DataLoader[Tensor] = DataLoader([to_input(image) for image in images], batch_size)  # type: ignore[arg-type]
        return torch.cat([backbone(batch.to(device)).pooled.cpu() for batch in loader])


class AugmentedImages(Dataset[tuple[Tensor, int]]):
    """Images as PIL objects, padded, cropped, flipped and normalised one by one."""

    def __init__(self, images: Pixels, labels: npt.NDArray[np.int64], padding: int = 4) -> None:
        self.images, self.labels, self.padding = images, labels, padding

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        size = self.images.shape[1]
        canvas = Image.new("RGB", (size + 2 * self.padding,) * 2)
        canvas.paste(Image.fromarray(self.images[index]), (self.padding, self.padding))
        left, top = torch.randint(0, 2 * self.padding + 1, (2,)).tolist()
        view = canvas.crop((left, top, left + size, top + size))
        if torch.rand(()) < 0.5:
            view = view.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return to_input(np.array(view)), int(self.labels[index])


class PublishedStep:
    """LUCIR's training step with torch's defaults: phase 0 with CwD, or a later phase with its teacher."""

    def __init__(self, network: str, classes: int, new: int, device: torch.device, eta: float = 0.5) -> None:
        """Train a phase with `new` of `classes`; if all are new it is phase 0, with CwD unless `eta` is 0."""
        torch.manual_seed(0)
        self.device, self.old, self.eta = device, classes - new, eta
        self.backbone: nn.Module = NETWORKS[network]().to(device).train()
        self.weights = nn.Parameter(torch.randn(classes, self.backbone.feature_size, device=device))
        self.scale = nn.Parameter(torch.ones((), device=device))
        self.teacher = copy.deepcopy(self.backbone).eval() if self.old else None
        parameters = [*self.backbone.parameters(), self.weights, self.scale]
        self.optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=5e-4)

    def __call__(self, images: Tensor, labels: Tensor) -> float:
        images, labels = images.to(self.device), labels.to(self.device)
        features = self.backbone(images).pooled
        cosines = F.normalize(features, dim=1) @ F.normalize(self.weights, dim=1).T
        loss = F.cross_entropy(self.scale * cosines, labels)
        if self.teacher is None and self.eta:
            loss = loss + self.eta * decorrelation_loop(features, labels)
        if self.teacher is not None:
            with torch.no_grad():
                old_features = self.teacher(images).pooled
            kept = 5 * F.cosine_embedding_loss(features, old_features, torch.ones_like(labels))
            loss = loss + kept + self._ranking(cosines, labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def _ranking(self, cosines: Tensor, labels: Tensor) -> Tensor:
        exemplars = labels < self.old
        if not exemplars.any():
            return cosines.new_zeros(())
        own = cosines[exemplars].gather(1, labels[exemplars][:, None])
        new = cosines[exemplars][:, self.old :]
        rivals = new.topk(min(2, new.shape[1]), dim=1).values
        return F.margin_ranking_loss(own.expand_as(rivals), rivals, torch.ones_like(rivals), margin=0.5)


def batches(images: Pixels, labels: npt.NDArray[np.int64], batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield shuffled, augmented batches, epoch after epoch."""
    data = AugmentedImages(images, labels)
    while True:
        yield from DataLoader(data, batch_size, shuffle=True, drop_last=True)
