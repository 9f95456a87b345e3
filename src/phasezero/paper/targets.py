"""The paper's tables and figures as data, read from targets.yaml: which runs each shows, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal

import yaml

View = Literal[
    "methods", "cells", "curves", "sweep", "spectra", "classes", "later", "information", "sphere", "sphere of all"
]

CIFAR100 = "cifar100"


@dataclass(frozen=True)
class Block:
    """A product: every run with every base B, step S and number of exemplars R, or with every list of phase sizes."""

    runs: Sequence[str]
    """METHOD[+TERM[:WEIGHT]]. The default of a weight is the published weight for the data."""
    bases: Sequence[int] = ()
    """Empty for the data set's own, like the steps."""
    steps: Sequence[int] = ()
    exemplars: Sequence[int] = (20,)
    sizes: Sequence[Sequence[int]] = ()
    title: str = ""
    """The title of the panel of these runs, with `{method}` for the method's label; empty for a single panel."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    runs_on: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Replaces `runs` on a data set with another usual eta."""


@dataclass(frozen=True)
class Target:
    name: str
    title: str
    view: View
    blocks: Sequence[Block]
    data: Sequence[str] = ("imagenet100-cwd",)
    """The paper's data sets. Any other data set replaces them."""
    note: str = ""
    """What the paper leaves open."""

    @property
    def shows_models(self) -> bool:
        """Tell whether it shows trained models instead of accuracies."""
        return self.view not in ("methods", "cells", "curves", "sweep")

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
