"""A plug-in: photos of Caltech-101 in `caltech101-30` under --root, with the schedule of a learner's trained methods.

phasezero --plugin tools/caltech101.py run \
    lucir/caltech101/b50s10r5,network.weights=efficientnet-lite0,network.backbone_lr=0.1

The folder has train/ (20 photos of each of 100 classes) and val/ (10). To choose settings, `caltech101-heldout` learns
16 of the 20 and tests on the other 4.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from phasezero import ImageData, Recipe, Schedule, Training, load_data, register_data
from phasezero.data.images import ImageSplit

# As in learner/recipe.py: pretrained features need few epochs.
USUAL = Schedule(epochs=15, lr=0.05, shape="cosine", batch_size=32, weight_decay=1e-4)
FACTS: dict[str, Any] = {
    "recipe": Recipe("efficientnet-lite0", Training(USUAL, USUAL), steps=(10,)),
    "class_order": "seed1993",
    "family": "imagenet100",
    "compare": ("lucir", "ridge"),
    "gpu_memory": 12 << 30,
    "presets": False,
}


@register_data("caltech101", "20 photos of each of 100 classes of Caltech-101", size=(100, 20), **FACTS)
def load_caltech101(root: Path, argument: str) -> ImageData:
    return replace(load_data(f"folder:{root / 'caltech101-30'}"), name="caltech101")


@register_data("caltech101-heldout", "16 of these photos to learn, 4 to choose settings", size=(100, 16), **FACTS)
def load_heldout(root: Path, argument: str) -> ImageData:
    whole = load_caltech101(root, argument)
    rank = np.zeros(len(whole.train), np.int64)  # of a photo within its class; files are sorted by name
    for label in range(len(whole.class_names)):
        own = whole.train.labels == label
        rank[own] = np.arange(own.sum())
    train, held = (
        ImageSplit([whole.train.photos[at] for at in np.flatnonzero(part)], whole.train.labels[part])
        for part in (rank % 5 != 4, rank % 5 == 4)
    )
    return replace(whole, name="caltech101-heldout", train=train, test=held)
