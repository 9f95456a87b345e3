"""How much there is to do: images times epochs of the main stages, phase by phase. For bars and estimates."""

from __future__ import annotations

from collections.abc import Sequence

from phasezero.config import RunConfig
from phasezero.data.stream import ClassStream
from phasezero.initial import TERMS
from phasezero.memory import MemoryRule
from phasezero.methods import METHODS


def images_by_phase(config: RunConfig, stream: ClassStream, class_sizes: Sequence[int]) -> list[int]:
    """`class_sizes`: the training images of each class, by position in the stream."""
    rule = MemoryRule.parse(config.protocol.memory)
    sees_everything = METHODS[config.method.name].sees_everything
    totals = []
    for phase in stream.phases:
        quota = rule.quota(phase.old) if phase.old else 0
        kept = sum(size if sees_everything else min(quota, size) for size in class_sizes[: phase.old])
        schedule = config.training.later if phase.index else config.training.first
        totals.append(schedule.epochs * (sum(class_sizes[phase.old : phase.seen]) + kept))
    return totals


def trains_an_oracle(config: RunConfig) -> bool:
    """Whether a term wants a model of all classes and was given no file of one."""
    return any(TERMS[term.name].looks_ahead and not term.file for term in config.initial)
