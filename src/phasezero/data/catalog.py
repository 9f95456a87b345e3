"""The catalog of data sets. `glyphs` is inside the package, the others are read from a folder.

A name may have an argument after a colon (`folder:PATH`). Loading never downloads; `phasezero data get` does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phasezero.data.images import ImageData
from phasezero.errors import UserError
from phasezero.registry import Registry
from phasezero.schedule import Training
from phasezero.validation import user_path

Load = Callable[[Path, str], ImageData]
"""(root folder, argument after the colon or "") -> the images; raises UserError with what is missing."""


@dataclass(frozen=True)
class Recipe:
    """How networks are usually trained on a data set, and the protocols published on it.

    >>> from phasezero import Recipe
    >>> Recipe("resnet-glyphs", base=4, steps=(2,)).network
    'resnet-glyphs'
    """

    network: str = "resnet18-cifar"
    training: Training = Training()
    base: int | None = 50
    """B, the number of classes in phase 0; None if only the user can know it."""
    steps: tuple[int, ...] = (10, 5, 2)
    """S, the number of classes in each later phase; the first entry is the default."""
    threads: int = 0
    """CPU threads; 0 means all."""


@dataclass(frozen=True)
class DataSet:
    """An entry of the catalog: everything that the program knows about a data set."""

    load: Load
    recipe: Recipe = Recipe()
    class_order: str = "natural"
    """The class order that published work uses with it (a name that data.stream knows)."""
    family: str = ""
    """The data set whose published settings apply; empty for its own."""
    paper_name: str = ""
    """Its name in the CwD paper; empty if the paper has no number for it."""
    paper_methods: tuple[str, ...] = ()
    """Methods whose rows in the paper are known to have used exactly these classes; empty for all."""
    instead_of: str = ""
    """The paper's data set of which this is another choice of classes."""
    compare: tuple[str, ...] = ("lucir", "lucir+cwd")
    """METHOD[+STRATEGY] that `phasezero run --data` trains if no method is given."""
    short_epochs: int = 0
    """Epochs of a later phase in `reproduce` without --full; 0 for the recipe's."""
    size: tuple[int, int] = (0, 0)
    """The number of classes and of training images per class, for time estimates; zeros if unknown."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds to train on an image in phase 0, by `cpu` and `cuda`, for estimates without records."""
    gpu_memory: int = 4 << 30
    """GPU memory of a run in bytes, with room for cuDNN's search for algorithms."""
    takes_argument: bool = False
    presets: bool = True
    """Whether it has its own presets. An alias and a folder have none."""
    present: Callable[[Path], bool] = lambda root: True
    """Tells whether its files seem to be under the root (a quick check for `phasezero data`)."""
    download: Callable[[Path], None] | None = None


DATA_SETS: Registry[DataSet] = Registry("data set")


def register_data(name: str, summary: str = "", **facts: Any) -> Callable[[Load], Load]:
    """Return a decorator that adds a data set to the catalog; `facts` are fields of DataSet.

    >>> import numpy as np
    >>> from phasezero import ImageData, preset, register_data
    >>> @register_data("doc-noise", "Eight classes of noise")
    ... def load_noise(root, argument):
    ...     images = np.random.default_rng(0).integers(0, 256, (80, 8, 8, 3), dtype=np.uint8)
    ...     labels = np.arange(80) % 8
    ...     return ImageData.from_arrays(images, labels, images, labels, name="doc-noise")
    >>> preset("lucir/doc-noise/b4s2").protocol.data
    'doc-noise'
    """

    def keep(load: Load) -> Load:
        DATA_SETS.register(name, summary)(DataSet(load, **facts))
        return load

    return keep


def default_root() -> Path:
    """Return the default of --root: $PHASEZERO_DATA, or ./data if that is not set."""
    return user_path(os.environ.get("PHASEZERO_DATA", "data"))


def find_data_set(name: str) -> DataSet:
    """Return the entry of a name, which may have an argument."""
    return DATA_SETS[split_name(name)[0]]


def family_of(name: str) -> str:
    """Return the data set whose published settings apply: ImageNet100 for its three lists and for your own photos."""
    return find_data_set(name).family or split_name(name)[0]


def split_name(name: str) -> tuple[str, str]:
    """Split `folder:PATH` into ("folder", "PATH"); a plain name has an empty argument."""
    entry, _, argument = name.partition(":")
    return entry, argument


def load_data(name: str, root: str | Path | None = None) -> ImageData:
    """Load a data set by its name.

    >>> from phasezero import load_data
    >>> len(load_data("glyphs").class_names)
    100
    """
    entry, argument = split_name(name)
    data_set = DATA_SETS[entry]
    if argument and not data_set.takes_argument:
        raise UserError(f"data set {entry!r} takes no argument, got {name!r}; use --root for its folder")
    return data_set.load(user_path(root) if root else default_root(), argument)
