"""Facts that a record or an analysis states twice, or that follow from others, and must agree when it is read."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from phasezero.errors import UserError
from phasezero.records import metrics


def check_consistent(path: Path, contradictions: Iterator[str]) -> None:
    """Raise UserError for the first contradiction."""
    try:
        with np.errstate(all="ignore"):
            found = next(contradictions, None)
    except OverflowError:  # counts beyond 64 bits
        found = "a number is too large to be a count"
    if found is not None:
        raise UserError(f"{path}: {found}; the file was changed or damaged")


def class_hash(ids: Iterable[object]) -> str:
    """Return the sha256 of the ordered class ids, which is equal only for the same classes in the same order."""
    # JSON, not a join: ["a,b"] and ["a", "b"] must differ.
    text = json.dumps([str(class_id) for class_id in ids], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def record_contradictions(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield what contradicts itself in the record of a run."""
    data, phases, config = record["data"], record["phases"], record["config"]
    yield from _run_facts(record)
    if record["phasezero"] != (version := record["environment"]["phasezero"]):
        yield f"phasezero is {record['phasezero']!r}, but environment has {version!r}"
    yield from _data(data)
    yield from _protocol(config.get("protocol", {}), [phase["new_classes"] for phase in phases], data)
    images: list[int] = []  # test images of each class, which are the same in every phase
    sizes: list[int] = []
    for place, phase in enumerate(phases):
        sizes.append(phase["new_classes"])
        for problem in _phase(place, phase, sizes, images, data):
            yield f"phases[{place}].{problem}"
    if sum(sizes) == data["classes"] and phases[-1]["test_images"] != data["test_images"]:
        yield f"data.test_images is {data['test_images']}, but the last phase has {phases[-1]['test_images']}"


def _run_facts(facts: Mapping[str, Any]) -> Iterator[str]:
    """Compare what a record or an analysis says about its run with the configuration of that run."""
    config = facts["config"]
    pairs = [
        ("name", config.get("name")),
        ("seed", config.get("seed")),
        ("method", config.get("method", {}).get("name")),
    ]
    yield from (
        f"{name} is {facts[name]!r}, but config has {value!r}"
        for name, value in pairs
        if value not in (None, "", facts[name])
    )
    terms = config.get("initial", [])
    if len(facts["initial"]) != len(terms) or not all(map(_is_label, facts["initial"], terms)):
        yield f"initial is {facts['initial']}, but config.initial differs"


def _is_label(text: str, term: Mapping[str, Any]) -> bool:
    """Tell whether `cwd:0.5` is the label of a term; how a weight is written depends on the version."""
    name, _, weight = text.partition(":")
    try:
        return name == term["name"] and (not weight or float(weight) == term.get("weight"))
    except ValueError:
        return False


def _data(data: Mapping[str, Any]) -> Iterator[str]:
    """Compare the facts on classes; the data block of an old analysis may lack lists."""
    if "class_ids" in data and data["class_hash"] != class_hash(data["class_ids"]):
        yield "data.class_hash is not the hash of data.class_ids"
    for name in ("class_ids", "class_names", "class_order_indices"):
        listed = data.get(name)
        if listed is not None and len(listed) != data.get("classes", len(listed)):
            yield f"data.{name} has {len(listed)} entries and should have {data['classes']}"
        if listed is not None and name != "class_names" and len(set(listed)) < len(listed):
            yield f"data.{name} names a class twice"


def _protocol(protocol: Mapping[str, Any], sizes: Sequence[int], data: Mapping[str, Any]) -> Iterator[str]:
    """Compare the classes of the phases with the protocol, where it states them."""
    listed, base, step = (protocol.get(name) for name in ("phase_sizes", "base", "step"))
    if listed:
        planned = list(listed)
    elif isinstance(base, int) and isinstance(step, int) and step > 0:
        planned = [base] + [step] * ((data["classes"] - base) // step)
    else:
        planned = list(sizes)
    if planned[: len(sizes)] != list(sizes):
        yield f"the phases have {list(sizes)} new classes, but config.protocol means {planned}"
    order = protocol.get("class_order", data["class_order"])
    if isinstance(order, str) and order != data["class_order"]:
        yield f"data.class_order is {data['class_order']!r}, but config.protocol has {order!r}"
    if isinstance(order, list) and order[: data["classes"]] != data["class_order_indices"]:
        yield "data.class_order_indices differs from config.protocol.class_order"


def _phase(
    place: int, phase: Mapping[str, Any], sizes: Sequence[int], images: list[int], data: Mapping[str, Any]
) -> Iterator[str]:
    """Yield contradictions within a phase and with earlier phases; append its classes' test images to `images`."""
    seen = sum(sizes)
    for name, value, expected in (("phase", phase["phase"], place), ("seen_classes", phase["seen_classes"], seen)):
        if value != expected:
            yield f"{name} is {value} and should be {expected}"
            return
    if seen > data["classes"]:
        yield f"seen_classes is {seen}, but the data has {data['classes']} classes"
        return
    yield from _totals(phase, data)
    pairs = phase["confusion"]
    for name in ("true", "predicted"):
        if max(pairs[name], default=0) >= seen:
            yield f"confusion.{name} has a class that was not seen"
            return
    if max(pairs["count"], default=0) > data["test_images"]:
        yield f"confusion.count is larger than data.test_images, {data['test_images']}"
        return
    true, predicted, count = (np.array(pairs[name], np.int64) for name in ("true", "predicted", "count"))
    if (count < 1).any() or (np.diff(true * seen + predicted) < 1).any():
        yield "confusion has an empty entry, or is not in the order of its classes"
        return
    matrix = np.zeros((seen, seen), np.int64)
    matrix[true, predicted] = count
    per_class = matrix.sum(axis=1)
    if (changed := np.flatnonzero(per_class[: len(images)] != images)).size:
        at = int(changed[0])
        yield f"confusion has {per_class[at]} test images of class {at}, and {images[at]} in an earlier phase"
    images += per_class[len(images) :].tolist()
    if per_class.sum() != phase["test_images"]:
        yield f"test_images is {phase['test_images']}, but confusion has {per_class.sum()}"
        return
    yield from _accuracies(phase, matrix, sizes)


def _totals(phase: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[str]:
    for name in ("train_images", "test_images"):
        if phase[name] > data[name]:
            yield f"{name} is {phase[name]}, but the data has {data[name]}"
    memory, seconds = phase["memory"], phase["seconds"]
    if sum(memory["per_class"]) != memory["total"]:
        yield f"memory.total is {memory['total']}, but memory.per_class adds up to {sum(memory['per_class'])}"
    parts = sum(value for name, value in seconds.items() if name != "total")
    if not math.isclose(parts, seconds["total"], rel_tol=1e-6, abs_tol=1e-6):
        yield f"seconds.total is {seconds['total']:g}, but its parts add up to {parts:g}"


def _accuracies(phase: Mapping[str, Any], matrix: metrics.Counts, sizes: Sequence[int]) -> Iterator[str]:
    """Compare accuracies with the confusions (head), or with the numbers of test images (other classifiers)."""
    try:
        rows = metrics.phase_accuracies(matrix, sizes)
    except UserError as error:  # a phase without test images
        yield str(error)
        return
    starts = list(accumulate([0, *sizes[:-1]]))
    totals = np.add.reduceat(matrix.sum(axis=1), starts)
    for name in phase["accuracy"]:
        accuracy, row = phase["accuracy"][name], phase["by_phase"].get(name)
        if (accuracy is None) != (row is None):
            yield f"accuracy.{name} and by_phase.{name} should both be null, or neither"
        elif row is not None:
            right = np.array(row) * totals / 100
            if name == "head" and not np.allclose(row, rows, rtol=1e-9, atol=1e-6):
                yield "by_phase.head contradicts confusion"
            elif not np.allclose(right, np.rint(right), atol=1e-6):
                yield f"by_phase.{name} is no share of the phase's test images"
            elif not np.isclose(accuracy, 100 * right.sum() / totals.sum(), rtol=1e-9, atol=1e-6):
                yield f"accuracy.{name} contradicts {'confusion' if name == 'head' else f'by_phase.{name}'}"


def analysis_contradictions(analysis: Mapping[str, Any]) -> Iterator[str]:
    """Yield what contradicts itself in an analysis."""
    yield from _run_facts(analysis)
    seen, data = analysis["seen_classes"], analysis["data"]
    yield from _data(data)
    if sum(analysis["phase_sizes"]) != seen:
        yield f"seen_classes is {seen}, but phase_sizes adds up to {sum(analysis['phase_sizes'])}"
        return
    if seen > len(analysis["classes"]):
        yield f"seen_classes is {seen}, but {len(analysis['classes'])} classes were analysed"
        return
    for name, known in (("classes", data.get("class_ids")), ("class_names", data.get("class_names"))):
        if known is not None and known[: len(analysis[name])] != analysis[name]:
            yield f"{name} differs from data.{'class_ids' if name == 'classes' else name}"
    if any(later <= earlier for earlier, later in zip(analysis["k"], analysis["k"][1:], strict=False)):
        yield "k is not ascending"
    for split in ("train", "test"):
        images, total = sum(analysis[split]["images"]), data.get(f"{split}_images")
        whole = len(analysis["classes"]) == data.get("classes")
        if total is not None and (images != total if whole else images > total):
            yield f"{split}.images adds up to {images}, but the data has {total}"
        for form in ("raw", "unit"):
            for problem in _measurement(
                analysis[split][form], analysis[split]["images"], analysis["feature_size"], seen
            ):
                yield f"{split}.{form}.{problem}"

    for split, points in (analysis["points"] or {}).items():
        if any(abs(math.hypot(*point) - 1) > 1e-3 for cloud in points for point in cloud):
            yield f"points.{split} has a point that is not of unit length"


def _measurement(found: Mapping[str, Any], images: Sequence[int], size: int, seen: int) -> Iterator[str]:
    """Compare means with the numbers of the classes, from which they differ only by rounding."""
    shares, information = np.array(found["alpha"], float), found["information"]
    by_class = np.array(information["by_class"], float)
    if (np.diff(shares, axis=1) < -1e-6).any():
        yield "alpha falls with k"
    if not np.allclose(found["alpha_mean"], shares[:seen].mean(axis=0), rtol=0, atol=2e-6):
        yield "alpha_mean is not the mean of alpha"
    if abs(float(information["mean"]) - by_class[:seen].mean()) > 2e-5 * max(abs(by_class).max(), 1e-6):
        yield "information.mean is not the mean of information.by_class"
    if information["unavoidable"] != [max(size - (count - 1), 0) for count in images]:
        yield "information.unavoidable does not follow from the numbers of images"
    if any(count > size for count in information["floored"]):
        yield f"information.floored has more than {size} eigenvalues"
    spectrum, variance = np.array(found["spectrum_mean"], float), np.array(found["variance"][:seen], float).mean()
    if (np.diff(spectrum) > 0).any() or len(spectrum) > size:
        yield "spectrum_mean is not descending"
    if spectrum.sum() > variance * (1 + 2e-5) or (len(spectrum) == size and spectrum.sum() < variance * (1 - 2e-5)):
        yield f"spectrum_mean adds up to {spectrum.sum():g}, but the mean variance is {variance:g}"
