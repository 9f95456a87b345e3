"""Choose the source of a run's batches: by where the images are, and for files by `engine.photos`."""

from __future__ import annotations

import os
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from phasezero.data.images import ImageData, ImageSplit, Preparation
from phasezero.data.loader import FileImages, ImageSource, ResidentImages
from phasezero.data.photos import ResidentPhotos, bytes_to_pack
from phasezero.errors import UserError

Photos = Literal["resident", "files"]


def choose_photos(wanted: Literal["auto", "resident", "files"], data: ImageData, device: torch.device) -> Photos | None:
    """Choose how image files become batches; None for images that are in memory.

    Resident photos may take half of the device's free memory. `auto` means resident on a CUDA device where they fit.
    """
    if data.in_memory:
        return None
    if wanted == "files" or (wanted == "auto" and device.type != "cuda"):
        return "files"
    needed = sum(bytes_to_pack(split.paths, data.preparation, device) for split in (data.train, data.test))
    room = free_memory(device) // 2
    if needed <= room:
        return "resident"
    if wanted == "auto":
        return "files"
    raise UserError(
        f"engine.photos: resident photos would take {needed / (1 << 30):.2f} GiB of {device}, and half of its free "
        f"memory is {room / (1 << 30):.2f} GiB; use engine.photos=files"
    )


def free_memory(device: torch.device) -> int:
    """Return bytes of memory: of a GPU those free or only reserved by torch, of a CPU all that the machine has."""
    if device.type == "cuda":
        held_back = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + held_back
    if not hasattr(os, "sysconf"):  # Windows
        raise UserError("engine.photos: the size of the memory is unknown on this system; use engine.photos=files")
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def make_source(
    split: ImageSplit, labels: Tensor, preparation: Preparation, device: torch.device, photos: Photos | None = None
) -> ImageSource:
    """Return the source that serves these images."""
    if isinstance(split.images, np.ndarray):
        return ResidentImages(split, labels, preparation, device)
    return (ResidentPhotos if photos == "resident" else FileImages)(split, labels, preparation, device)
