"""What a trained phase leaves behind, and its block of the record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phasezero.data.stream import Phase
from phasezero.engine.evaluate import Labels, Predictions
from phasezero.results.metrics import Counts, confusion_matrix
from phasezero.results.record import Gpu, PhaseRecord, phase_record


@dataclass(frozen=True)
class PhaseResult:
    phase: Phase
    train_images: int
    predictions: Predictions
    """On the test images of all seen classes."""
    memory: list[int]
    """Exemplars kept of each seen class."""
    loss: dict[str, list[float]]
    """The mean loss of each epoch, by stage."""
    seconds: dict[str, float]
    gpu: Gpu | None = None

    @property
    def accuracies(self) -> dict[str, float]:
        """On those images, in percent, of each classifier that there is."""
        truth, answers = self.predictions.truth, self.predictions._asdict()
        return {
            name: 100 * float((truth == predicted).mean())
            for name, predicted in answers.items()
            if name != "truth" and predicted is not None
        }

    def to_record(self, phase_sizes: Sequence[int]) -> PhaseRecord:
        """`phase_sizes`: of all phases up to this one."""
        answers = self.predictions

        def confusion(predicted: Labels) -> Counts:
            return confusion_matrix(answers.truth, predicted, self.phase.seen)

        record = phase_record(
            phase_sizes=phase_sizes,
            confusion=confusion(answers.head),
            nearest_mean_confusion=None if answers.nearest_mean is None else confusion(answers.nearest_mean),
            uncorrected_confusion=None if answers.uncorrected is None else confusion(answers.uncorrected),
            train_images=self.train_images,
            memory_per_class=self.memory,
            loss=self.loss,
            seconds=self.seconds,
        )
        return record if self.gpu is None else {**record, "gpu": self.gpu}
