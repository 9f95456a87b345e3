"""Several strategies at once: their order, their random numbers, and a composition by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from phasezero.config import parse_strategy
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.engine.stage import StagePass
from phasezero.initial import STRATEGIES, Strategies, Strategy, StrategyOptions, Term
from phasezero.methods.stage import Batch, Loss
from phasezero.nets import Output
from phasezero.presets import preset
from samples import Make, train, watch_epochs
from slow import cross_entropy, normal, rng

NAMES = ("augment", "mixup", "sla", "cwd:0.25")
PHASE = Phase(0, 0, 3)
LABELS = [0, 1, 0, 2, 1, 0, 1]


def combine(*parts: str | Strategy) -> Strategies:
    """Combine strategies, given as they are or by their names."""
    made = []
    for part in parts:
        options = parse_strategy(part) if isinstance(part, str) else part.options
        made.append(STRATEGIES[options.name](options, PHASE) if isinstance(part, str) else part)
    return Strategies(made, 5, rng(), torch.device("cpu"))


def batch_for(strategies: Strategies, numbers: Tensor) -> Batch:
    """Return a batch of 8 x 8 images after all views, with made-up features and logits."""
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (len(LABELS), 1, 8, 8))).float()
    shown = strategies.transform(images, numbers)
    features, logits = normal(len(shown), 5).float(), normal(len(shown), 3, seed=1).float()
    return Batch(shown, torch.tensor(LABELS), Output(features, logits, logits, ()), None, numbers)


def plain(batch: Batch) -> Tensor:
    return cross_entropy(batch.output.logits, batch.labels.tolist())


def slow_cwd(features: np.ndarray) -> float:
    """Return CwD as published, from the correlation matrix of each class; class 2 has a single image."""
    total, dim = 0.0, features.shape[1]
    for label in (0, 1):
        own = np.array([row / np.linalg.norm(row) for row, its in zip(features, LABELS, strict=True) if its == label])
        squares = ((len(own) - 1) * np.corrcoef(own, rowvar=False)) ** 2
        total += (squares.sum() - np.trace(squares)) / (dim * (dim - 1))
    return total / 6


def test_the_order_in_the_configuration_does_not_matter() -> None:
    reference = combine(*NAMES)
    numbers = reference.draw(len(LABELS), rng())
    wanted = batch_for(reference, numbers)
    for order in itertools.permutations(NAMES):
        strategies = combine(*order)
        assert [part.options.label for part in strategies.parts] == ["augment:1", "mixup:1", "sla:1", "cwd:0.25"]
        assert torch.equal(strategies.draw(len(LABELS), rng()), numbers)
        found = batch_for(strategies, numbers)
        assert torch.equal(found.images, wanted.images)
        assert torch.equal(strategies.around(plain)(found), reference.around(plain)(wanted))


def test_numbers_go_to_their_owners_and_differ_between_strategies() -> None:
    seen: dict[str, list[Tensor]] = {}

    class Spy(Strategy):
        numbers = 2

        def transform(self, pixels: Tensor, numbers: Tensor) -> Tensor:
            seen.setdefault(self.options.name, []).append(numbers)
            return pixels

        def compute_loss(self, inner: Loss, batch: Batch, numbers: Tensor) -> Tensor:
            seen[self.options.name].append(numbers)
            return inner(batch)

    spies = [Spy(StrategyOptions(name), PHASE) for name in ("a", "b")]
    strategies = combine("cwd:0.25", spies[0], "augment", spies[1])
    numbers = strategies.draw(len(LABELS), rng(3))
    assert numbers.shape == (2 + 6 + 2, len(LABELS))
    assert torch.equal(numbers, strategies.draw(len(LABELS), rng(3)))
    assert not torch.equal(numbers, strategies.draw(len(LABELS), rng(4)))
    assert len(numbers.unique()) == numbers.numel()
    strategies.around(plain)(batch_for(strategies, numbers))
    for name, rows in (("a", numbers[:2]), ("b", numbers[8:])):  # once for the view, once for the loss
        assert len(seen[name]) == 2
        assert all(torch.equal(own, rows) for own in seen[name])


def test_a_mixture_is_around_the_terms_which_see_the_labels_of_both() -> None:
    class Labels(Term):
        def __call__(self, batch: Batch) -> Tensor:
            return (batch.labels * torch.arange(1.0, 1 + len(batch.labels))).sum()

    strategies = combine(Labels(StrategyOptions("labels", 0.5), PHASE), "mixup")
    numbers = strategies.draw(len(LABELS), rng())
    batch, share = batch_for(strategies, numbers), numbers[0, 0].item()
    partners = sorted(range(len(LABELS)), key=numbers[1].tolist().__getitem__)
    wanted = 0.0
    for weight, labels in ((share, LABELS), (1 - share, [LABELS[partner] for partner in partners])):
        term = sum(place * label for place, label in enumerate(labels, 1))
        wanted += weight * (cross_entropy(batch.output.logits, labels).item() + 0.5 * term)
    assert strategies.around(plain)(batch).item() == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("names", [("mixup", "cutmix"), ("cutmix", "mixup")])
def test_two_mixtures_keep_their_order_and_labels_have_the_shares_of_their_images(names: tuple[str, str]) -> None:
    strategies = combine(*names)
    assert [part.options.name for part in strategies.parts] == [*names]
    for seed in range(8):
        numbers = strategies.draw(3, rng(seed))
        images = torch.eye(3)[:, :, None, None].expand(3, 3, 8, 8)  # channel i shows how much of image i there is
        mixed, logits = strategies.transform(images, numbers), normal(3, 3).float()
        batch = Batch(mixed, torch.arange(3), Output(logits, logits, logits, ()), None, numbers)
        wanted = -(mixed.mean((2, 3)) * logits.log_softmax(1)).sum() / 3
        assert strategies.around(plain)(batch).item() == pytest.approx(wanted.item(), rel=1e-5)


def test_augment_sla_and_cwd_equal_a_composition_by_hand() -> None:
    strategies, count = combine("cwd:0.25", "sla", "augment"), len(LABELS)
    numbers = strategies.draw(count, rng())
    batch = batch_for(strategies, numbers)
    upright = batch_for(combine("augment"), numbers).images.numpy()
    turned = [np.rot90(image[0], turns) for turns in range(4) for image in upright]
    assert np.array_equal(batch.images[:, 0], np.stack(turned))

    features, logits = batch.output.features.numpy(), batch.output.logits
    weights, bias = (parameter.detach().numpy() for parameter in strategies.parameters)
    joint = 0.0
    for place, row in enumerate(features):
        scores = np.exp(weights @ row + bias)
        joint -= np.log(scores[4 * LABELS[place % count] + place // count] / scores.sum()) / len(features)
    own = cross_entropy(logits[:count], LABELS).item() + 0.25 * slow_cwd(features[:count])
    assert strategies.around(plain)(batch).item() == pytest.approx(own + joint, rel=1e-5)


def test_a_preset_of_three_strategies_trains_with_them_in_phase_0_only(
    toy_config: Make, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, labels = "lucir+augment+sla+cwd:0.25/glyphs/b50s10", ["augment:1", "sla:1", "cwd:0.25"]
    assert [term.label for term in preset(name).initial] == labels
    used: list[list[str]] = []

    def note(stage_pass: StagePass, epoch: int) -> None:
        used.append([part.options.label for part in stage_pass.strategies.parts] if stage_pass.strategies else [])

    watch_epochs(monkeypatch, note)
    record = train(toy_config(name), data=toy_data)
    assert record["initial"] == labels
    assert used == [labels] * 2 + [[]] * 4  # two epochs in each of three phases
    other = train(toy_config("lucir+cwd:0.25+sla+augment/glyphs/b50s10"), data=toy_data)
    for phase, same in zip(record["phases"], other["phases"], strict=True):
        assert (phase["loss"], phase["confusion"]) == (same["loss"], same["confusion"])
