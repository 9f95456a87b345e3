"""Any module as a backbone."""

from __future__ import annotations

import copy
import hashlib

import torch
from torch import Tensor, nn

from phasezero.config import MODULE
from phasezero.errors import UserError
from phasezero.nets import Backbone, Features, Pretrained, load_backbone

# What torchvision and timm prepare images for, unless the module says otherwise.
SIZE, RESIZE = 224, 256
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class ModuleBackbone(Backbone):
    """A module that turns images [n, 3, H, W] into features [n, d] or maps [n, d, h, w], which are averaged."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.size = int(getattr(module, "image_size", SIZE))
        with torch.no_grad():
            self.feature_size = self.eval()(torch.zeros(1, 3, self.size, self.size)).pooled.shape[1]

    def forward(self, images: Tensor) -> Features:
        found = self.module(images)
        if isinstance(found, Features):
            return found
        if not isinstance(found, Tensor) or found.ndim not in (2, 4):
            raise UserError("backbone: a module must return features [n, d] or maps [n, d, h, w]")
        return Features(found.mean((2, 3)), (found,)) if found.ndim == 4 else Features(found, (found[..., None, None],))


def wrapped(module: nn.Module) -> Pretrained:
    """Return a module as a loaded backbone.

    It sees images of 224 pixels with ImageNet's mean and deviation. Attributes `image_size`, `mean` and `std` of the
    module change that.
    """
    if not isinstance(module, nn.Module):
        raise UserError(f"backbone: a name, a path or a torch module is expected, got {type(module).__name__}")
    backbone = ModuleBackbone(copy.deepcopy(module).to("cpu"))  # training must not change the user's module
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        digest.update(name.encode() + tensor.cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    mean, std = (tuple(map(float, getattr(module, key, usual))) for key, usual in (("mean", MEAN), ("std", STD)))
    size, resize = backbone.size, round(backbone.size * RESIZE / SIZE)
    return Pretrained(MODULE, backbone, size, resize, mean, std, "unknown", type(module).__name__, digest.hexdigest())  # type: ignore[arg-type]


def load_any(backbone: str | nn.Module) -> Pretrained | None:
    """Return a backbone with its weights: a module, or what `load_backbone` takes; None for `none`."""
    if isinstance(backbone, str):
        return None if backbone == "none" else load_backbone(backbone)
    return wrapped(backbone)
