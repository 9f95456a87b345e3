"""Phase 0 with Class-wise Decorrelation in a LightningModule, then new classes by exact ridge regression.

Needs `pip install lightning`.
"""

import lightning
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from phasezero import class_wise_decorrelation
from phasezero.methods.ridge import ridge


class PhaseZero(lightning.LightningModule):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 16))
        self.head = nn.Linear(16, classes)

    def training_step(self, batch, index):
        images, labels = batch
        features = self.backbone(images)
        return F.cross_entropy(self.head(features), labels) + 0.5 * class_wise_decorrelation(features, labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


lightning.seed_everything(0)
images, labels = torch.randn(600, 20), torch.arange(600) % 6
images[:, :6] += 3 * F.one_hot(labels, 6)
first = labels < 4  # phase 0 has four classes, two more come later
module = PhaseZero(classes=4)
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = lightning.Trainer(max_epochs=10, accelerator="cpu", **quiet)
trainer.fit(module, DataLoader(TensorDataset(images[first], labels[first]), batch_size=64, shuffle=True))

with torch.no_grad():  # sums over features are all that is kept: those of later classes are added to them
    features = module.backbone(images).double()
products, sums = torch.zeros(16, 16).double(), torch.zeros(6, 16).double()
for phase in (first, ~first):
    products += features[phase].T @ features[phase]
    sums.index_add_(0, labels[phase], features[phase])
classifier = ridge(products, sums, strength=0.01)
print(f"accuracy on six classes: {((features @ classifier.T).argmax(1) == labels).float().mean():.2f}")
