"""Export a learner as one graph, from uint8 images to probabilities: ONNX, or torch.export's pt2.

The graph contains the preparation of images. For photos it repeats Pillow's bilinear resize: a horizontal and a
vertical pass, each rounded to whole numbers from 0 to 255. Both are products with matrices that depend on the photo's
size only.
"""

from __future__ import annotations

import copy
import importlib
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.nn import functional as F

from phasezero import __version__
from phasezero.config import MODULE
from phasezero.data.files import read_image
from phasezero.engine.device import Device
from phasezero.errors import UserError
from phasezero.learner import Learner
from phasezero.nets import IncrementalModel
from phasezero.nets.model import run_backbone
from phasezero.records.files import replacing

FORMATS = ("onnx", "pt2")
TOLERANCE = 1e-4
"""The largest accepted difference between a probability of the exported file and the learner's."""
METADATA = "phasezero"
"""The key of the metadata in ONNX's `metadata_props`, and the name of the extra file of pt2."""
INPUT, OUTPUT = "images", "probabilities"
HALF = 1 << 11  # Pillow rounds weights of pixels to whole numbers of 1 / HALF^2
DOWN_FIRST = 13  # from this version on, Pillow begins with the vertical pass where a photo is much higher than wide
CHECKED = 8  # exemplars
LARGEST_ONNX = (1 << 31) - (1 << 20)  # bytes of tensors; the limit of a protobuf is 2 GiB
Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Export:
    """A written file, and its agreement with the learner."""

    path: Path
    images: int
    difference: float
    """The largest difference of a probability on these images."""


def export_model(learner: Learner, path: str | Path, form: str | None = None) -> Export:
    """Write the learner as a graph in the format `onnx` or `pt2`, by default that of the file's suffix.

    The file takes uint8 images [n, height, width, channels] and returns probabilities [n, classes]. It is compared with
    the learner before it replaces a file of that name.

    >>> import numpy as np
    >>> from phasezero import Learner, export_model
    >>> images, labels = np.zeros((8, 16, 16, 3), np.uint8), np.repeat(["dark", "light"], 4)
    >>> images[4:] = 255
    >>> learner = Learner(backbone="none", settings={"epochs": 1}).fit(images, labels)
    >>> export_model(learner, getfixture("tmp_path") / "model.pt2").difference < 1e-4
    True
    """
    learner._check_fitted()
    path = Path(path)
    form = check_format(form or path.suffix.removeprefix("."))
    if path.is_dir():
        raise UserError(f"{path}: this is a folder; name a file in it")
    learner = _on_cpu(learner)
    facts = json.dumps(describe(learner), ensure_ascii=False)
    with replacing(path) as temporary:
        with _quiet():
            write = _write_onnx if form == "onnx" else _write_pt2
            write(_traced(learner), learner, facts, temporary)
        images, difference = _compare(learner, temporary, form)
        if not difference <= TOLERANCE:
            raise UserError(
                f"export: {path} was not written, because its probabilities differ from the learner's by up to "
                f"{difference:.2g} (at most {TOLERANCE:g} is accepted); please report this"
            )
    return Export(path, images, difference)


def describe(learner: Learner) -> dict[str, Any]:
    """Return the metadata of an exported file: class names in the order of the columns, and the preparation."""
    own = learner._preparation
    resize = {"shorter_side": own.resize, "centre_crop": own.size, "filter": "bilinear"}
    height, width = learner._side if learner._in_memory else (None, None)
    return {
        "phasezero": __version__,
        "method": learner.config_.label,
        "classes": list(learner._names),
        "input": {"name": INPUT, "type": "uint8", "shape": ["n", height, width, len(own.mean)]},
        "output": {"name": OUTPUT, "type": "float32", "shape": ["n", len(learner._names)]},
        "preparation": {
            "in_graph": True,
            "resize": None if learner._in_memory else resize,
            "mean": list(own.mean),
            "std": list(own.std),
        },
        "temperature": learner._calibration.temperature,
    }


def check_format(form: str) -> str:
    """Return the format; raise UserError if it is unknown or needs packages that are not installed."""
    if form not in FORMATS:
        raise UserError(f"export: the format {form!r} is unknown; choose {' or '.join(FORMATS)}")
    for name in ("onnx", "onnxscript", "onnxruntime") if form == "onnx" else ():
        try:
            importlib.import_module(name)
        except ImportError:
            raise UserError(f"export to ONNX: {name} is missing; pip install 'phasezero[onnx]'") from None
    return form


def _on_cpu(learner: Learner) -> Learner:
    """Return a copy that shares the model, or has it on the CPU, where files are written and compared."""
    found = copy.copy(learner)
    found.progress = None
    if learner._place.torch.type != "cpu":
        found.config_ = learner.config_.override({"engine.device": "cpu", "engine.engine": "auto"})
        found.model_ = copy.deepcopy(learner.model_).cpu()
        found._means = None if learner._means is None else learner._means.cpu()
        found._place = Device.choose(found.config_.engine)
    return found


def _without_unused(learner: Learner) -> IncrementalModel:
    """Return a copy of the model for predictions, without what its head needs only to learn more, such as sums."""
    head = learner.model_.head
    was_training = head.training
    features = torch.zeros(2, head.feature_size)
    found = torch.export.export(head.eval(), (features,))
    head.train(was_training)
    used = {node.name for node in found.graph.nodes if node.users}
    unused = [spec.target for spec in found.graph_signature.input_specs if spec.target and spec.arg.name not in used]
    tensors = dict(head.named_parameters()) | dict(head.named_buffers())
    empty: dict[int, Any] = {}
    for tensor in (tensors[name] for name in unused if name in tensors):
        none = torch.empty(0)
        empty[id(tensor)] = nn.Parameter(none, requires_grad=False) if isinstance(tensor, nn.Parameter) else none
    return copy.deepcopy(learner.model_, empty).eval().requires_grad_(False)


def _traced(learner: Learner) -> ExportedProgram:
    """Trace the graph for any number of images, and for photos of any size."""
    sizes = learner._side if learner._in_memory else (97, 113)  # any height and width
    example = torch.zeros(2, *sizes, len(learner._preparation.mean), dtype=torch.uint8)
    graph = Graph(learner).eval()
    try:
        return torch.export.export(graph, (example,), dynamic_shapes=_dynamic(learner))
    except Exception as error:
        if learner._pretrained is None or learner._pretrained.name != MODULE:
            raise
        raise UserError(f"export: torch.export cannot trace the backbone, a module of your own: {error}") from error


def _dynamic(learner: Learner) -> dict[str, dict[int, Any]]:
    names = ("n",) if learner._in_memory else ("n", "height", "width")
    return {INPUT: {axis: torch.export.Dim(name, min=1) for axis, name in enumerate(names)}}


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporters, which write about operators of packages that are not installed."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _write_pt2(program: ExportedProgram, learner: Learner, facts: str, path: Path) -> None:
    with path.open("wb") as file:
        torch.export.save(program, file, extra_files={METADATA: facts})


def _write_onnx(program: ExportedProgram, learner: Learner, facts: str, path: Path) -> None:
    size = sum(tensor.nbytes for tensor in (*program.state_dict.values(), *program.constants.values()))
    if size > LARGEST_ONNX:
        raise UserError(f"export to ONNX: a file holds at most 2 GiB, and this model has {size / 2**30:.1f}; use pt2")
    dynamic = _dynamic(learner)  # once more, for the names of axes
    found = torch.onnx.export(
        program, (), input_names=[INPUT], output_names=[OUTPUT], dynamic_shapes=dynamic, dynamo=True, verbose=False
    )
    assert found is not None
    found.model.metadata_props[METADATA] = facts
    found.model.producer_name, found.model.producer_version = "phasezero", __version__
    found.save(str(path), include_initializers=True, external_data=False)


def load_exported(path: Path, form: str) -> Callable[[Pixels], npt.NDArray[np.float32]]:
    """Return the function of images that an exported file contains."""
    if form == "pt2":
        with path.open("rb") as file:
            module = torch.export.load(file).module()
        return lambda images: module(torch.from_numpy(images)).numpy()
    import onnxruntime

    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    return lambda images: session.run([OUTPUT], {INPUT: images})[0]


def _compare(learner: Learner, path: Path, form: str) -> tuple[int, float]:
    """Return on how many images a file was compared with the learner, and the largest difference."""
    with _quiet():
        run = load_exported(path, form)
        batches = _test_images(learner)
        found = [np.abs(run(batch) - learner.predict_proba(batch)).max() for batch in batches]
    return sum(map(len, batches)), float(np.max(found))  # also if one is not a number


def _test_images(learner: Learner) -> list[Pixels]:
    """Return batches of random images, and each of some exemplars."""
    rng, channels = np.random.default_rng(0), len(learner._preparation.mean)
    resize = learner._preparation.resize
    shapes = [learner._side] if learner._in_memory else [(resize, resize + 9), (2 * resize + 1, resize // 2), (31, 47)]
    random = [rng.integers(0, 256, (count, *shape, channels), dtype=np.uint8) for shape in shapes for count in (1, 3)]
    kept = [own[0] for own in learner._exemplars if own][:CHECKED]
    if learner._in_memory:
        return [*random, *(learner._stacked([item]) for item in kept)]
    return [*random, *(np.asarray(read_image(item))[None] for item in kept)]


class Graph(nn.Module):
    """From uint8 images [n, H, W, C] to probabilities [n, classes], as `Learner.predict_proba`."""

    shift: Tensor
    scale: Tensor
    means: Tensor

    def __init__(self, learner: Learner) -> None:
        super().__init__()
        own, model = learner._preparation, _without_unused(learner)
        self.backbone = model.backbone
        self.head: nn.Module = nn.Identity() if learner._means is not None else model.head
        self.resizes, self.resize, self.size = not learner._in_memory, own.resize, own.size
        self.temperature = learner._calibration.temperature
        mean, std = (torch.tensor(values)[:, None, None] for values in (own.mean, own.std))
        self.register_buffer("scale", 1 / (255 * std))
        self.register_buffer("shift", -mean / std)
        self.by_means = learner._means is not None
        if learner._means is not None:
            self.register_buffer("means", learner._means.clone())

    def forward(self, images: Tensor) -> Tensor:
        pixels = centre_views(images, self.resize, self.size) if self.resizes else images.permute(0, 3, 1, 2).float()
        features = run_backbone(self.backbone, torch.addcmul(self.shift, pixels, self.scale), False).pooled
        scores = F.normalize(features, dim=1) @ self.means.T if self.by_means else self.head(features).logits
        return (scores.double() / self.temperature).softmax(1).float()


def centre_views(images: Tensor, resize: int, size: int) -> Tensor:
    """Return what `data.files.centre_view` shows of photos [n, H, W, C], as float32 [n, C, size, size]."""
    height, width = (torch.full((), side, dtype=torch.int64) for side in images.shape[1:3])
    short = torch.minimum(height, width)
    tall, wide = resize * height // short, resize * width // short
    down = resize_weights(torch.arange(images.shape[1]), height, tall, size)
    across = resize_weights(torch.arange(images.shape[2]), width, wide, size)
    pixels = images.permute(0, 3, 1, 2).float()

    across_first = _shrunk_down(_shrunk_across(pixels, across), down)
    if int(PIL.__version__.split(".")[0]) < DOWN_FIRST:
        return across_first
    # The rule of ImagingResampleInner. Branches (torch.cond) would save time on large photos, and need tracing.
    swaps = (height > tall) & (height - tall > 2 * (width - wide))
    return torch.where(swaps, _shrunk_across(_shrunk_down(pixels, down), across), across_first)


def resize_weights(pixels: Tensor, length: Tensor, new: Tensor, size: int) -> Tensor:
    """Return Pillow's bilinear weights [2 size, length] of the middle of `length` pixels that are resized to `new`.

    Weights are those of Pillow's `precompute_coeffs`, as whole numbers of 1 / 2^22. The upper 11 bits of all weights
    are followed by the lower 11 bits, so that sums over pixels are exact in float32.
    """
    margin = new - size
    first = margin // 2 + (margin % 2) * (margin // 2 % 2)  # half of the margin, rounded half to even
    scale = length.double() / new.double()
    support = scale.clamp_min(1.0)
    centres = (first + torch.arange(size, dtype=torch.float64) + 0.5) * scale
    weights = (1 - ((pixels - centres[:, None] + 0.5) / support).abs()).clamp_min(0)
    whole = (weights / weights.sum(1, keepdim=True) * HALF**2 + 0.5).floor()
    upper = (whole / HALF).floor()
    return torch.cat([upper, whole - HALF * upper]).float()


def _shrunk_across(pixels: Tensor, weights: Tensor) -> Tensor:
    upper, lower = (pixels @ weights.T).chunk(2, 3)
    return _rounded(upper, lower)


def _shrunk_down(pixels: Tensor, weights: Tensor) -> Tensor:
    upper, lower = (weights @ pixels).chunk(2, 2)
    return _rounded(upper, lower)


def _rounded(upper: Tensor, lower: Tensor) -> Tensor:
    """Return sums of weighted pixels as Pillow rounds them."""
    sums = upper.double() / HALF + lower.double() / HALF**2
    return (sums + 0.5).floor().clamp(0, 255).float()
