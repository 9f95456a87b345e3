"""A run, from a configuration to its record and its model."""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from phasezero import STARTED
from phasezero.config import RunConfig
from phasezero.data.catalog import load_data
from phasezero.data.images import ImageData, ImageSplit
from phasezero.data.sources import make_source
from phasezero.engine.callbacks import Callback
from phasezero.engine.deadline import Deadline, OutOfTimeError
from phasezero.engine.device import environment
from phasezero.engine.oracle import TrainedOracle
from phasezero.engine.resume import Saving, train_phases
from phasezero.engine.setup import Setup
from phasezero.engine.trainer import Trainer
from phasezero.errors import DivergenceError, UserError
from phasezero.methods import classifier_of
from phasezero.nets import IncrementalModel
from phasezero.presets import renamed
from phasezero.records.run import Record, Timing, data_record, run_record


@dataclass(frozen=True)
class RunResult:
    """Hold the record of a run and the model that it trained.

    >>> from phasezero import run
    >>> result = run(getfixture("tiny_config"), data=getfixture("toy_data"))
    >>> result.record["phases"][-1]["seen_classes"], len(result.class_names)
    (4, 4)
    """

    record: Record
    trainer: Trainer

    @property
    def model(self) -> IncrementalModel:
        return self.trainer.model

    @property
    def class_names(self) -> list[str]:
        """Return the names of the classes that the model knows, in the order of its outputs."""
        return self.record["data"]["class_names"][: self.record["phases"][-1]["seen_classes"]]

    def predict(self, images: npt.NDArray[np.uint8] | Sequence[Path], classifier: str | None = None) -> list[str]:
        """Return the class name of each image: uint8 [n, H, W, C], or paths of files for a run on photos.

        The default classifier is the method's own, or the head if that was not measured.

        >>> from phasezero import run
        >>> data = getfixture("toy_data")
        >>> len(run(getfixture("tiny_config"), data=data).predict(data.test.images[:3]))
        3
        """
        trainer, known = self.trainer, self.trainer.data.train.images
        got = f"{images.dtype} {images.shape}" if isinstance(images, np.ndarray) else type(images).__name__
        if isinstance(known, np.ndarray):
            shape = known.shape[1:]
            if not isinstance(images, np.ndarray) or (images.shape[1:], images.dtype) != (shape, known.dtype):
                raise UserError(f"predict: an array of uint8 images of shape {shape} is expected, got {got}")
            images = np.ascontiguousarray(images)  # a reversed view cannot become a tensor
        elif isinstance(images, np.ndarray | str | Path):
            raise UserError(f"predict: a list of image files is expected, as in training, got {got}")
        else:
            images = [Path(path) for path in images]
        if not len(images):
            return []
        labels = np.zeros(len(images), np.int64)
        split, place = ImageSplit(images, labels), (trainer.data.preparation, trainer.device.torch)
        with trainer.device.settings():
            source = make_source(split, torch.from_numpy(labels), *place)
            found = trainer.predict(source, torch.arange(len(images))).by
        if classifier is not None and classifier not in found:
            raise UserError(f"predict: no classifier {classifier!r}; available: {', '.join(found)}")
        answers = found.get(classifier or classifier_of(trainer.config.method.name), found["head"])
        return [self.class_names[answer] for answer in answers]


Outcome = Record | DivergenceError | None


@dataclass(frozen=True)
class Job:
    """Describe a run to be trained."""

    config: RunConfig
    saving: Saving = Saving()
    root: str | Path | None = None
    """The folder of data sets."""
    data: ImageData | None = None
    """The images, if they are already loaded."""
    setup: Setup | None = None
    """The result of `check`."""
    seconds: float = 0.0
    """The estimated duration of the run."""

    @property
    def title(self) -> str:
        return f"{self.config.name} seed {self.config.seed}"

    @property
    def fits(self) -> bool:
        """Tell whether the run would finish in time if it started now."""
        return self.saving.deadline is None or self.saving.deadline.allows(self.seconds)

    def outcome(self, callback: Callback, keep_going: bool = False) -> Outcome:
        """Train and return the record, or None if time was up. With `keep_going` return a divergence error."""
        try:
            return self.run(callback).record
        except OutOfTimeError:
            return None
        except DivergenceError as error:
            named = DivergenceError(f"{self.title}: {error}")
            if keep_going:
                return named
            raise named from None

    def run(self, callback: Callback | None = None) -> RunResult:
        """Train all phases and return the record and the model."""
        started, clock = datetime.datetime.now(datetime.UTC), time.perf_counter()
        config, data = self.config, self.data or load_data(self.config.protocol.data, self.root)
        oracle = TrainedOracle(config, data, callback, self.saving)
        trainer = Trainer(config, data, callback, oracle, self.setup)
        preparing = time.perf_counter() - clock
        trained = train_phases(trainer, self.saving)
        order = trainer.stream.order
        record = run_record(
            name=config.name or f"{config.label}/{config.protocol.data}",
            method=config.method.name,
            initial=[term.label for term in config.initial],
            seed=config.seed,
            config=config.to_dict(),
            data=data_record(
                name=data.name,
                class_ids=[data.class_ids[index] for index in order],
                class_names=[data.class_names[index] for index in order],
                class_order=trainer.stream.order_name,
                class_order_indices=list(order),
                train_images=sum(map(len, trainer.train_by_class)),
                test_images=sum(map(len, trainer.test_by_class)),
            ),
            phases=trained.phases,
            timing=Timing(
                started=started.isoformat(timespec="seconds"),
                seconds_total=preparing + trained.seconds,
                since_start=time.perf_counter() - STARTED,
                reused_phase_zero=trained.reused_phase_zero,
            ),
            environment=environment(trainer.device, trainer.setup.photos),
            earlier_parts=trained.parts,
        )
        return RunResult(record, trainer)


def run(
    config: RunConfig,
    *,
    root: str | Path | None = None,
    data: ImageData | None = None,
    callback: Callback | None = None,
    checkpoint: Path | None = None,
    store: Path | None = None,
    keep_phases: bool = False,
    deadline: Deadline | None = None,
    save_every: float = 60.0,
    allow_changes: bool = False,
) -> RunResult:
    """Train all phases and return the record and the model.

    `root` is the folder of data sets; `data` replaces loading. Each finished phase is saved to the file `checkpoint`,
    and the state within a phase next to it, again after `save_every` seconds. A run continues from them, under other
    conditions (versions, device, precision, threads) only with `allow_changes`. `keep_phases` also keeps the state
    after each phase in a separate file. A `store` folder shares finished phase-0 states between runs. With a `deadline`
    a run stops (OutOfTimeError) after a phase if the next phase would not be finished in time.

    >>> from phasezero import run
    >>> result = run(getfixture("tiny_config"), data=getfixture("toy_data"))  # preset("lucir+cwd/glyphs/b50s10"), say
    >>> sorted(result.record["summary"]["head"])[:2]
    ['average_incremental_accuracy', 'forgetting']
    """
    saving = Saving(checkpoint, store, keep_phases, deadline, every=save_every, allow_changes=allow_changes)
    return Job(renamed(config), saving, root, data).run(callback)
