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

FIRST, MORE, PHOTOS = 20, 5, 200


def timed(predict: Callable[[np.ndarray], np.ndarray], photos: list[np.ndarray]) -> tuple[np.ndarray, float]:
    """Return the answers to photos, each alone, and milliseconds per photo."""
    predict(photos[0][None])
    started = time.perf_counter()
    found = np.concatenate([np.asarray(predict(photo[None])) for photo in photos])
    return found, 1000 * (time.perf_counter() - started) / len(photos)


def compare(learner: Learner, photos: list[np.ndarray], folder: Path, threads: int) -> dict[str, object]:
    """Export the learner, and return differences, sizes and times."""
    wanted, own = timed(lambda images: learner.predict_proba(images[0][None]), photos)
    entry: dict[str, object] = {"classes": len(learner.classes_), "photos": len(photos), "learner_ms": round(own, 1)}
    for form in ("onnx", "pt2"):
        path = export_model(learner, folder / f"model.{form}").path
        if form == "onnx":
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = threads
            session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            run = lambda images, session=session: session.run(None, {"images": images})[0]  # noqa: E731
        else:
            module = torch.export.load(path).module()
            run = lambda images, module=module: module(torch.from_numpy(images)).numpy()  # noqa: E731
        found, spent = timed(run, photos)
        entry[form] = {
            "largest_difference": float(np.abs(found - wanted).max()),
            "other_answers": int((found.argmax(1) != wanted.argmax(1)).sum()),
            "bytes": path.stat().st_size,
            "ms": round(spent, 1),
        }
    return entry


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
        "what": f"{PHOTOS} photos of Caltech-101 through exported files, next to Learner.predict_proba; photo by photo",
        "learner": "Learner(): ridge on efficientnet-lite0",
        "before": before,
        "after_adding_classes": after,
        "photo_sizes": {"smallest": min(p.shape[:2] for p in photos), "largest": max(p.shape[:2] for p in photos)},
        "threads": given.threads,
        "machine": platform.machine(),
        "versions": {"phasezero": __version__, "python": platform.python_version(), **versions},
    }
    given.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
