"""The served model: a version that predicts while the next is learned, then takes its place."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import threading
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.data.files import MAX_PIXELS, TooManyPixelsError, centre_view, read_ahead, read_image
from phasezero.data.images import ImageSplit, View
from phasezero.data.loader import ResidentImages
from phasezero.engine.evaluate import pooled_features
from phasezero.errors import DivergenceError, UserError
from phasezero.learner import Learner
from phasezero.learner.folder import PREVIOUS, locked, read_model, undo
from phasezero.learner.labelled import Name
from phasezero.methods.frozen import FrozenHead
from phasezero.serve.batches import Batches
from phasezero.serve.limits import Limits, Problem, busy
from phasezero.validation import check_printable, whole_number

Pixels = npt.NDArray[np.uint8]

BATCH = 32
DECODERS = 2  # an image of MAX_PIXELS takes 200 MB or more while it is decoded
COMPARED, COMPARED_PER_CLASS = 1000, 10  # kept photos among which similar photos are searched
CHUNK = 8
LOCK_WAIT = 5.0
LONGEST_NAME = 100
FORMATS = "JPEG, PNG, BMP, WebP or TIFF"


@dataclass(frozen=True)
class Version:
    """A learner that does not change any more, and unit features of some of its kept photos."""

    learner: Learner
    kept: tuple[tuple[int, int], ...] = ()
    """Class and position of each compared photo."""
    features: Tensor | None = None

    @property
    def identity(self) -> tuple[str, int]:
        return self.learner._saved["id"], self.learner._saved["version"]

    @property
    def number(self) -> int:
        return self.identity[1]

    @property
    def exact(self) -> bool:
        """Tell whether known classes take more photos."""
        return isinstance(self.learner.model_.head, FrozenHead)

    def exemplar(self, position: int, number: int) -> bytes:
        """Return a kept photo as the content of a file."""
        kept = self.learner._exemplars[position][number : number + 1] if position < len(self.learner._names) else []
        if not kept or not isinstance(kept[0], bytes):
            raise Problem(404, f"there is no kept photo {number} of class {position}; /classes has the counts")
        return kept[0]

    def describe(self) -> dict[str, Any]:
        """Return classes and phases, and what is known about them."""
        learner = self.learner
        counts = Counter(learner._seen.values())
        accuracy = {entry["phase"]: entry.get("held_out_accuracy") for entry in learner.history_ if "phase" in entry}
        phases = [phase for phase, size in enumerate(learner._sizes) for _ in range(size)]
        return {
            "version": self.number,
            "method": learner.method,
            "can_add_examples": self.exact,
            "can_reject": bool(learner._calibration.confidences),
            "last_change": {key: value for key, value in learner.history_[-1].items() if key in ("classes", "added")},
            "phases": [
                {"phase": phase, "classes": size, "accuracy": accuracy.get(phase)}
                for phase, size in enumerate(learner._sizes)
            ],
            "classes": [
                {
                    "index": position,
                    "name": str(name),
                    "phase": phase,
                    "images": counts[position],
                    "exemplars": len(learner._exemplars[position]),
                    "accuracy": accuracy.get(phase) if learner._sizes[phase] == 1 else None,
                }
                for position, (name, phase) in enumerate(zip(learner._names, phases, strict=True))
            ],
        }


@dataclass(frozen=True)
class Answer:
    """The prediction for an image: the version that made it, probabilities [C] and the feature [d]."""

    version: Version
    probabilities: Tensor
    feature: Tensor

    def top(self, count: int) -> list[dict[str, Any]]:
        """Return the most probable classes."""
        order = self.probabilities.argsort(descending=True, stable=True)[:count].tolist()
        return [
            {"index": at, "name": str(self.version.learner._names[at]), "probability": float(self.probabilities[at])}
            for at in order
        ]

    def similar(self, count: int) -> list[dict[str, Any]]:
        """Return the kept photos whose features have the largest cosine with the image's feature."""
        version = self.version
        if version.features is None or not count:
            return []
        cosines = version.features @ F.normalize(self.feature, dim=0)
        found = cosines.topk(min(count, len(cosines)))
        places = [version.kept[at] for at in found.indices.tolist()]
        return [
            {"class": position, "name": str(version.learner._names[position]), "n": number, "cosine": round(cosine, 4)}
            for (position, number), cosine in zip(places, found.values.tolist(), strict=True)
        ]


class Model:
    """A model folder that predicts, learns and undoes. Its asynchronous methods are called in one event loop."""

    def __init__(self, folder: Path, *, device: str = "auto", limits: Limits | None = None) -> None:
        self.folder, self.device, self.limits = folder, device, limits or Limits()
        self.version = Version(Learner.load(folder, device=device))
        self.progress: dict[str, Any] | None = None
        """What is being learned, and how far it is; None while nothing is."""
        self._lock = threading.Lock()  # held while the version's network is used
        self._features = dict[bytes, Tensor]()
        self._waiting = 0
        self._decoders = ThreadPoolExecutor(DECODERS, "decoding")
        self._changes = ThreadPoolExecutor(1, "learning")
        self._batches = Batches[Pixels, Answer](self._predict, BATCH)
        self.ready = self._changes.submit(self._compare_kept)

    def close(self) -> None:
        """Finish the change that is being made, and end all threads."""
        self._changes.shutdown()
        self._batches.close()
        self._decoders.shutdown()

    @property
    def can_undo(self) -> bool:
        return (self.folder / PREVIOUS).exists()

    # Predicting

    async def predict(self, photos: Sequence[bytes]) -> Sequence[Answer]:
        """Return the prediction for each image file."""
        if self._waiting + len(photos) > self.limits.waiting_images:
            raise busy("too many images wait for a prediction; try again later")
        self._waiting += len(photos)
        try:
            views = await self._views(photos)
            return await asyncio.wrap_future(self._batches.submit(views))
        finally:
            self._waiting -= len(photos)

    async def _views(self, photos: Sequence[bytes]) -> list[Pixels]:
        """Return what the network sees of each image file; raise Problem for the first that cannot be read."""
        loop = asyncio.get_running_loop()
        work = [loop.run_in_executor(self._decoders, self._view, at, photo) for at, photo in enumerate(photos)]
        found = await asyncio.gather(*work, return_exceptions=True)
        views = list[Pixels]()
        for one in found:
            if isinstance(one, BaseException):
                raise one
            views.append(one)
        return views

    def _view(self, at: int, photo: bytes) -> Pixels:
        learner = self.version.learner
        try:
            image = read_image(photo)
        except TooManyPixelsError:
            raise Problem(413, f"image {at + 1} has more than {MAX_PIXELS:,} pixels; shrink it") from None
        except UserError:
            raise Problem(400, f"image {at + 1} cannot be read as {FORMATS}") from None
        if not learner._in_memory:
            return centre_view(image, learner._preparation.resize, learner._preparation.size)
        height, width = learner._side
        if image.size != (width, height):
            raise Problem(400, f"image {at + 1} must have {width} x {height} pixels, as the images learned first")
        return np.ascontiguousarray(np.asarray(image)[..., : len(learner._preparation.mean)])

    def _predict(self, views: list[Pixels]) -> list[Answer]:
        version = self.version
        learner = version.learner
        with self._lock:
            features = self._extract(learner, views)
            scores = learner._scores(features)
        probabilities = learner._calibration.probabilities(scores.cpu())
        return [Answer(version, *one) for one in zip(probabilities, features.cpu(), strict=True)]

    @staticmethod
    def _extract(learner: Learner, views: Sequence[Pixels]) -> Tensor:
        """Return features of images in the test view, as the learner computes them from files."""
        labels = torch.zeros(len(views), dtype=torch.long)
        preparation = replace(learner._preparation, view=View("pad"))
        source = ResidentImages(ImageSplit(np.stack(views), labels.numpy()), labels, preparation, learner._place.torch)
        with learner._place.settings():
            return pooled_features(learner.model_, source, torch.arange(len(views)), BATCH)

    # Changing

    async def learn(self, name: str, photos: Sequence[bytes]) -> dict[str, Any]:
        """Learn a class, or more photos of a known class where that is exact; save the model."""
        name = checked_name(name)
        if not photos:
            raise Problem(400, "no photos: send the field image at least once")
        self._begin({"what": "reading photos", "name": name, "done": 0, "total": len(photos)})
        return await self._change(lambda: self._learn(name, photos), lambda: self._check(name, photos))

    async def undo(self) -> dict[str, Any]:
        """Return to the version before the last change."""
        self._begin({"what": "undoing", "name": "", "done": 0, "total": 0})
        return await self._change(self._undo)

    def check_idle(self) -> None:
        """Raise Problem while the model is being changed."""
        if self.progress is not None:
            raise busy("the model is being changed; try again when that is finished", 5)

    def _begin(self, progress: dict[str, Any]) -> None:
        self.check_idle()
        self.progress = progress

    async def _change(
        self, work: Callable[[], dict[str, Any]], check: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """Call `check`, then `work` with the folder locked, in the thread of changes."""

        def change() -> dict[str, Any]:
            try:
                check()
                with ExitStack() as stack:
                    try:
                        stack.enter_context(locked(self.folder, LOCK_WAIT))
                    except UserError:
                        raise busy("another process is changing the model; try again later", 5) from None
                    return work()
            finally:
                self.progress = None

        # A client that leaves does not stop the change.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._changes, change))

    def _check(self, name: str, photos: Sequence[bytes]) -> None:
        """Raise Problem for the first photo that cannot be read. Predictions have threads of their own to read."""
        views = read_ahead(lambda at: self._view(at, photos[at]), len(photos), ahead=CHUNK)
        for done, _ in enumerate(views, 1):
            self._report(name, "reading photos", done, len(photos))

    def _learn(self, name: str, photos: Sequence[bytes]) -> dict[str, Any]:
        started = time.perf_counter()
        learner = self._copy()
        wanted, known = _class(name, learner)
        if known and not Version(learner).exact:
            raise Problem(
                409, f"class {name!r} is known, and method {learner.method!r} cannot add photos to a known class"
            )
        learner.progress = lambda what, done, total: self._report(name, what, done, total)
        learn = learner.add_examples if known else learner.add_classes
        try:
            learn(list(photos), [wanted] * len(photos))
        except Problem:
            raise
        except UserError as error:
            raise Problem(400, str(error)) from None
        except DivergenceError as error:
            raise Problem(500, f"the training failed, and the model stays as it was: {error}") from None
        learner.progress = None
        learner.save(self.folder)
        self._replace(learner)
        entry = learner.history_[-1]
        return {
            "version": self.version.number,
            "name": name,
            "new": not known,
            "images": len(photos),
            "phase": entry.get("phase"),
            "accuracy": entry.get("held_out_accuracy"),
            "seconds": round(time.perf_counter() - started, 3),
        }

    def _undo(self) -> dict[str, Any]:
        if self._found() != self.version.identity:
            self._replace(Learner.load(self.folder, device=self.device))
            raise Problem(409, "another process has changed the model, which was read again; look at it before undoing")
        if not self.can_undo:
            raise Problem(409, "there is no earlier version to return to")
        undo(self.folder)
        self._replace(Learner.load(self.folder, device=self.device))
        return {"version": self.version.number, "classes": len(self.version.learner._names)}

    def _copy(self) -> Learner:
        """Return a learner to extend: of the folder if another process has changed it, else a copy."""
        if self._found() != self.version.identity:
            return Learner.load(self.folder, device=self.device)
        with self._lock:
            return copy.deepcopy(self.version.learner)

    def _found(self) -> tuple[str, int]:
        facts = read_model(self.folder)
        if facts["id"] != self.version.identity[0]:
            raise Problem(409, "the folder now holds another model; start the server again")
        return facts["id"], facts["version"]

    def _replace(self, learner: Learner) -> None:
        self.version = Version(learner)
        if not self.version.exact:  # its network was trained, so features have changed
            self._features = {}
        self._compare_kept()

    def _report(self, name: str, what: str, done: int, total: int) -> None:
        self.progress = {"what": what, "name": name, "done": done, "total": total}

    def _compare_kept(self) -> None:
        """Extract features of kept photos, a few at a time, and add them to the version."""
        version = self.version
        learner = version.learner
        per_class = min(COMPARED_PER_CLASS, max(1, COMPARED // len(learner._names)))
        kept = [
            (position, number, item)
            for position, own in enumerate(learner._exemplars)
            for number, item in enumerate(own[:per_class])
            if isinstance(item, bytes)
        ][:COMPARED]
        keys = [hashlib.sha256(item).digest() for _, _, item in kept]
        new = {key: item for key, (_, _, item) in zip(keys, kept, strict=True) if key not in self._features}
        for start in range(0, len(new), CHUNK):
            chosen = list(new.items())[start : start + CHUNK]
            views = [self._view(0, item) for _, item in chosen]
            with self._lock:
                features = F.normalize(self._extract(learner, views).cpu(), dim=1)
            self._features |= zip((key for key, _ in chosen), features, strict=True)
        self._features = {key: self._features[key] for key in keys}
        if keys:
            places = tuple((position, number) for position, number, _ in kept)
            self.version = Version(learner, places, torch.stack([self._features[key] for key in keys]))


def checked_name(name: str) -> str:
    """Return the name of a class as it is stored; raise Problem if it cannot be."""
    found = unicodedata.normalize("NFC", name).strip()
    if not found:
        raise Problem(400, "no name: send the field name, such as name=otter")
    if len(found) > LONGEST_NAME:
        raise Problem(400, f"the name has {len(found)} characters, at most {LONGEST_NAME} are allowed")
    try:
        check_printable("name", found)
    except UserError as error:
        raise Problem(400, str(error)) from None
    return found


def _class(name: str, learner: Learner) -> tuple[Name, bool]:
    """Return a class as the learner names it, and whether it is known."""
    for own in learner._names:
        if unicodedata.normalize("NFC", str(own)) == name:
            return own, True
    if isinstance(learner._names[0], str):
        return name, False
    number = whole_number(name)
    if number is None:
        raise Problem(400, f"the classes of this model are whole numbers, and {name!r} is not")
    return number, False
