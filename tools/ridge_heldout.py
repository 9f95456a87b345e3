"""Choose ridge's lambda in phase 0 and its width on glyphs, on held-out training images.

python tools/ridge_heldout.py results/cpu/ridge_heldout_glyphs.json --seeds 0,1,2

A phase 0 is trained without every tenth training image of each class. These images then stand for the test set: the
file has the accuracy on phase 0's classes for each width and lambda. The test images are not read.
"""

from __future__ import annotations

import json
from dataclasses import replace

import arguments
import numpy as np
import torch

from phasezero.data.catalog import load_data
from phasezero.data.images import ImageData, ImageSplit
from phasezero.engine.evaluate import pooled_features
from phasezero.methods.ridge import ridge
from phasezero.presets import preset
from phasezero.records.files import write_whole
from phasezero.runs.run import run

FORMAT = "phasezero-ridge-heldout-1"
PRESETS = ("ncm/glyphs/sizes50", "ncm/glyphs/sizes10,first.epochs=40")
WIDTHS = (512, 1024, 2048)
STRENGTHS = tuple(10.0**power for power in range(-6, 2))


def held_out(data: ImageData) -> ImageData:
    """Return the training images alone; every tenth of a class, by typeface, is for testing."""
    images, labels = data.train.pixels, data.train.labels
    last = np.arange(len(labels)) // len(data.class_ids) % 10 == 9
    rest, chosen = (ImageSplit(images[part], labels[part]) for part in (~last, last))
    return replace(data, train=rest, test=chosen)


def main() -> None:
    parser = arguments.parser(__doc__)
    parser.add_argument("--seeds", type=arguments.numbers, default=[0])
    wanted = parser.parse_args()
    data, rows = held_out(load_data("glyphs")), []
    for name, seed in ((name, seed) for name in PRESETS for seed in wanted.seeds):
        trainer = run(preset(name, seed=seed), data=data).trainer
        known = [trainer.train_features(own) for own in trainer.train_by_class]
        unseen = [pooled_features(trainer.model, trainer.test, own, 500) for own in trainer.test_by_class]
        truth = torch.arange(len(unseen)).repeat_interleave(torch.tensor([len(own) for own in unseen]))
        for width in WIDTHS:
            projection = torch.randn(known[0].shape[1], width, generator=torch.Generator().manual_seed(seed))
            mapped = [torch.relu(own @ projection).double() for own in known]
            products = torch.cat(mapped).T @ torch.cat(mapped)
            sums = torch.stack([own.sum(0) for own in mapped])
            tested = torch.relu(torch.cat(unseen) @ projection).double()
            for strength in STRENGTHS:
                hits = (tested @ ridge(products, sums, strength).T).argmax(1) == truth
                accuracy = round(100 * hits.double().mean().item(), 4)
                rows.append({"preset": name, "seed": seed, "width": width, "strength": strength, "accuracy": accuracy})
    lines = ",\n  ".join(map(json.dumps, rows))
    write_whole(wanted.out, f'{{\n "format": "{FORMAT}",\n "rows": [\n  {lines}\n ]\n}}\n')


if __name__ == "__main__":
    main()
