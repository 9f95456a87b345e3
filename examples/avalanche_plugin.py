"""Phase 0 with Class-wise Decorrelation in Avalanche, then new classes by exact ridge regression: one plugin.

Needs `pip install avalanche-lib`, and a torchvision that fits the installed torch.
"""

import torch
from avalanche.benchmarks import tensors_benchmark
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.models import FeatureExtractorModel
from avalanche.training import Naive
from avalanche.training.plugins import EvaluationPlugin, SupervisedPlugin
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from phasezero import class_wise_decorrelation
from phasezero.methods.ridge import ridge


class PhaseZero(SupervisedPlugin):
    """Train the first experience with CwD; classify by ridge on its frozen features from then on."""

    def __init__(self, features: int, classes: int, eta: float = 0.5) -> None:
        super().__init__()
        self.products, self.sums, self.eta = torch.zeros(features, features), torch.zeros(classes, features), eta

    def before_backward(self, strategy, **_):
        strategy.loss += self.eta * class_wise_decorrelation(strategy.model.features, strategy.mb_y)

    @torch.no_grad()
    def after_training_exp(self, strategy, **_):
        strategy.train_epochs = 0  # later experiences train nothing, they only add sums over features
        for images, labels, *_ in DataLoader(strategy.experience.dataset, batch_size=64):
            features = strategy.model.eval().feature_extractor(images.to(strategy.device)).cpu()
            self.products += features.T @ features
            self.sums.index_add_(0, labels, features)
        strategy.model.train_classifier.weight.copy_(ridge(self.products, self.sums, strength=0.01))


torch.manual_seed(0)
images, labels = torch.randn(600, 20), torch.arange(600) % 6
images[:, :6] += 3 * F.one_hot(labels, 6)
phases = [(images[own], labels[own]) for own in (labels < 4, labels == 4, labels == 5)]
benchmark = tensors_benchmark(train_tensors=phases, test_tensors=[(images, labels)], task_labels=[0, 0, 0])

backbone = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 16))
model = FeatureExtractorModel(backbone, nn.Linear(16, 6, bias=False))
strategy = Naive(
    model=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    train_mb_size=64,
    train_epochs=10,
    plugins=[PhaseZero(features=16, classes=6)],
    evaluator=EvaluationPlugin(accuracy_metrics(stream=True), loggers=[]),
)
for experience in benchmark.train_stream:
    strategy.train(experience)
(accuracy,) = strategy.eval(benchmark.test_stream).values()
print(f"accuracy on six classes: {accuracy:.2f}")
