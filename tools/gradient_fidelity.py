"""How well CwD's gradient survives half precision (notebook/results.md, "What moved the number").

    python tools/gradient_fidelity.py OUT.json --root DATA [--epochs 0,1] [--state STORED.safetensors ...]

For LUCIR+CwD on CIFAR-100 (B=50, seed 1): the gradients of the CwD term and of cross-entropy with respect to the
network, on the same training batches, in float64 and in the precisions of tools/precision_arms.py. The network is as
initialised, after so many epochs of training in float32, and as a stored phase 0 (`phasezero store`) left it.
Runs on a CPU, where float16 is slow: ten to twenty minutes for each network.
"""

from __future__ import annotations

import itertools
import json
import platform
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import arguments
import torch
from precision_arms import ARMS
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from phasezero.data.catalog import load_data
from phasezero.engine.trainer import Trainer
from phasezero.initial.cwd import class_wise_decorrelation
from phasezero.presets import preset
from phasezero.records.files import write_whole
from phasezero.seeding import generator

FORMAT = "phasezero-gradients-1"
SEED, BATCHES = 1, 6
SCALE = 1024.0  # of the losses: keeps float16's small gradients from vanishing, as in training
PRECISIONS: dict[str, tuple[str, torch.dtype | None]] = {
    "fp64": ("resnet18-cifar", None),
    "fp32": ("resnet18-cifar", None),
    "fp16": ("resnet18-cifar", torch.float16),
    "bf16": ("resnet18-cifar", torch.bfloat16),
    "prototype": (str(ARMS["prototype"]["network.name"]), torch.bfloat16),
}


def make_trainer(root: Path | None, network: str = "resnet18-cifar") -> Trainer:
    config = preset("lucir+cwd/cifar100/b50s10", seed=SEED).override(
        {"engine.precision": "fp32", "engine.device": "cpu", "network.name": network}
    )
    trainer = Trainer(config, load_data("cifar100", root))
    trainer.method.grow(trainer.model, trainer.stream.phases[0], generator(SEED, "head", 0))
    return trainer


def states(root: Path | None, epochs: list[int], stored: list[Path]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    trainer = make_trainer(root)
    phase = trainer.stream.phases[0]
    stage = trainer.method.stages(trainer.model, phase, trainer.config.training.first)[0]
    loss = trainer.with_initial_terms(stage.loss, phase)
    training = trainer.make_pass(stage, loss, torch.cat(trainer.train_by_class[: phase.seen]))
    done = 0
    for wanted in sorted(epochs):
        for epoch in range(done, wanted):
            training.epoch(epoch, generator(SEED, "batches", 0, stage.name, epoch))
        done = wanted
        yield f"after {done} epochs", {k: v.clone() for k, v in trainer.model.state_dict().items()}
    for path in stored:
        tensors = load_file(path)
        yield "trained", {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}


def gradients(root: Path | None, state: dict[str, Tensor], precision: str) -> list[dict[str, Tensor]]:
    """Return the gradients of the two losses on each batch, each as a long vector."""
    network, half = PRECISIONS[precision]
    trainer = make_trainer(root, network)
    model = trainer.model
    model.load_state_dict(state)
    model.half_precision = half
    model.to(torch.float64 if precision == "fp64" else torch.float32).train()
    weights, found = list(model.backbone.parameters()), []
    images = torch.cat(trainer.train_by_class[:50])
    for plan in itertools.islice(trainer.train.train_batches(images, 128, generator(0)), BATCHES):
        batch, labels = trainer.train.prepare(plan)
        output = model(batch.to(weights[0].dtype))
        losses = {
            "cwd": class_wise_decorrelation(output.features, labels),
            "cross_entropy": F.cross_entropy(output.logits, labels),
        }
        scaled = {name: torch.autograd.grad(loss * SCALE, weights, retain_graph=True) for name, loss in losses.items()}
        found.append({name: torch.cat([g.flatten().double() for g in some]) / SCALE for name, some in scaled.items()})
    return found


def compare(exact: list[dict[str, Tensor]], other: list[dict[str, Tensor]], term: str) -> dict[str, float]:
    pairs = [(a[term], b[term]) for a, b in zip(exact, other, strict=True)]
    return {
        "cosine": mean(float(F.cosine_similarity(a, b, dim=0)) for a, b in pairs),
        "relative_error": mean(float((a - b).norm() / a.norm()) for a, b in pairs),
    }


def main() -> None:
    parser = arguments.parser(__doc__)
    parser.add_argument("--epochs", type=arguments.numbers, default=[0])
    parser.add_argument("--state", type=Path, action="append", default=[])
    wanted = parser.parse_args()
    rows = []
    for name, state in states(wanted.root, wanted.epochs, wanted.state):
        exact = gradients(wanted.root, state, "fp64")
        for precision in ("fp32", "fp16", "bf16", "prototype"):
            other = gradients(wanted.root, state, precision)
            terms = {term: compare(exact, other, term) for term in ("cwd", "cross_entropy")}
            rows.append({"network": name, "precision": precision, **terms})
            print(json.dumps(rows[-1]), flush=True)
    report = {
        "format": FORMAT,
        "batches": BATCHES,
        "batch_size": 128,
        "seed": SEED,
        "rows": rows,
        "environment": {"torch": torch.__version__, "machine": platform.machine()},
    }
    write_whole(wanted.out, json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
