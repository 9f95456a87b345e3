"""The stream: the order of the classes, and how they are divided into phases.

Everything downstream identifies a class by its *position* in the order. Positions 0..B-1 are phase 0, the next S are
phase 1, and so on, so a label indexes the growing head's output directly.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from phasezero.errors import UserError, unknown

ORDER_NAMES = ("natural", "seed1993", "podnet-1", "podnet-2", "podnet-3")


@dataclass(frozen=True)
class Phase:
    """A phase: `new` classes are added to `old` known classes.

    >>> from phasezero import Phase
    >>> Phase(index=1, old=50, new=10).seen
    60
    """

    index: int
    old: int
    new: int

    @property
    def seen(self) -> int:
        return self.old + self.new


@dataclass(frozen=True)
class ClassStream:
    order: tuple[int, ...]
    """order[position] = the data set's own class index."""
    phases: tuple[Phase, ...]
    order_name: str

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(phase.new for phase in self.phases)

    def positions(self, classes: int) -> npt.NDArray[np.int64]:
        """Return the inverse: positions[class index] = position in the stream, -1 for a class that never comes."""
        inverse = np.full(classes, -1, np.int64)
        inverse[list(self.order)] = np.arange(len(self.order))
        return inverse


def class_order(name: str | Sequence[int], classes: int) -> tuple[int, ...]:
    """Return the class indices of a named order, or a list of them (each at most once; a subset is allowed)."""
    if not isinstance(name, str):
        order = tuple(int(index) for index in name)
        if len(set(order)) != len(order) or not all(0 <= index < classes for index in order):
            raise UserError(f"class_order: indices must be distinct and between 0 and {classes - 1}")
        return order
    if name == "natural":
        return tuple(range(classes))
    if name == "seed1993":
        # The legacy numpy shuffle that iCaRL, LUCIR, AANets and the CwD code share.
        return tuple(np.random.RandomState(1993).permutation(classes).tolist())
    if name in ORDER_NAMES:
        published: list[list[int]] = json.loads(files("phasezero.data").joinpath("podnet_orders.json").read_text())
        order = tuple(published[int(name[-1]) - 1])
        if classes != len(order):
            raise UserError(f"class order {name!r} is for {len(order)} classes; the data set has {classes}")
        return order
    raise unknown("class order", name, ORDER_NAMES)


def cut_phases(classes: int, base: int, step: int, sizes: Sequence[int] = ()) -> tuple[Phase, ...]:
    """Divide the classes into B first and then S at a time, or by a list of sizes, which may be uneven."""
    later = classes - base
    if not sizes:
        if not 1 <= base <= classes:
            raise UserError(f"base: phase 0 needs between 1 and {classes} classes, got {base}")
        if later and step < 1:
            raise UserError(f"step: each later phase needs at least one class, got {step}")
        if later and later % step:
            raise UserError(
                f"base {base} and step {step} do not fit {classes} classes: {later} classes are left after phase 0, "
                f"which {step} does not divide; choose another step, or give protocol.phase_sizes as a list"
            )
        sizes = [base] + [step] * (later // step if later else 0)
    elif any(size < 1 for size in sizes):
        raise UserError(f"phase_sizes: each phase needs at least one class, got {list(sizes)}")
    elif sum(sizes) > classes:
        raise UserError(f"phase_sizes: {sum(sizes)} classes asked for, the data has {classes}")
    starts = np.cumsum([0, *sizes[:-1]])
    return tuple(Phase(index, int(old), int(new)) for index, (old, new) in enumerate(zip(starts, sizes, strict=True)))


def make_stream(
    classes: int, order: str | Sequence[int], base: int, step: int, sizes: Sequence[int] = ()
) -> ClassStream:
    """Return the stream of a data set with this number of classes."""
    indices = class_order(order, classes)
    phases = cut_phases(len(indices), base, step, sizes)
    order_name = order if isinstance(order, str) else "list"
    return ClassStream(indices[: phases[-1].seen], phases, order_name)
