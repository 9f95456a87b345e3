"""Restore a run, extract the features of all images of its classes, and measure them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from phasezero import __version__
from phasezero.analysis.information import FLOOR, information_proxy
from phasezero.analysis.overlap import class_means, overlap
from phasezero.analysis.spectra import alpha, class_spectra, constant_features, in_form
from phasezero.config import RunConfig
from phasezero.data.catalog import load_data
from phasezero.data.images import ImageData
from phasezero.engine.checkpoint import load_checkpoint, phase_checkpoint
from phasezero.engine.device import environment
from phasezero.engine.evaluate import pooled_features
from phasezero.engine.store import PhaseZeroStore, phase_zero_key
from phasezero.engine.trainer import Trainer
from phasezero.errors import UserError
from phasezero.records.analysis import FORMAT, SPLITS, Analysis, Form, Measurement, OverlapRecord, Split, SplitAnalysis
from phasezero.records.run import Record, read_record
from phasezero.runs.session import CHECKPOINT
from phasezero.steps import Progress

# Every k where alpha_k bends, and fewer where it is nearly straight. A table shows some of them.
DEFAULT_K = (*range(1, 11), 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)
KEPT_EIGENVALUES = 64
MOST_POINTS = 200  # points per class on the sphere; more would hide each other


def analyse_run(
    folder: str | Path,
    *,
    phase: int = -1,
    root: str | Path | None = None,
    data: ImageData | None = None,
    store: str | Path | None = None,
    device: str = "auto",
    ks: Sequence[int] = DEFAULT_K,
    floor: float = FLOOR,
    future: bool = False,
    progress: Progress | None = None,
) -> Analysis:
    """Return the analysis of a finished run's model after a phase (-1: the last), computed in float32.

    The state after an earlier phase is in the folder if the run kept its phases. The state after phase 0 may also be in
    a `store`. `future` includes classes that come later. `progress` is told of the images whose features are computed.
    """
    folder = Path(folder)
    record = read_record(folder)
    config = RunConfig.from_record(record["config"])
    data = data or load_data(config.protocol.data, root)
    phase = phase_of(record, phase, folder)
    exact = replace(config.engine, device=device, precision="fp32", engine="eager")
    trainer = Trainer(replace(config, engine=exact), data)
    if [str(data.class_ids[index]) for index in trainer.stream.order] != record["data"]["class_ids"]:
        raise UserError(f"{folder}: data {data.name!r} has other classes now than when the run was made")
    kept = phase_checkpoint(folder / CHECKPOINT, phase)
    states = (load_checkpoint(path, config, trainer) for path in (kept, folder / CHECKPOINT) if path.exists())
    saved = next((state for state in states if len(state.phases) == phase + 1), None)
    if saved is None and store and phase == 0:
        saved = PhaseZeroStore(Path(store)).find(phase_zero_key(trainer, record["environment"]), trainer)
    if saved is None:
        raise UserError(
            f"{folder}: the model after phase {phase} is missing (no {kept.name}); "
            "run with --keep-phases to keep it, or name the --store that holds phase 0"
        )
    try:
        trainer.restore(phase + 1, saved.model, saved.exemplars)
    except RuntimeError:  # torch's error, which lists all keys
        raise UserError(f"{folder}: the checkpoint does not fit this version's {config.network.name!r}") from None
    if progress is not None:
        _watch(trainer, None if future else trainer.stream.phases[phase].seen, record, progress)
    return analyse_model(trainer, record, ks=ks, floor=floor, future=future, progress=progress)


def _titled(what: str, record: Record) -> str:
    return f"{what} of {record['name'].partition('/')[0]} seed {record['seed']}"


def _watch(trainer: Trainer, classes: int | None, record: Record, progress: Progress) -> None:
    """Report the images of the first classes that a trainer's sources evaluate."""
    what, done = _titled("features", record), 0
    total = sum(map(len, (*trainer.train_by_class[:classes], *trainer.test_by_class[:classes])))

    def add(images: int) -> None:
        nonlocal done
        done += images
        progress(what, done, total)

    trainer.train.watch = trainer.test.watch = add


def phase_of(record: Record, phase: int, folder: Path) -> int:
    """Return a phase of a run counted from 0; raise UserError if there is none."""
    phases = len(record["phases"])
    if not -phases <= phase < phases:
        raise UserError(f"{folder}: there is no phase {phase}; the run has phases 0 to {phases - 1}")
    return phase % phases


def analyse_model(
    trainer: Trainer,
    record: Record,
    *,
    ks: Sequence[int] = DEFAULT_K,
    floor: float = FLOOR,
    future: bool = False,
    progress: Progress | None = None,
) -> Analysis:
    """Return the analysis of a trainer's model, which `record` describes."""
    phase = trainer.phases_done - 1
    sizes = list(trainer.stream.sizes[: phase + 1])
    seen = sum(sizes)
    looked_at = len(trainer.stream.order) if future else seen
    with trainer.device.settings():
        features = {split: _features(trainer, split, looked_at) for split in SPLITS}
    for split, by_class in features.items():
        for name, images in zip(record["data"]["class_names"], by_class, strict=False):
            if len(images) < 2:
                raise UserError(f"class {name!r} has {len(images)} {split} image; a covariance needs two")
    size = features["train"][0].shape[1]
    ks = sorted({min(k, size) for k in ks})

    def measured(split: Split, form: Form) -> Measurement:
        if progress is not None:
            progress(_titled("spectra", record), 2 * (split == "test") + (form == "unit"), 4)
        means = class_means([in_form(rows, form) for rows in features["train"]])
        return measure([in_form(rows, form) for rows in features[split]], means, seen=seen, ks=ks, floor=floor)

    train, test = (
        SplitAnalysis(
            images=[len(rows) for rows in features[split]],
            constant_features=constant_features(features[split][:seen]),
            raw=measured(split, "raw"),
            unit=measured(split, "unit"),
        )
        for split in SPLITS
    )
    if progress is not None:
        progress(_titled("spectra", record), 4, 4)
    return Analysis(
        format=FORMAT,
        phasezero=__version__,
        name=record["name"],
        method=record["method"],
        initial=record["initial"],
        seed=record["seed"],
        config=record["config"],
        data=record["data"],
        phase=phase,
        phase_sizes=sizes,
        seen_classes=seen,
        accuracy=record["phases"][phase]["accuracy"]["head"] or 0.0,
        classes=record["data"]["class_ids"][:looked_at],
        class_names=record["data"]["class_names"][:looked_at],
        feature_size=size,
        k=ks,
        train=train,
        test=test,
        points={split: _points(features[split]) for split in SPLITS} if size == 3 else None,
        environment=environment(trainer.device),
    )


def _features(trainer: Trainer, split: Split, classes: int) -> list[Tensor]:
    """Return the features of all images of each class, in the test view."""
    source = trainer.train if split == "train" else trainer.test
    chosen = (trainer.train_by_class if split == "train" else trainer.test_by_class)[:classes]
    features = pooled_features(trainer.model, source, torch.cat(chosen), trainer.config.engine.test_batch_size)
    return list(features.split([len(images) for images in chosen]))


def measure(
    by_class: Sequence[Tensor], means: Tensor, *, seen: int, ks: Sequence[int], floor: float = FLOOR
) -> Measurement:
    """Measure features [n_c, d] of each class, the first `seen` of which were trained on."""
    spectra = class_spectra(by_class)
    eigenvalues = spectra.eigenvalues.cpu()
    shares, proxy = alpha(eigenvalues, ks), information_proxy(eigenvalues, spectra.counts, floor)
    return {
        "alpha_mean": _rounded(shares[:seen].mean(0), ".6f"),
        "alpha": [_rounded(row, ".6f") for row in shares],
        "variance": _rounded(eigenvalues.sum(1)),
        "spectrum_mean": _rounded(eigenvalues[:seen].mean(0)[:KEPT_EIGENVALUES]),
        "information": {
            "mean": _rounded(proxy.by_class[:seen].mean()[None])[0],
            "by_class": _rounded(proxy.by_class),
            "floor": floor,
            "floored": proxy.floored.tolist(),
            "unavoidable": proxy.unavoidable.tolist(),
        },
        "overlap": cast(OverlapRecord, asdict(overlap(by_class, means, seen))),
    }


def _points(by_class: Sequence[Tensor]) -> list[list[list[float]]]:
    return [[_rounded(point, ".4f") for point in in_form(points[:MOST_POINTS], "unit")] for points in by_class]


def _rounded(values: Tensor, to: str = ".6g") -> list[float]:
    """Return numbers rounded to six significant digits, or to another format."""
    return [float(format(value, to)) for value in values.tolist()]
