"""Made-up records, analyses and photos, and a callback, that several tests need."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw
from torch import Generator, Tensor, nn

from phasezero import Callback, Record, run
from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.engine.callbacks import PhaseResult
from phasezero.engine.stage import PendingNumber, StagePass
from phasezero.engine.store import phase_zero_key
from phasezero.engine.trainer import Trainer
from phasezero.nets import Features
from phasezero.presets import build_config
from phasezero.records.analysis import FORMAT, Analysis, Measurement
from phasezero.records.run import Environment, data_record, phase_record, run_record
from phasezero.report.grid import Grid, markdown

Make = Callable[..., RunConfig]
"""The fixture `toy_config`."""

ENVIRONMENT = Environment(
    phasezero="0.1.0",
    python="3.11.7",
    torch="2.11.0",
    numpy="2.0.0",
    cuda=None,
    cudnn=None,
    platform="Linux",
    device="cpu",
    device_name="cpu",
    threads=4,
    precision="fp32",
    engine="eager",
)

COLOURS = {"red": (220, 40, 40), "green": (40, 200, 60), "blue": (40, 60, 220), "grey": (128, 128, 128)}
HOSTILE = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'>"
"""A name that would break out of a page that does not escape it."""

PAGE_ANALYSIS: Any = {  # as much of one as the page reads
    "phase": 0,
    "k": [1, 2, 4],
    "train": {"raw": {"alpha_mean": [0.2, 0.4, 0.8]}},
    "test": {"raw": {"alpha_mean": [0.1, 0.3, 0.7]}},
}

MINIMAL = {
    "protocol.phase_sizes": [3, 1],
    "protocol.memory": "per_class:2",
    "training.first.epochs": 1,
    "training.later.epochs": 1,
    "training.first.batch_size": 512,
    "training.later.batch_size": 512,
}
"""Settings of a run on glyphs that is over in a second."""

KS = [1, 2, 5]


def measurement(alpha: Sequence[Sequence[float]], seen: int, information: float, scatter: float) -> Measurement:
    means = [sum(column) / seen for column in zip(*alpha[:seen], strict=True)]
    return {
        "alpha_mean": means,
        "alpha": [list(row) for row in alpha],
        "variance": [1.0] * len(alpha),
        "spectrum_mean": [0.5, 0.3, 0.2],
        "information": {
            "mean": information,
            "by_class": [information] * len(alpha),
            "floor": 1e-12,
            "floored": [2] * len(alpha),
            "unavoidable": [64 - 9] * len(alpha),  # 10 images of a class for 64 features
        },
        "overlap": {
            "scatter_ratio": scatter,
            "nearest_mean_error": 10 * scatter,
            "seen_as_future": None,
            "future_as_seen": None,
        },
    }


def analysis_of(
    config: RunConfig,
    alpha: Sequence[float],
    *,
    sizes: Sequence[int] = (),
    step: float = 0.1,
    information: float = -300.0,
    scatter: float = 0.3,
    name: str = "",
) -> Analysis:
    """Return a complete analysis of a model that never was.

    `alpha` has alpha_1 of each class; alpha_2 and alpha_5 are `step` and twice that above it.
    """
    sizes = list(sizes) or [len(alpha)]
    rows = [[min(share + times * step, 1.0) for times in range(3)] for share in alpha]
    found = measurement(rows, sum(sizes), information, scatter)
    images = [10] * len(alpha)
    ids = [f"id {place}" for place in range(len(alpha))]
    names = [f"class {place}" for place in range(len(alpha))]
    data = data_record(
        name=config.protocol.data,
        class_ids=ids,
        class_names=names,
        class_order="natural",
        class_order_indices=list(range(len(alpha))),
        train_images=sum(images),
        test_images=sum(images),
    )
    name = name or f"{config.label}/{config.protocol.data}/{'-'.join(map(str, sizes))}"
    return {
        "format": FORMAT,
        "phasezero": "0.1.0",
        "name": name,
        "method": config.method.name,
        "initial": [term.label for term in config.initial],
        "seed": config.seed,
        "config": {**config.to_dict(), "name": name},
        "data": data,
        "phase": len(sizes) - 1,
        "phase_sizes": sizes,
        "seen_classes": sum(sizes),
        "accuracy": 80.0 + config.seed,
        "classes": ids,
        "class_names": names,
        "feature_size": 64,
        "k": KS,
        "train": {"images": images, "raw": found, "unit": found},
        "test": {"images": images, "raw": found, "unit": found},
        "points": None,
        "environment": {**ENVIRONMENT},
    }


def make_analysis(
    alpha: Sequence[float],
    *,
    eta: float = 0.0,
    phase_sizes: Sequence[int] = (),
    seed: int = 0,
    method: str = "lucir",
    settings: Mapping[str, Any] | None = None,
    **numbers: Any,
) -> Analysis:
    """Return an analysis of a model on glyphs, with CwD where `eta` is above zero; see `analysis_of` for the rest."""
    sizes = list(phase_sizes) or [len(alpha)]
    config = build_config(method, "glyphs", initial=[f"cwd:{eta}"] if eta else [])
    config = config.override({"seed": seed, "protocol.phase_sizes": sizes, **(settings or {})})
    return analysis_of(config, alpha, sizes=sizes, **numbers)


def confusion_with(correct: Sequence[int], per_class: int) -> np.ndarray:
    """Class i has `correct[i]` of `per_class` test images right; the rest are called the next class."""
    wrong = per_class - np.array(correct)
    return np.diag(correct) + np.roll(np.diag(wrong), 1, axis=1)


def make_record(
    *,
    method: str = "lucir",
    initial: Sequence[str] = (),
    data: str = "cifar100",
    sizes: Sequence[int] = (50, 10, 10, 10, 10, 10),
    seed: int = 0,
    per_class: int = 20,
    class_order: str = "",
    name: str = "",
    nearest_mean: bool = False,
    config: dict[str, Any] | None = None,
    finished: int | None = None,
    drop: int = 4,
    settings: Mapping[str, Any] | None = None,
) -> Record:
    """Return the record of a run that never happened, as `phasezero run` would write it; unequal sizes are listed.

    There are 100 test images a class. After phase i every class has 80 + seed - drop * i right, and one less by the
    nearest mean.
    """
    classes, regular = sum(sizes), len(sizes) > 1 and len(set(sizes[1:])) == 1
    changed: dict[str, Any] = {"seed": seed, "protocol.memory": f"per_class:{per_class}"}
    changed |= {"protocol.class_order": class_order} if class_order else {}
    changed |= {} if regular else {"protocol.phase_sizes": list(sizes)}
    chosen = build_config(method, data, initial=initial, base=sizes[0], step=sizes[1] if regular else 1)
    chosen = chosen.override(changed | dict(settings or {}))
    phases = []
    for i in range(finished or len(sizes)):
        so_far = list(sizes[: i + 1])
        seen, right = sum(so_far), max(80 + seed - drop * i, 1)
        confusions = {"head": confusion_with([right] * seen, 100)}
        if nearest_mean:
            confusions["nearest_mean"] = confusion_with([right - 1] * seen, 100)
        phases.append(
            phase_record(
                phase_sizes=so_far,
                confusions=confusions,
                train_images=500 * so_far[-1] + per_class * (seen - so_far[-1]),
                memory_per_class=[per_class] * seen,
                loss={"train": [2.5, 1.25], "finetune": [0.5]} if i else {"train": [2.5, 1.25]},
                seconds={"grow": 0.1, "train": 2.0, "select": 0.2, "evaluate": 0.3, "total": 2.6},
            )
        )
    return run_record(
        name=name or f"{chosen.label}/{data}/b{sizes[0]}s{sizes[1] if len(sizes) > 1 else 0}",
        method=chosen.method.name,
        initial=initial,
        seed=seed,
        config=chosen.to_dict() if config is None else config,
        data=data_record(
            name=data,
            class_ids=[str(i) for i in range(classes)],
            class_names=[f"class {i}" for i in range(classes)],
            class_order=class_order or "seed1993",
            class_order_indices=list(range(classes)),
            train_images=500 * classes,
            test_images=100 * classes,
        ),
        phases=phases,
        timing={"started": "2026-01-02T03:04:05Z", "seconds_total": 15.6, "reused_phase_zero": False},
        environment={**ENVIRONMENT},
    )


def line_of(table: str | Grid, *start: str) -> list[str]:
    """Return the cells after these in the only line of a table, or of a text with tables, that begins with them."""
    text = markdown(table) if isinstance(table, Grid) else table
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {' | '.join(start)} |")]
    return [cell.strip() for cell in line.strip("|").split(" | ")][len(start) :]


def train(config: RunConfig, **options: Any) -> Record:
    """Run a configuration and return its record."""
    return run(config, **options).record


def watch_epochs(monkeypatch: pytest.MonkeyPatch, note: Callable[[StagePass, int], object]) -> None:
    """Call `note` with the stage and the number of each epoch, when it ends."""
    as_given = StagePass.epoch

    def watched(stage_pass: StagePass, epoch: int, rng: Generator, *within: Any) -> PendingNumber:
        loss = as_given(stage_pass, epoch, rng, *within)
        note(stage_pass, epoch)
        return loss

    monkeypatch.setattr(StagePass, "epoch", watched)


def key_of(config: RunConfig, data: ImageData) -> str:
    """Return the key of a configuration's phase 0 in a store."""
    return phase_zero_key(Trainer(config, data))


class ToyBackbone(nn.Module):
    """A layer and a BatchNorm: parameters and buffers that training moves."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(6, 8), nn.BatchNorm1d(8)

    def forward(self, images: Tensor) -> Features:
        return Features(self.norm(self.layer(images)), ())


class ToySource:
    """A source whose batch plans are the batches themselves."""

    def prepare(self, plan: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        return plan[0], plan[1]


class Diary(Callback):
    """A callback that keeps what it hears."""

    def __init__(self) -> None:
        self.total = 0
        self.epochs: list[tuple[int, str, int]] = []
        self.images = 0
        self.results: list[PhaseResult] = []

    def on_run_start(self, phases: int, images: int) -> None:
        self.total = images

    def on_epoch_end(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        self.epochs.append((phase.index, stage, epoch))
        self.images += images

    def on_phase_end(self, result: PhaseResult) -> None:
        self.results.append(result)


class StoppedError(Exception):
    """Raised by `StopAfter`."""


class StopAfter(Callback):
    """A callback that stops a run at the end of an epoch of a phase."""

    def __init__(self, phase: int, epoch: int = 0) -> None:
        self.at = phase, epoch

    def on_epoch_end(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        if (phase.index, epoch) == self.at:
            raise StoppedError

    def on_phase_end(self, result: PhaseResult) -> None:
        if result.phase.index == self.at[0]:  # a phase without epochs; it is not saved yet
            raise StoppedError


SHAPES = {"red": "ellipse", "green": "rectangle", "blue": "ellipse", "yellow": "rectangle"}
PER_CLASS = 3


def take_photos(folder: Path, colour: str, count: int = PER_CLASS, first: int = 0) -> Path:
    """Draw different photos of a shape in one colour."""
    folder.mkdir(parents=True, exist_ok=True)
    for place in range(first, first + count):
        shade, corner = int(np.random.default_rng(place).integers(0, 60)), 2 + place % 12
        photo = Image.new("RGB", (48, 48), (shade, shade, shade))
        getattr(ImageDraw.Draw(photo), SHAPES.get(colour, "ellipse"))((corner, corner, corner + 28, 40), fill=colour)
        photo.save(folder / f"{place}.jpg")
    return folder


def make_photo(colour: tuple[int, int, int], seed: int, side: int = 64) -> bytes:
    """Return a JPEG of noise around a colour."""
    noise = np.random.default_rng(seed).integers(-40, 41, (side, side, 3))
    file = io.BytesIO()
    Image.fromarray((np.array(colour) + noise).clip(0, 255).astype(np.uint8)).save(file, "JPEG")
    return file.getvalue()
