"""Add Class-wise Decorrelation to a training loop of your own, then new classes by exact ridge regression."""

import torch
from torch import nn
from torch.nn import functional as F

from phasezero import alpha, class_spectra, class_wise_decorrelation
from phasezero.methods.ridge import ridge

torch.manual_seed(0)
images, labels = torch.randn(600, 20), torch.arange(600) % 6
images[:, :6] += 3 * F.one_hot(labels, 6)
first = labels < 4  # phase 0 has four classes, two more come later


def train(eta: float) -> nn.Module:
    """Train a small network on the classes of phase 0."""
    torch.manual_seed(1)
    backbone, head = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 16)), nn.Linear(16, 4)
    optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.1, momentum=0.9)
    for step in range(200):
        batch = torch.arange(64 * step, 64 * (step + 1)) % int(first.sum())
        own, truth = images[first][batch], labels[first][batch]
        features = backbone(own)
        loss = F.cross_entropy(head(features), truth) + eta * class_wise_decorrelation(features, truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return backbone.eval().requires_grad_(False)


for eta in (0.0, 1.0):
    features = train(eta)(images).double()
    spectra = class_spectra([features[labels == label] for label in range(4)])
    share = float(alpha(spectra.eigenvalues, [1]).mean())  # of the variance, along a class's first direction
    products, sums = torch.zeros(16, 16).double(), torch.zeros(6, 16).double()
    for phase in (first, ~first):  # these sums are all that is kept: those of later classes are added to them
        products += features[phase].T @ features[phase]
        sums.index_add_(0, labels[phase], features[phase])
    right = (features @ ridge(products, sums, strength=0.01).T).argmax(1) == labels
    print(f"eta {eta}: alpha_1 {share:.3f}, accuracy on six classes {right.double().mean():.2f}")
