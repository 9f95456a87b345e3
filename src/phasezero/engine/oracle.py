"""The oracle that the mimic term learns from: the same method's phase 0, with all classes of the stream at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.engine.callbacks import Callback, OracleCallback
from phasezero.engine.checkpoint import load_checkpoint, previous_file, state_file
from phasezero.engine.resume import Saving, train_phases
from phasezero.engine.setup import stream_of
from phasezero.engine.trainer import Trainer
from phasezero.errors import UserError
from phasezero.nets import IncrementalModel


@dataclass(frozen=True)
class TrainedOracle:
    """Provide the oracle: from a checkpoint if a path is given, otherwise from the store, or trained now."""

    config: RunConfig
    data: ImageData
    callback: Callback | None = None
    saving: Saving = Saving()
    """How the run is saved; a model that it trains first is saved next to its checkpoint."""

    def oracle(self, path: str) -> IncrementalModel:
        """Return the frozen oracle; `path` is a checkpoint, or empty."""
        protocol = self.config.protocol
        classes = len(stream_of(protocol, len(self.data.class_ids)).order)
        # It needs no exemplars but has the run's memory rule, so it equals phase 0 of a run on all classes, and the
        # two share an entry of the store.
        all_at_once = replace(protocol, phase_sizes=(classes,))
        config = replace(self.config, name=f"oracle/{protocol.data}", protocol=all_at_once, initial=())
        trainer = Trainer(config, self.data, OracleCallback(self.callback) if self.callback else None)
        if not path:
            self._train(trainer, "oracle")
        else:
            self._load_backbone(path, trainer.model)
            trainer.model.head.grow(classes, torch.Generator())
        return trainer.model.teacher_copy()

    def phase_zero(self, without: str) -> IncrementalModel:
        """Return the frozen model of this run's phase 0 without a strategy."""
        initial = tuple(one for one in self.config.initial if one.name != without)
        config = replace(self.config, name=f"teacher/{self.config.protocol.data}", initial=initial)
        callback = OracleCallback(self.callback, "teacher") if self.callback else None
        trainer = Trainer(config, self.data, callback, replace(self, config=config))
        self._train(trainer, "teacher", phases=1)
        teacher = trainer.model.teacher_copy()
        teacher.head.train()  # the head that phase 0 trained: a frozen method has another classifier in evaluation
        return teacher

    def _train(self, trainer: Trainer, name: str, phases: int | None = None) -> None:
        """Train a model before the run; after a stop it continues like a run."""
        own = self.saving.checkpoint
        path = None if own is None else own.with_name(f"{own.stem}-{name}{own.suffix}")
        train_phases(trainer, replace(self.saving, checkpoint=path, keep_phases=False, deadline=None, phases=phases))
        for made in (path, state_file(path)) if path is not None else ():
            made.unlink(missing_ok=True)
            previous_file(made).unlink(missing_ok=True)

    def _load_backbone(self, path: str, model: IncrementalModel) -> None:
        """Load the backbone of a checkpoint; raise UserError for another network, other data or other classes."""
        saved = load_checkpoint(Path(path))
        other, mine, seen = RunConfig.from_record(saved.config), self.config, saved.phases[-1]["seen_classes"]
        order, its = (stream_of(config.protocol, len(self.data.class_ids)).order for config in (mine, other))
        if seen < len(order) - 1:  # the authors' own oracle lacked a class
            raise UserError(f"oracle {path} has seen {seen} classes, the run has {len(order)}")
        if other.network != mine.network:  # shapes would fit even if the last ReLU differs
            raise UserError(f"oracle {path} has other network settings than this run ({mine.network.name!r})")
        if other.protocol.data != mine.protocol.data:
            raise UserError(
                f"oracle {path} was trained on {other.protocol.data!r}, the run is on {mine.protocol.data!r}"
            )
        missing = set(order) - set(its[:seen])
        if len(missing) > 1:
            names = ", ".join(self.data.class_names[index] for index in sorted(missing)[:3])
            raise UserError(f"oracle {path} has not seen {len(missing)} of the run's classes ({names}, ...)")
        prefix = "backbone."
        backbone = {name.removeprefix(prefix): t for name, t in saved.model.items() if name.startswith(prefix)}
        try:
            model.backbone.load_state_dict(backbone)
        except RuntimeError:
            raise UserError(f"oracle {path} does not fit the network {mine.network.name!r}") from None
