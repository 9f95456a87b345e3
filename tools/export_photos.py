"""Compare exported files with the learner on photos (results/cpu/export_photos.json).

`python tools/export_photos.py PHOTOS -o FILE`: PHOTOS has the folders train/CLASS and val/CLASS. A learner with the
default method learns 20 classes and then five more. Before and after, 200 photos of val are given to the learner, to
onnxruntime and to the reloaded pt2 file, photo by photo.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import onnxscript
import PIL
import torch

from phasezero import Learner, __version__, export_model
from phasezero.data.files import read_image

FORMAT = "phasezero-export-photos-1"
FIRST, MORE, PHOTOS = 20, 5, 200


def compare(learner: Learner, photos: list[np.ndarray], folder: Path, threads: int) -> dict[str, object]:
    """Export the learner, and return differences, sizes and median times. All three see a photo before the next."""
    paths = {form: export_model(learner, folder / f"model.{form}").path for form in ("onnx", "pt2")}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(paths["onnx"], options, providers=["CPUExecutionProvider"])
    module = torch.export.load(paths["pt2"]).module()
    predictors: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "learner": learner.predict_proba,
        "onnx": lambda images: session.run(None, {"images": images})[0],
        "pt2": lambda images: module(torch.from_numpy(images)).numpy(),
    }
    found, times = ({name: [] for name in predictors} for _ in range(2))
    for photo in (photos[0], *photos):
        for name, predict in predictors.items():
            started = time.perf_counter()
            found[name].append(np.asarray(predict(photo[None])))
            times[name].append(1000 * (time.perf_counter() - started))
    answers = {name: np.concatenate(own[1:]) for name, own in found.items()}  # the first photo warms up
    medians = {name: round(float(np.median(own[1:])), 1) for name, own in times.items()}
    wanted = answers["learner"]
    return {
        "classes": len(learner.classes_),
        "photos": len(photos),
        "learner": {"median_ms": medians["learner"]},
        **{
            form: {
                "largest_difference": float(np.abs(answers[form] - wanted).max()),
                "other_answers": int((answers[form].argmax(1) != wanted.argmax(1)).sum()),
                "bytes": path.stat().st_size,
                "median_ms": medians[form],
            }
            for form, path in paths.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    classes = sorted(path.name for path in (given.photos / "train").iterdir())[: FIRST + MORE]
    train, val = (
        {name: sorted((given.photos / part / name).glob("*.jpg")) for name in classes} for part in ("train", "val")
    )
    files = [file for files in zip(*(val[name] for name in classes), strict=False) for file in files][:PHOTOS]
    photos = [np.array(read_image(file)) for file in files]
    pairs = [[(file, name) for name in part for file in train[name]] for part in (classes[:FIRST], classes[FIRST:])]
    learner = Learner(device="cpu").fit(pairs[0])
    with tempfile.TemporaryDirectory() as folder:
        before = compare(learner, photos, Path(folder), given.threads)
        learner.add_classes(pairs[1])
        after = compare(learner, photos, Path(folder), given.threads)
    versions = {module.__name__: module.__version__ for module in (torch, onnx, onnxscript, onnxruntime, PIL, np)}
    content = {
        "format": FORMAT,
        "what": f"{PHOTOS} photos of Caltech-101 through exported files, next to Learner.predict_proba; photo by photo",
        "learner": "Learner(): ridge on efficientnet-lite0",
        "before": before,
        "after_adding_classes": after,
        "photo_sizes": {"smallest": min(p.shape[:2] for p in photos), "largest": max(p.shape[:2] for p in photos)},
        "threads": given.threads,
        "note": "photos are decoded before; the machine was shared by other processes, so times are rough",
        "machine": platform.machine(),
        "versions": {"phasezero": __version__, "python": platform.python_version(), **versions},
    }
    given.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
