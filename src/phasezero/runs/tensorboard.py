"""TensorBoard: a callback that logs a run's losses, accuracies and configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from phasezero.config import RunConfig
from phasezero.data.stream import Phase
from phasezero.engine.callbacks import Callback, PhaseResult
from phasezero.errors import UserError
from phasezero.records.run import PhaseRecord
from phasezero.runs.session import run_folder


def tensorboard_callbacks(folder: Path) -> Callable[[RunConfig], TensorBoard]:
    """Return a function that makes a run's callback; raise UserError if TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError("--tensorboard needs the package tensorboard: pip install 'phasezero[tensorboard]'") from None
    return lambda config: TensorBoard(SummaryWriter(str(run_folder(folder, config))), config)


class TensorBoard(Callback):
    """Write `loss/STAGE` by the epochs of that stage so far, `accuracy/CLASSIFIER` by the classes seen."""

    def __init__(self, writer: Any, config: RunConfig) -> None:
        self.writer, self.phases = writer, 0
        self.first_epochs = config.training.first.epochs
        writer.add_text("configuration", f"```yaml\n{config.to_yaml()}```")

    def on_phase_reused(self, record: PhaseRecord) -> None:
        for stage, losses in record["loss"].items():
            for epoch, loss in enumerate(losses):
                self.writer.add_scalar(f"loss/{stage}", loss, epoch)
        self._write_accuracies(record)

    def on_run_start(self, phases: int, images: int) -> None:
        self.phases = phases

    def on_epoch_end(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        # Counted from the phase, not from earlier calls, so a resumed run continues its curve. Stages other than the
        # first (fine-tuning, bias) belong to the later phases only.
        in_phase_0 = self.first_epochs if stage == "train" else 0
        before = in_phase_0 + (phase.index - 1) * epochs if phase.index else 0
        self.writer.add_scalar(f"loss/{stage}", loss, before + epoch)
        self.writer.flush()  # the file of a run that diverges is never closed

    def on_phase_end(self, result: PhaseResult) -> None:
        self._write_accuracies(result.record)
        if result.phase.index == self.phases - 1:
            self.writer.close()

    def _write_accuracies(self, record: PhaseRecord) -> None:
        for classifier, accuracy in record["accuracy"].items():
            if accuracy is not None:
                self.writer.add_scalar(f"accuracy/{classifier}", accuracy, record["seen_classes"])
        self.writer.flush()  # make a finished phase visible, whatever happens to the run
