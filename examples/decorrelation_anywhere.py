"""Add Class-wise Decorrelation to a training loop of your own: one function of features and labels."""

import torch
from torch import nn
from torch.nn import functional as F

from phasezero import alpha, class_spectra, class_wise_decorrelation

torch.manual_seed(0)
images, labels = torch.randn(512, 20), torch.arange(512) % 4
images[:, :4] += 2 * F.one_hot(labels, 4)


def train(eta: float) -> float:
    """Train a small network; return the share of variance along the first direction of a class's features."""
    torch.manual_seed(1)
    backbone, head = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 16)), nn.Linear(16, 4)
    optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.1, momentum=0.9)
    for step in range(200):
        batch = torch.arange(64 * step, 64 * (step + 1)) % len(images)
        features = backbone(images[batch])
        loss = F.cross_entropy(head(features), labels[batch])
        loss = loss + eta * class_wise_decorrelation(features, labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        by_class = [backbone(images[labels == label]) for label in range(4)]
    return float(alpha(class_spectra(by_class).eigenvalues, [1]).mean())


print(f"alpha_1 without CwD: {train(0.0):.3f}")
print(f"alpha_1 with CwD:    {train(1.0):.3f}")
