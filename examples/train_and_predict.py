"""Train class by class on arrays, follow the run with a callback, and ask the model for names."""

import numpy as np

from phasezero import Callback, ImageData, preset, run


def draw(images_per_class: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw six classes: a bright bar at one of six heights, under noise."""
    rng, labels = np.random.default_rng(seed), np.repeat(np.arange(6), images_per_class)
    images = rng.integers(0, 90, (len(labels), 18, 18, 3))
    for image, label in zip(images, labels, strict=True):
        image[3 * label : 3 * label + 3] += 150
    return images.astype(np.uint8), labels


class Accuracy(Callback):
    def on_phase_end(self, result) -> None:
        accuracy = result.record["accuracy"]["head"]
        print(f"phase {result.phase.index}: {result.phase.seen} classes, {accuracy:.1f} %")


names = ["top", "high", "upper", "lower", "low", "bottom"]
data = ImageData.from_arrays(*draw(30, seed=0), *draw(10, seed=1), class_names=names, name="bars", flip=False)
name = "lucir+cwd/glyphs/sizes2-2-2,epochs=15,training.first.batch_size=16,training.later.batch_size=16"
config = preset(name).override({"protocol.class_order": "natural"})
result = run(config, data=data, callback=Accuracy())

summary = result.record["summary"]["head"]
print(f"average incremental accuracy: {summary['average_incremental_accuracy']:.1f} %")
print("the first test images are:", ", ".join(result.predict(data.test.images[::10])))
