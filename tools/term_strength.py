"""How CwD weighs against a method's own loss at the start (notebook/results.md, "PODNet and what CwD does for it").

    python tools/term_strength.py OUT.json --root DATA

For each method on CIFAR-100 (B=50, seed 0), its network as initialised, on four training batches of 128: the value of
CwD, the share of features that no image moves (they count as decorrelated), and the length of CwD's gradient with
respect to the network over that of the method's loss. Runs on a CPU, in half a minute.
"""

from __future__ import annotations

import itertools
import json
from statistics import mean

import arguments
import torch
from torch import Tensor

from phasezero.data.catalog import load_data
from phasezero.data.images import ImageData
from phasezero.engine.trainer import Trainer
from phasezero.initial.cwd import class_wise_decorrelation
from phasezero.methods import Batch
from phasezero.presets import build_config
from phasezero.records.files import write_whole
from phasezero.seeding import generator

FORMAT = "phasezero-term-strength-1"
METHODS = ("lucir", "lucir-original", "podnet", "podnet-original")
BATCHES = 4


def at_the_start(method: str, data: ImageData) -> dict[str, float]:
    config = build_config(method, "cifar100").override({"engine.precision": "fp32", "engine.device": "cpu"})
    trainer = Trainer(config, data)
    phase, model = trainer.stream.phases[0], trainer.model.train()
    trainer.method.grow(model, phase, generator(config.seed, "head", 0))
    own_loss = trainer.method.stages(model, phase, config.training.first)[0].loss
    weights = list(model.backbone.parameters())

    def gradient_length(loss: Tensor) -> float:
        parts = torch.autograd.grad(loss, weights, retain_graph=True)
        return float(torch.stack([part.norm() for part in parts]).norm())

    values, still, ratios = [], [], []
    images = torch.cat(trainer.train_by_class[: phase.seen])
    for plan in itertools.islice(trainer.train.train_batches(images, 128, generator(0)), BATCHES):
        views, labels = trainer.train.prepare(plan)
        output = model(views)
        cwd = class_wise_decorrelation(output.features, labels)
        own = own_loss(Batch(views, labels, output, None))
        values.append(float(cwd.detach()))
        still.append(float((output.features.std(0) < 1e-6).float().mean()))
        ratios.append(gradient_length(cwd) / gradient_length(own))
    return {"cwd": mean(values), "still_features": mean(still), "gradient_ratio": mean(ratios)}


def main() -> None:
    wanted = arguments.parser(__doc__).parse_args()
    data = load_data("cifar100", wanted.root)
    rows = [{"method": method, **at_the_start(method, data)} for method in METHODS]
    report = {"format": FORMAT, "batches": BATCHES, "torch": torch.__version__, "rows": rows}
    write_whole(wanted.out, json.dumps(report, indent=1) + "\n")
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
