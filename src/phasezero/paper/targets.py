"""The paper's tables and figures, and our own, as data read from targets.yaml: which runs each shows, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any, Literal, get_args

import yaml

Accuracies = Literal["methods", "cells", "curves", "sweep", "board", "study"]
Models = Literal["spectra", "classes", "later", "information", "sphere", "sphere of all"]

CIFAR100 = "cifar100"


@dataclass(frozen=True)
class Block:
    """A product: every run with every base B, step S and number of exemplars R, or with every list of phase sizes."""

    runs: Sequence[str]
    """METHOD[+STRATEGY[:WEIGHT]]. The default of a weight is the published weight for the data."""
    initial: Sequence[str] = ("",)
    """Phase-0 strategies that each run is combined with: `augment+cwd:0.25`, or empty for none."""
    epochs: Sequence[int] = ()
    """Epochs of phase 0; empty for the preset's."""
    bases: Sequence[int] = ()
    """Empty for the data set's own, like the steps."""
    steps: Sequence[int] = ()
    exemplars: Sequence[int] = ()
    """Empty for the preset's."""
    sizes: Sequence[Sequence[int]] = ()
    title: str = ""
    """The title of the panel of these runs, with `{method}` for the method's label; empty for a single panel."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    by_data: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Fields that are replaced on a data set, for example because another eta is usual."""

    def on_data(self, data: str) -> Block:
        return replace(self, **self.by_data.get(data, {}))


@dataclass(frozen=True)
class Target:
    name: str
    title: str
    view: Accuracies | Models
    blocks: Sequence[Block]
    data: Sequence[str] = ("imagenet100-cwd",)
    """The paper's data sets. Any other data set replaces them."""
    note: str = ""
    """What the paper leaves open."""
    in_paper: bool = True
    """Whether the paper has it; the others are ours."""

    @property
    def shows_models(self) -> bool:
        """Tell whether it shows trained models instead of accuracies."""
        return self.view not in get_args(Accuracies)

    @property
    def shows_sphere(self) -> bool:
        return self.view in ("sphere", "sphere of all")

    @property
    def seeds(self) -> tuple[int, ...]:
        """Return the seeds that the paper used: three for accuracies, one for models."""
        return (0,) if self.shows_models else (0, 1, 2)


_FILE = resources.files("phasezero.paper").joinpath("targets.yaml")
TARGETS = {
    name: Target(name, **{**facts, "blocks": [Block(**block) for block in facts["blocks"]]})
    for name, facts in yaml.safe_load(_FILE.read_text(encoding="utf-8")).items()
}
