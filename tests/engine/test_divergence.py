"""Training that diverges or collapses stops with a clear error."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from phasezero.data.images import ImageData
from phasezero.engine.stage import check_collapse
from phasezero.engine.trainer import Trainer
from phasezero.errors import DivergenceError
from samples import Make, train


@pytest.mark.parametrize("setting", [{"training.first.lr": 1e9}, {"engine.loss_limit": 0.001}])
def test_divergence_is_called_by_its_name(setting: dict[str, Any], toy_config: Make, toy_data: ImageData) -> None:
    with pytest.raises(DivergenceError, match=r"phase 0, stage 'train', epoch \d.*learning rate"):
        train(toy_config().override(setting), data=toy_data)


@pytest.mark.parametrize("sizes", [[4], [1]])
def test_a_last_step_that_breaks_the_network_is_called_divergence(
    sizes: list[int], toy_config: Make, toy_data: ImageData
) -> None:
    """The only loss was computed before the only step, so it cannot show the divergence."""
    one_step = {"epochs": 1, "batch_size": 64, "lr": 1e30}
    settings = {f"training.first.{key}": value for key, value in one_step.items()}
    config = toy_config("bic/glyphs/b50s10").override({**settings, "protocol.phase_sizes": sizes})
    with pytest.raises(DivergenceError, match=r"after phase 0 the features are not finite.*learning rate"):
        train(config, data=toy_data)


def test_a_network_that_sees_no_difference_is_called_collapsed(
    toy_config: Make, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trainer, "train_features", lambda trainer, indices: torch.ones(len(indices), 8))
    with pytest.raises(DivergenceError, match="after phase 0 all images have the same features"):
        train(toy_config(), data=toy_data)

    equal = torch.ones(3, 5)
    check_collapse(equal[:1], "one image tells nothing")
    check_collapse(equal + 1e-2 * torch.eye(3, 5), "a small difference is enough")
    with pytest.raises(DivergenceError):
        check_collapse(equal + 1e-4 * torch.eye(3, 5), "but not a difference that rounding could make")
    with pytest.raises(DivergenceError):
        check_collapse(torch.stack([equal[0], 7 * equal[0]]), "lengths do not matter")
