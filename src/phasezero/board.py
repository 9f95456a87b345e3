"""TensorBoard: a listener that writes a run's losses, accuracies and configuration as they come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from phasezero.config import RunConfig
from phasezero.data.stream import Phase
from phasezero.engine.outcome import PhaseResult
from phasezero.errors import UserError
from phasezero.results.record import PhaseRecord
from phasezero.session import slug


def boards(folder: Path) -> Callable[[RunConfig], Board]:
    """What makes a run's board, in a folder of its own; refuses at once where TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError(
            "--tensorboard needs the package tensorboard: pip install 'phasezero[tensorboard]'"
        ) from None

    def make(config: RunConfig) -> Board:
        return Board(SummaryWriter(str(folder / slug(config.name) / f"seed{config.seed}")), config)

    return make


class Board:
    """`loss/STAGE` by the epochs of that stage so far, `accuracy/CLASSIFIER` by the classes seen."""

    def __init__(self, writer: Any, config: RunConfig) -> None:
        self.writer, self.phases = writer, 0
        self.first_epochs = config.training.first.epochs
        writer.add_text("configuration", f"```yaml\n{config.to_yaml()}```")

    def reused(self, phase: PhaseRecord) -> None:
        for stage, losses in phase["loss"].items():
            for epoch, loss in enumerate(losses):
                self.writer.add_scalar(f"loss/{stage}", loss, epoch)
        self._write_accuracies(phase["accuracy"], phase["seen_classes"])

    def started(self, phases: int, total_images: int) -> None:
        self.phases = phases

    def epoch(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        # Counted from the phase, not from what was heard: a run that goes on continues its curve. Stages other than
        # the first (fine-tuning, bias) are of the later phases alone.
        in_phase_0 = self.first_epochs if stage == "train" else 0
        before = in_phase_0 + (phase.index - 1) * epochs if phase.index else 0
        self.writer.add_scalar(f"loss/{stage}", loss, before + epoch)

    def phase(self, result: PhaseResult) -> None:
        self._write_accuracies(result.accuracies, result.phase.seen)
        if result.phase.index == self.phases - 1:
            self.writer.close()

    def _write_accuracies(self, accuracies: Mapping[str, Any], seen: int) -> None:
        for classifier, accuracy in accuracies.items():
            if accuracy is not None:
                self.writer.add_scalar(f"accuracy/{classifier}", accuracy, seen)
        self.writer.flush()  # a finished phase can be looked at, whatever happens to the run
