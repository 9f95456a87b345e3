"""A learner on photos, with the embedded backbone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from phasezero import Learner, UserError
from phasezero.learner.calibration import TEMPERATURES, Calibration

Photos = Callable[..., list[tuple[Path, str]]]


def files(pairs: list[tuple[Path, str]]) -> list[Path]:
    return [path for path, _ in pairs]


def test_classes_are_learned_one_after_the_other_and_keep_their_order(photos: Photos) -> None:
    learner = Learner().fit(photos("mpz")).add_classes(photos("a")).add_classes(photos("nb"))
    assert list(learner.classes_) == ["m", "p", "z", "a", "b", "n"]
    tested = photos("zanb", 2, "test", seed=5)
    assert learner.predict(files(tested)).tolist() == [name for _, name in tested]
    found = learner.predict_proba(files(tested))
    assert np.allclose(found.sum(1), 1)
    best = learner.top(files(tested)[:1], k=2)[0]
    assert best[0] == ("z", pytest.approx(found[0].max()))
    assert best[0][1] >= best[1][1]
    assert [entry["classes"] for entry in learner.history_] == [["m", "p", "z"], ["a"], ["b", "n"]]
    assert [entry["images"] for entry in learner.history_] == [9, 3, 6]
    result = learner.evaluate(tested)
    assert (result["accuracy"], result["by_phase"]) == (1.0, [1.0, 1.0, 1.0])
    assert np.diag(result["confusion"]).sum() == np.sum(result["confusion"]) == 8


def test_the_order_in_which_classes_and_examples_come_changes_nothing_but_rounding(photos: Photos) -> None:
    first, later, tested = photos("ab"), [photos(name) for name in "cdef"], files(photos("abcdef", 2, "test", seed=5))
    more = photos("ac", 3, "more", seed=7)
    straight, reverse = Learner().fit(first), Learner().fit(first)
    for classes in later:
        straight.add_classes(classes)
    straight.add_examples(more)
    for place, classes in enumerate(reversed(later)):
        reverse.add_classes(classes)
        if place == 3:
            reverse.add_examples(more[3:]).add_examples(more[:3])
    assert straight.predict(tested).tolist() == reverse.predict(tested).tolist()
    columns = [list(reverse.classes_).index(name) for name in straight.classes_]
    scores = [learner._scores(learner._features(tested, "")) for learner in (straight, reverse)]
    assert torch.allclose(scores[0], scores[1][:, columns], atol=1e-5)


def test_added_examples_give_the_classifier_of_all_images_at_once(photos: Photos) -> None:
    pairs, fixed = photos("abc", 4), {"method.strength": 0.1}
    halves = Learner(settings=fixed).fit(pairs[::2]).add_examples(pairs[1::2])
    whole = Learner(settings=fixed).fit(pairs)
    tested = files(photos("abc", 2, "test", seed=5))
    scores = [learner._scores(learner._features(tested, "")) for learner in (halves, whole)]
    assert torch.allclose(*scores, atol=1e-5)
    before = halves.predict_proba(tested)
    assert np.array_equal(halves.add_examples(pairs[:3]).predict_proba(tested), before)  # learned before
    with pytest.raises(UserError, match="the same image as"):
        halves.add_examples([(pairs[0][0], "b")])
    with pytest.raises(UserError, match="cannot add images"):
        Learner("finetune", backbone="none", settings={"epochs": 1}).fit(pairs).add_examples(pairs[:1])


def test_smaller_images_are_a_setting(photos: Photos, tmp_path: Path) -> None:
    learner = Learner(settings={"network.image_size": 64}).fit(photos("ab"))
    assert learner._preparation.size == 64
    tested = files(photos("ab", 2, "test", seed=5))
    again = Learner.load(learner.save(tmp_path / "m"))
    assert np.array_equal(again.predict_proba(tested), learner.predict_proba(tested))


def test_one_photo_per_class_is_enough(photos: Photos) -> None:
    learner = Learner().fit(photos("ab", 1)).add_classes(photos("c", 1))
    tested = photos("abc", 1, "test", seed=5)
    assert learner.predict(files(tested)).tolist() == ["a", "b", "c"]
    with pytest.raises(UserError, match="reject needs held-out images"):
        learner.predict(files(tested), reject=True)


def test_hundreds_of_classes_can_be_added_one_at_a_time(bars: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    looks = rng.integers(0, 256, (300, 8, 8, 3), dtype=np.uint8)
    learner = Learner("ncm", backbone="none", settings={"epochs": 1}).fit(looks[:2].repeat(2, 0), [0, 0, 1, 1])
    for name in range(2, 300):
        learner.add_classes(looks[name : name + 1], [name])
    assert list(learner.classes_) == list(range(300))
    assert (learner.predict(looks) == np.arange(300)).mean() > 0.9


def test_images_may_be_arrays_pairs_folders_and_data_sets(photos: Photos, tmp_path: Path) -> None:
    pairs = photos("ab")
    opened = [(Image.open(path), name) for path, name in pairs]
    arrays = np.stack([np.asarray(image) for image, _ in opened])

    class Numbered(torch.utils.data.Dataset):  # as torchvision's: labels are numbers, `classes` has their names
        classes = ("a", "b")

        def __len__(self) -> int:
            return len(pairs)

        def __getitem__(self, index: int) -> tuple[Image.Image, int]:
            return opened[index][0], index // 3

    names = [name for _, name in pairs]
    expected = Learner().fit(pairs).predict_proba(files(pairs))
    forms: list[tuple[Any, Any]] = [(arrays, names), (files(pairs), names), (tmp_path / "photos", None)]
    for data, labels in [*forms, (opened, None), (Numbered(), None)]:
        learner = Learner().fit(data, labels)
        assert list(learner.classes_) == ["a", "b"]
        assert np.array_equal(learner.predict_proba(arrays), expected)
    assert np.array_equal(learner.predict_proba(tmp_path / "photos"), expected)
    assert np.array_equal(learner.predict_proba([path.read_bytes() for path in files(pairs)]), expected)


def test_a_second_fit_forgets_the_first(bars: Callable[..., Any]) -> None:
    learner = Learner("ncm", backbone="none", settings={"epochs": 1}).fit(*bars(range(3)))
    small = np.arange(4 * 12 * 10 * 3).reshape(4, 12, 10, 3).astype(np.uint8)
    assert learner.fit(small, ["a", "a", "b", "b"]).predict_proba(small).shape == (4, 2)
    with pytest.raises(UserError, match="shape of the first images"):
        learner.predict(bars(range(3))[0])


def test_mistakes_are_explained(photos: Photos, tmp_path: Path) -> None:
    pairs = photos("ab")
    learner = Learner()
    for call, message in [
        (lambda: learner.predict([]), "learned nothing yet"),
        (lambda: learner.fit([]), "no images"),
        (lambda: learner.fit(tmp_path / "nowhere"), "no folder"),
        (lambda: learner.fit(np.zeros((2, 4, 4)), [0, 1]), "uint8"),
        (lambda: learner.fit(np.zeros((2, 4, 4, 3), np.uint8), [0]), "2 images but 1 labels"),
        (lambda: learner.fit(files(pairs), [0.5] * 6), "a text or a whole number"),
        (lambda: learner.fit([(pairs[0][0], "a"), (pairs[0][0], 1)]), "either texts or whole numbers"),
        (lambda: learner.fit([*pairs, (pairs[0][0], "b")]), "the same image as"),
        (lambda: Learner("lucyr").fit(pairs), "did you mean 'lucir'"),
        (lambda: Learner(initial=["cwd"]).fit(pairs), "it is frozen"),
        (lambda: Learner("aanet").fit(pairs), "does not work with the network"),
        (lambda: Learner("lucir", initial=["mimic"], backbone="none").fit(pairs), "needs all classes from the start"),
        (lambda: Learner(backbone="resnet").fit(pairs), "unknown backbone"),
    ]:
        with pytest.raises(UserError, match=message):
            call()
    learner.fit(pairs)
    before = learner.predict_proba(files(pairs))
    for call, message in [
        (lambda: learner.add_classes(pairs[:1]), "known already"),
        (lambda: learner.add_examples(photos("c")), "not known"),
        (lambda: learner.add_classes([(pairs[0][0], "c")]), "the same image as"),
        (lambda: learner.add_classes(files(pairs), [1] * 6), "texts if the known classes are texts"),
        (lambda: learner.add_classes([(tmp_path / "nowhere.jpg", "c")]), "nowhere.jpg"),
        (lambda: learner.evaluate(photos("c")), "does not know class 'c'"),
        (lambda: learner.predict(files(pairs), reject=2.0), "between 0 and 1"),
    ]:
        with pytest.raises((UserError, OSError), match=message):
            call()
    assert np.array_equal(learner.predict_proba(files(pairs)), before)  # a failed call changes nothing


def test_unlike_photos_are_unknown(photos: Photos) -> None:
    learner = Learner().fit(photos("abcdef", 10))
    known = learner.predict(files(photos("abcdef", 5, "test", seed=5)), reject=0.1)
    strange = learner.predict(np.random.default_rng(0).integers(0, 256, (10, 64, 64, 3), dtype=np.uint8), reject=0.1)
    assert (known == "unknown").mean() < 0.5 < (strange == "unknown").mean()


def test_any_module_is_a_backbone(photos: Photos, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten())
    learner = Learner(backbone=module).fit(photos("ab")).add_classes(photos("c"))
    learner.save(tmp_path / "m")
    with pytest.raises(UserError, match="a backbone of its own"):
        Learner.load(tmp_path / "m")
    again = Learner.load(tmp_path / "m", backbone=module)
    tested = files(photos("abc", 1, "test", seed=5))
    assert np.array_equal(again.predict_proba(tested), learner.predict_proba(tested))


def test_a_module_of_the_user_is_not_changed(photos: Photos) -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 8, 8), nn.BatchNorm2d(4), nn.ReLU())
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    learner = Learner("finetune", backbone=module, backbone_lr=1.0, settings={"epochs": 1}, device="cpu")
    learner.fit(photos("ab"))
    assert module.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    trained = learner.model_.backbone.state_dict()
    assert not torch.equal(trained["module.0.weight"], before["0.weight"])


class Watched(nn.Module):
    """A backbone that notes the sizes of training batches."""

    image_size = 16
    sizes: ClassVar[list[int]] = []

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 8, 8), nn.BatchNorm2d(4), nn.ReLU())

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.sizes.append(len(images))
        return self.layers(images)


def test_no_batch_of_a_few_images_reaches_batch_norm(bars: Callable[..., Any]) -> None:
    """A last batch of two photos, in each epoch, made a pretrained network useless."""
    Watched.sizes.clear()
    learner = Learner("finetune", backbone=Watched(), settings={"epochs": 1}, memory="per_class:2", device="cpu")
    learner.fit(*bars(range(3), 13)).add_classes(*bars(range(3, 6), 10))  # 33 images, and 27 with 6 exemplars
    assert sum(Watched.sizes) == 33 + 33
    assert min(Watched.sizes) >= 11


def test_a_backbone_is_adapted_where_its_learning_rate_is_above_zero(photos: Photos) -> None:
    pairs, short = photos("ab", 4), {"epochs": 1}
    kept, moved = (Learner("lucir", backbone_lr=rate, settings=short).fit(pairs) for rate in (0.0, 0.1))
    before = Learner().fit(pairs).model_.backbone.state_dict()
    for name, tensor in kept.model_.backbone.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert any(not torch.equal(tensor, before[name]) for name, tensor in moved.model_.backbone.state_dict().items())


def test_temperature_minimises_the_likelihood_of_held_out_images() -> None:
    rng = torch.Generator().manual_seed(0)
    scores, labels = torch.randn(200, 5, generator=rng), torch.randint(5, (200,), generator=rng)
    scores[torch.arange(200), labels] += 1
    calibration = Calibration()
    calibration.add(scores[:80], labels[:80])
    calibration.add(scores[80:], labels[80:])
    losses = [float(nn.functional.cross_entropy(scores.double() / t, labels)) for t in TEMPERATURES]
    assert calibration.temperature == TEMPERATURES[int(np.argmin(losses))]
    assert calibration.temperature not in (TEMPERATURES[0], TEMPERATURES[-1])
    below = sum(value < calibration.threshold(0.2) for value in calibration.confidences)
    assert below == 40


def test_progress_is_reported(photos: Photos) -> None:
    seen: list[tuple[str, int, int]] = []
    Learner("lucir", backbone="none", settings={"epochs": 2}, progress=lambda *step: seen.append(step)).fit(
        photos("ab")
    )
    assert ("training (train)", 2, 2) in seen
    seen.clear()
    Learner(progress=lambda *step: seen.append(step)).fit(photos("ab"))
    read = seen.index(("extracting features", 4, 4))
    assert seen[read + 1 : read + 3] == [("computing the classifier", 0, 1), ("computing the classifier", 1, 1)]


def test_a_phase_that_fails_leaves_the_learner_as_it_was(photos: Photos, tmp_path: Path) -> None:
    learner = Learner().fit(photos("ab"))
    new = photos("c")
    content = new[1][0].read_bytes()
    new[1][0].write_bytes(content[: len(content) // 2])  # its header is intact
    tested = files(photos("ab", 2, "test", seed=5))
    before = learner.predict_proba(tested)
    with pytest.raises(UserError, match=r"1\.png cannot be read"):
        learner.add_classes(new)
    assert np.array_equal(learner.predict_proba(tested), before)
    new[1][0].write_bytes(content)
    assert list(learner.add_classes(new).classes_) == ["a", "b", "c"]
