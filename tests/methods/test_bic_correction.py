"""BiC's correction: whether it evens, and whether its fit ends where a search finds the minimum."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from phasezero.config import Engine
from phasezero.data.stream import Phase
from phasezero.engine.device import Device
from phasezero.engine.passes import StagePass
from phasezero.methods.base import Stage
from phasezero.methods.bic import Bic
from phasezero.nets import BiasCorrectedHead, Features, IncrementalModel
from phasezero.schedule import Schedule


class Identity(nn.Module):
    """The images are the features; a norm shows whether batch statistics were used."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6, affine=False)

    def forward(self, images: Tensor) -> Features:
        return Features(self.norm(images), ())


class Clusters:
    """Images of class c lie around the c-th unit vector; six classes, forty images each."""

    def __init__(self) -> None:
        self.labels = torch.arange(240) % 6
        noise = torch.randn(240, 6, generator=torch.Generator().manual_seed(0))
        self.images = torch.eye(6)[self.labels] + 0.3 * noise

    def prepare(self, ticket: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        return self.images[ticket[0]], self.labels[ticket[0]]

    def test_batches(self, indices: Tensor, batch_size: int) -> Iterator[tuple[Tensor]]:
        return ((part,) for part in indices.split(batch_size))


def biased_model(method: Bic) -> IncrementalModel:
    """A head that is right but for its newest two classes: too steep and too high."""
    model = IncrementalModel(Identity(), method.make_head(6))
    for phase in (Phase(0, 0, 4), Phase(1, 4, 2)):
        method.grow(model, phase, torch.Generator())
    head = model.head
    assert isinstance(head, BiasCorrectedHead)
    with torch.no_grad():
        for block, rows, bias, shift in zip(
            head.blocks, (torch.eye(6)[:4], 1.5 * torch.eye(6)[4:]), head.biases, (0.0, 4.0), strict=True
        ):
            block.copy_(6 * rows)
            bias.fill_(shift)
    return model


def run_stage(
    stage: Stage, model: IncrementalModel, data: Clusters, images: int, seed: int = 0
) -> list[float]:
    """The mean losses of its epochs on the first images."""
    device = Device.choose(Engine(device="cpu"))
    stage_pass = StagePass(stage, stage.loss, model, None, data, torch.arange(images), device)
    rng = torch.Generator().manual_seed(seed)
    return [float(stage_pass.epoch(epoch, rng)) for epoch in range(stage.schedule.epochs)]


def test_the_correction_evens_out_old_and_new() -> None:
    method, data = Bic(Bic.Options(bias_epochs=200)), Clusters()
    model = biased_model(method)
    method.training_images, method.held_out_images = [torch.arange(120, 240)], [torch.arange(120)]
    _, stage = method.stages(model, Phase(1, 4, 2), Schedule(batch_size=120, weight_decay=5e-4, momentum=0.3))
    pair = model.head.pairs[0]
    assert (stage.name, stage.batch_statistics, list(map(id, stage.parameters))) == (
        "bias",
        False,
        [id(pair)],
    )
    fit = stage.schedule
    assert (fit.lr_at(0), fit.lr_at(100), fit.momentum, fit.weight_decay) == (0.1, 0.05, 0.9, 0.0)
    assert torch.equal(stage.images(None), torch.arange(120))

    def per_class(logits: Tensor) -> Tensor:
        right = (logits.argmax(1) == data.labels[120:]).float()
        return torch.stack([right[data.labels[120:] == label].mean() for label in range(6)])

    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    losses = run_stage(stage, model, data, images=120)
    assert losses[-1] < 0.5 * losses[0]
    assert losses[-1] == pytest.approx(min(losses), abs=1e-3)
    moved = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert moved == {"head.pairs.0"}

    scores = model(data.images[120:])
    corrected, plain = per_class(scores.logits), per_class(scores.similarities)
    assert plain[:4].mean() < 0.75  # old images taken for new ones
    assert plain[4:].mean() == 1
    assert corrected.min() > 0.8
    assert corrected[:4].mean() > plain[:4].mean() + 0.1
    alpha, beta = pair.tolist()
    assert alpha < 1
    assert beta < 0


@pytest.mark.parametrize(
    ("images", "size", "even"),
    [(104, 128, 104), (128, 128, 128), (130, 128, 65), (131, 128, 66), (300, 128, 100)],
)
def test_the_fit_has_even_batches_and_ends_in_small_steps(images: int, size: int, even: int) -> None:
    given = Schedule(batch_size=size, weight_decay=5e-4, momentum=0.3, milestones=(3,))
    fit = Bic(Bic.Options()).fit_schedule(given, images)
    assert (fit.epochs, fit.lr_at(0), fit.momentum, fit.weight_decay) == (200, 0.1, 0.9, 0.0)
    assert fit.batch_size == even
    assert 0 < fit.lr_at(199) < 1e-4
    facils = Bic(Bic.Options(bias_settles=False)).fit_schedule(given, images)
    assert {facils.lr_at(epoch) for epoch in range(200)} == {0.1}
    assert facils.batch_size == size


def slow_minimum(similarities: Tensor, labels: list[int]) -> tuple[float, float]:
    """Ever finer grids around the best pair so far."""

    def loss(alpha: float, beta: float) -> float:
        corrected = torch.cat([similarities[:, :4], alpha * similarities[:, 4:] + beta], 1)
        return -corrected.log_softmax(1)[range(len(labels)), labels].mean().item() + 0.1 * beta**2 / 2

    best, reach = (0.0, 0.0), 4.0
    while reach > 1e-5:
        around = [step * reach / 4 for step in range(-4, 5)]
        best = min(((best[0] + a, best[1] + b) for a in around for b in around), key=lambda pair: loss(*pair))
        reach /= 2
    return best


def fitted_pair(settles: bool, images: int, seed: int) -> tuple[Tensor, tuple[float, float]]:
    """By all epochs of the stage, and by trying; on so many images that batches of 60 leave two for a third."""
    method, data = Bic(Bic.Options(bias_settles=settles)), Clusters()
    model = biased_model(method)
    method.training_images, method.held_out_images = [torch.arange(images, 240)], [torch.arange(images)]
    _, stage = method.stages(model, Phase(1, 4, 2), Schedule(batch_size=60))
    run_stage(stage, model, data, images, seed)
    similarities = model.eval()(data.images[:images]).similarities.detach()
    return model.head.pairs[0].detach(), slow_minimum(similarities, data.labels[:images].tolist())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_fit_settles_at_the_minimum(seed: int) -> None:
    pair, minimum = fitted_pair(True, 122, seed)
    assert pair.tolist() == pytest.approx(minimum, abs=2e-3)
    facils, _ = fitted_pair(False, 122, seed)
    assert max(abs(a - b) for a, b in zip(facils.tolist(), minimum, strict=True)) > 0.02
