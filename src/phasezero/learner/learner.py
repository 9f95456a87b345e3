"""A classifier of images that grows class by class, in the conventions of scikit-learn."""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.config import RunConfig
from phasezero.data.files import Item, read_image
from phasezero.data.images import ImageData, ImageSplit
from phasezero.data.sources import make_source
from phasezero.data.stream import Phase, cut_phases
from phasezero.engine.device import Device
from phasezero.engine.evaluate import evaluate_images, exemplar_means
from phasezero.engine.oracle import TrainedOracle
from phasezero.engine.setup import Setup, images_by_phase, stream_of
from phasezero.engine.trainer import Trainer
from phasezero.errors import UserError
from phasezero.learner.calibration import Calibration, held_out
from phasezero.learner.comparison import Comparison, compare
from phasezero.learner.conventions import Estimator
from phasezero.learner.exemplars import encoded, fingerprint
from phasezero.learner.labelled import Name, images, labelled
from phasezero.learner.module import load_any
from phasezero.learner.progress import SOLVING, EpochProgress, watch
from phasezero.learner.recipe import fits_in_memory, from_scratch, make_config, preparation_of
from phasezero.methods import classifier_of
from phasezero.methods.frozen import FrozenHead
from phasezero.nets import Features, IncrementalModel, Output
from phasezero.steps import Progress

EMBEDDED = "efficientnet-lite0"
UNKNOWN = "unknown"
REJECTED = 0.05  # share of images of known classes that reject=True takes for unknown
BATCH = 64


class Learner(Estimator):
    """Learn classes of images, and more classes later without the old images.

    By default features of a pretrained network go to an exact ridge classifier, which needs no GPU. `method` may be any
    method of the package, `initial` its phase-0 strategies, `memory` its exemplars (`per_class:20`). `backbone` is what
    `phasezero.nets.load_backbone` takes, a module, or `none` to train from scratch. Then `fit` chooses network, image
    size and schedule from the images, and writes them to stderr. `backbone_lr` is the learning rate of a pretrained
    backbone relative to the head's; 0 freezes it. `settings` are fields of a configuration, by dotted keys.

    >>> import numpy as np
    >>> from phasezero import Learner
    >>> images, labels = np.zeros((8, 16, 16, 3), np.uint8), np.repeat(["dark", "light"], 4)
    >>> images[4:] = 255
    >>> learner = Learner(backbone="none", settings={"epochs": 1}).fit(images, labels)
    >>> list(learner.classes_)
    ['dark', 'light']
    """

    classes_: np.ndarray[Any, Any]
    """The classes, in the order in which they were learned."""
    history_: list[dict[str, Any]]
    """What each call learned: classes, images, accuracy on held-out images, seconds."""
    model_: IncrementalModel
    config_: RunConfig

    def __init__(
        self,
        method: str = "ridge",
        *,
        backbone: str | torch.nn.Module = EMBEDDED,
        initial: Sequence[str] = (),
        memory: str | None = None,
        backbone_lr: float | None = None,
        settings: Mapping[str, Any] | None = None,
        device: str = "auto",
        seed: int = 0,
        progress: Progress | None = None,
    ) -> None:
        # Kept as they are, so that scikit-learn can clone a learner.
        self.method, self.backbone, self.initial, self.memory = method, backbone, initial, memory
        self.backbone_lr, self.settings, self.device, self.seed = backbone_lr, settings, device, seed
        self.progress = progress

    # Learning

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Forget everything and learn these classes, as phase 0."""
        first = labelled(X, y)
        pretrained = load_any(self.backbone)
        by_class = first.by_class()
        self.config_ = make_config(self.get_params(), pretrained, first.items, len(by_class))
        if pretrained is not None:
            pretrained = pretrained.for_size(self.config_.network.image_size)
        self._pretrained, self._preparation = pretrained, preparation_of(first.items, pretrained)
        self._in_memory = pretrained is None and fits_in_memory(first.items)
        self._side = np.asarray(first.items[0]).shape[:2] if self._in_memory else ()
        self._names, self._places = list[Name](), dict[Name, int]()
        self._sizes, self.history_ = list[int](), list[dict[str, Any]]()
        self._exemplars = list[list[Item]]()
        self._means: Tensor | None = None
        self._calibration, self._seen, self._saved = Calibration(), dict[int, int](), dict[str, Any]()
        if pretrained is None:
            print(from_scratch(self.config_, self._preparation), file=sys.stderr)
        self._learn(by_class)
        return self

    def add_classes(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Learn new classes as the next phase, from their images and what the model keeps."""
        self._check_fitted()
        by_class = labelled(X, y).by_class()
        if known := [name for name in by_class if name in self._places]:
            raise UserError(f"class {known[0]!r} is known already; add_examples takes more images of known classes")
        self._learn(by_class)
        return self

    def add_examples(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Add images of known classes. The classifier is then that of all images ever given.

        Images that were learned before are left out.
        """
        self._check_fitted()
        by_class = labelled(X, y).by_class()
        if unknown := [name for name in by_class if name not in self._places]:
            raise UserError(f"class {unknown[0]!r} is not known; add_classes learns new classes")
        head = self.model_.head
        if not isinstance(head, FrozenHead):
            raise UserError(
                f"method {self.method!r} cannot add images to known classes; ncm, slda, fecam and ridge can"
            )
        by_class = self._check_not_seen(by_class).more
        if not by_class:
            return self
        items = [item for own in by_class.values() for item in own]
        features = self._features(items, "reading new images")
        start = 0
        for name, own in by_class.items():
            head.add(self._places[name], features[start : start + len(own)])
            start += len(own)
        self._solve(head)
        for name, own in by_class.items():
            self._remember(self._places[name], own)
        self.history_.append({"added": {str(name): len(own) for name, own in by_class.items()}})
        return self

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None) -> Self:  # noqa: N803
        """Learn new classes, and add images of known classes; `classes` is not needed and not used."""
        if not hasattr(self, "classes_"):
            return self.fit(X, y)
        by_class = labelled(X, y).by_class()
        new, more = ([name for name in by_class if (name in self._places) == known] for known in (False, True))
        for names, learn in ((new, self.add_classes), (more, self.add_examples)):
            pairs = [(item, name) for name in names for item in by_class[name]]
            if pairs:
                learn(pairs)
        return self

    def _learn(self, by_class: Mapping[Name, list[Item]]) -> None:
        """Train the next phase on images of new classes."""
        started = time.perf_counter()
        if self._names and {type(name) for name in by_class} != {type(self._names[0])}:
            raise UserError("new classes must be texts if the known classes are texts, and numbers if they are numbers")
        self._check_not_seen(by_class)
        parts = [held_out(own) for own in by_class.values()]
        sizes, names = [*self._sizes, len(by_class)], [*self._names, *by_class]
        classes = [*self._exemplars, *(kept for kept, _ in parts)]
        trainer = self._trainer(classes, names, sizes)
        if self._names:
            # A copy, because a phase may fail. Of old classes the trainer has the exemplars alone, best first.
            kept = trainer.train_by_class[: len(self._names)]
            trainer.continue_from(len(self._sizes), copy.deepcopy(self.model_), kept)
        count, then = sum(len(kept) for kept, _ in parts), "" if trainer.method.trains_later else SOLVING
        watch(trainer.train, self.progress, "extracting features", count, then)
        phase = trainer.stream.phases[-1]
        with trainer.device.settings():
            training = trainer.train_phase(phase)
        if then and self.progress is not None:
            self.progress(then, 1, 1)
        # From here on nothing fails for bad input, so a failed phase leaves the learner as it was.
        self.model_, self._place = trainer.model, trainer.device
        chosen = [own.tolist() for own in trainer.memory.by_class]
        every = [item for own in classes for item in own]
        self._exemplars = [
            [every[at] if position < phase.old else self._encoded(every[at]) for at in own]
            for position, own in enumerate(chosen)
        ]
        self._sizes, self.config_ = sizes, trainer.config
        self._set_names(names)
        if classifier_of(self.config_.method.name) == "nearest_mean" and all(self._exemplars):
            items = [item for own in self._exemplars for item in own]
            self._means = exemplar_means(self._features(items, "exemplars"), [len(own) for own in self._exemplars])
        accuracy = self._calibrate(phase, [held for _, held in parts])
        for position, own in enumerate(by_class.values(), phase.old):
            self._remember(position, own)
        self.history_.append(
            {
                "phase": phase.index,
                "classes": [str(name) for name in by_class],
                "images": sum(map(len, by_class.values())),
                "held_out": sum(len(held) for _, held in parts),
                "held_out_accuracy": accuracy,
                "loss": {stage: values[-1] for stage, values in training.losses.items() if values},
                "seconds": time.perf_counter() - started,
            }
        )

    def _trainer(self, classes: Sequence[Sequence[Item]], names: Sequence[Name], sizes: Sequence[int]) -> Trainer:
        """Return the trainer of the next phase. Of old classes it sees the exemplars alone."""
        config = self.config_.override({"protocol.phase_sizes": list(sizes), "protocol.base": sizes[0]})
        labels = np.repeat(np.arange(len(classes)), [len(own) for own in classes])
        train = ImageSplit(self._stacked([item for own in classes for item in own]), labels)
        texts = tuple(map(str, names))
        data = ImageData("learner", texts, texts, train, ImageSplit(train.images[:0], labels[:0]), self._preparation)
        stream = stream_of(config.protocol, len(names))
        device = Device.choose(config.engine, config.training.first.steps(len(labels)))
        steps = images_by_phase(config, stream, [len(own) for own in classes])
        setup = Setup(stream, device, None if self._in_memory else "files", steps)
        callback = EpochProgress(self.progress) if self.progress else None
        # A teacher of phase 0 is trained as a run is, which ends with a test: on an image of each class, for no use.
        first = np.unique(labels, return_index=True)[1]
        tested = ImageSplit(self._stacked([train.images[at] for at in first]), labels[first])
        provider = TrainedOracle(config, replace(data, test=tested), callback)
        return Trainer(config, data, callback, provider, setup, self._pretrained)

    def _calibrate(self, phase: Phase, held_out: Sequence[Sequence[Item]]) -> float | None:
        """Calibrate on held-out images and return the accuracy on them; an exact method then adds them."""
        items = [item for own in held_out for item in own]
        if not items:
            return None
        counts = torch.tensor([len(own) for own in held_out])
        labels = torch.arange(phase.old, phase.seen).repeat_interleave(counts)
        features = self._features(items, "calibrating")
        scores = self._scores(features)
        self._calibration.add(scores.cpu(), labels)
        if isinstance(head := self.model_.head, FrozenHead):
            for position, own in enumerate(features.split(counts.tolist()), phase.old):
                head.add(position, own)
            self._solve(head)
        return float((scores.argmax(1).cpu() == labels).double().mean())

    def _solve(self, head: FrozenHead) -> None:
        """Compute the exact classifier, which may take long, and report it."""
        report = self.progress or (lambda *_: None)
        report(SOLVING, 0, 1)
        head.update()
        report(SOLVING, 1, 1)

    def compare(self, X: Any, y: Any = None) -> Comparison:  # noqa: N803
        """Return which of these labelled images are new, and which repeat or contradict what was learned."""
        report = self.progress
        told = None if report is None else lambda done, total: report("comparing images", done, total)
        fitted = hasattr(self, "classes_")
        names, seen = (self._names, self._seen) if fitted else ([], {})
        return compare(labelled(X, y).by_class(), names, seen, told)

    @property
    def can_add_examples(self) -> bool:
        """Whether the method can add images to known classes, which then gives the classifier of all images."""
        self._check_fitted()
        return isinstance(self.model_.head, FrozenHead)

    # Predicting

    def predict(self, X: Any, reject: float | bool = False) -> np.ndarray[Any, Any]:  # noqa: N803
        """Return the class of each image.

        With `reject` an image is "unknown" if its probability is below that of this share of held-out images of known
        classes; True means 0.05.
        """
        found = self.predict_proba(X)
        answers = self.classes_[found.argmax(1)]
        if reject is not False:
            limit = self.threshold(REJECTED if reject is True else float(reject))
            answers = np.where(found.max(1) < limit, UNKNOWN, answers.astype(object))
        return np.asarray(answers)

    def predict_proba(self, X: Any) -> np.ndarray[Any, Any]:  # noqa: N803
        """Return probabilities [n, C]; columns are in the order of `classes_`."""
        self._check_fitted()
        items = images(X)
        if not items:
            return np.zeros((0, len(self._names)))
        found = self._run(items, "predicting", lambda output: self._scores(output.features))
        return self._calibration.probabilities(found.cpu()).numpy()

    def threshold(self, share: float) -> float:
        """Return the probability that this share of held-out images of known classes did not reach."""
        self._check_fitted()
        return self._calibration.threshold(share)

    def top(self, X: Any, k: int = 5) -> list[list[tuple[Name, float]]]:  # noqa: N803
        """Return the k most probable classes of each image, with their probabilities."""
        if k < 1:
            raise UserError(f"top: k must be at least 1, got {k}")
        self._check_fitted()

        def best(output: Output) -> Tensor:
            shares = self._calibration.probabilities(self._scores(output.features).cpu())
            return torch.stack(shares.sort(stable=True, dim=1, descending=True), 2)[:, :k]

        items = images(X)
        found = self._run(items, "predicting", best).tolist() if items else []
        return [[(self._names[int(at)], share) for share, at in own] for own in found]

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """Return the share of images that are classified correctly."""
        return float(self.evaluate(X, y)["accuracy"])

    def evaluate(self, X: Any, y: Any = None) -> dict[str, Any]:  # noqa: N803
        """Return the accuracy in all, by class and by phase, and the confusion matrix, on labelled images."""
        self._check_fitted()
        tested = labelled(X, y)
        if unknown := sorted({str(name) for name in tested.names if name not in self._places}):
            raise UserError(f"the model does not know class {unknown[0]!r} ({len(unknown)} such classes)")
        truth = np.array([self._places[name] for name in tested.names])
        best = self._run(tested.items, "predicting", lambda output: self._scores(output.features).argmax(1))
        found, classes = best.cpu().numpy(), len(self._names)
        confusion = np.zeros((classes, classes), np.int32)  # its zeros take no memory
        np.add.at(confusion, (truth, found), 1)
        total, right = (np.bincount(own, minlength=classes) for own in (truth, truth[truth == found]))
        starts = np.cumsum([0, *self._sizes[:-1]])
        phases = zip(np.add.reduceat(right, starts), np.add.reduceat(total, starts), strict=True)
        return {
            "images": len(truth),
            "accuracy": float(right.sum() / len(truth)),
            "by_class": {name: float(right[at] / total[at]) for name, at in self._places.items() if total[at]},
            "by_phase": [float(hits / images) if images else None for hits, images in phases],
            "confusion": confusion,
        }

    # Files

    def save(self, folder: str | Path) -> Path:
        """Write the model into a folder: safetensors, JSON, exemplars as images, and a model card."""
        from phasezero.learner.folder import save

        self._check_fitted()
        return save(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path, *, backbone: torch.nn.Module | None = None, device: str = "auto") -> Learner:
        """Return the learner of a folder. `backbone` is needed if the model was made with a module."""
        from phasezero.learner.folder import load

        return load(Path(folder), backbone, device)

    # Parts

    def _set_names(self, names: list[Name]) -> None:
        self._names, self._places = names, {name: place for place, name in enumerate(names)}
        self.classes_ = np.array(names, dtype=object if isinstance(names[0], str) else np.int64)

    def _phases(self) -> list[Phase]:
        return list(cut_phases(sum(self._sizes), 0, 0, self._sizes))

    def _check_fitted(self) -> None:
        if not hasattr(self, "classes_"):
            raise UserError("this learner has learned nothing yet; call fit first")

    def _check_not_seen(self, by_class: Mapping[Name, list[Item]]) -> Comparison:
        """Compare images with those learned; raise UserError for an image of two classes."""
        found = compare(by_class, self._names, self._seen)
        wrong = [(one.item, one.given, one.other) for one in found.conflicts]
        wrong += [(by_class[name][0], name, before) for name, before in found.renamed.items()]
        if wrong:
            item, name, before = wrong[0]
            what = item if isinstance(item, Path) else "an image"
            raise UserError(f"{what} is given as {name!r}, and the same image as {before!r}; remove it from one")
        return found

    def _remember(self, position: int, own: Sequence[Item]) -> None:
        self._seen |= dict.fromkeys(map(fingerprint, own), position)

    def _encoded(self, item: Item) -> Item:
        return encoded(item, None if self._in_memory else self._preparation.resize)

    def _stacked(self, items: Sequence[Item]) -> Any:
        """Return items as a split holds them: an array if images are kept in memory."""
        if not self._in_memory:
            return list(items)
        channels = len(self._preparation.mean)
        pixels = [(item if isinstance(item, np.ndarray) else np.asarray(read_image(item))) for item in items]
        grown = [one[..., None] if one.ndim == 2 else one for one in pixels]
        if {one.shape[:2] for one in grown} - {self._side}:
            raise UserError(f"images must all have the shape of the first images, {self._side}")
        fitting = [one[..., :channels] for one in grown]
        return np.stack(fitting) if fitting else np.zeros((0, *self._side, channels), np.uint8)

    def _features(self, items: Sequence[Item], what: str) -> Tensor:
        return self._run(items, what, lambda output: output.features)

    def _run(self, items: Sequence[Item], what: str, take: Callable[[Output], Tensor]) -> Tensor:
        """Return `take` of the model's output on each image, in the test view."""
        labels = torch.zeros(len(items), dtype=torch.long)
        split = ImageSplit(self._stacked(items), labels.numpy())
        source = make_source(split, labels, self._preparation, self._place.torch)
        watch(source, self.progress, what, len(items))
        with self._place.settings():
            return evaluate_images(self.model_, source, torch.arange(len(items)), BATCH, take)

    def _scores(self, features: Tensor) -> Tensor:
        """Return the scores of the method's own classifier."""
        if self._means is not None:
            return F.normalize(features, dim=1) @ self._means.T
        was_training = self.model_.training
        self.model_.eval()
        with torch.inference_mode():
            scores = self.model_.classify(Features(features, ())).logits
        self.model_.train(was_training)
        return scores
