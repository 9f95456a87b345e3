"""What a model does not know yet of labelled images: new classes, new images, repeated images and contradictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from phasezero.data.files import Item, read_ahead
from phasezero.learner.exemplars import fingerprint
from phasezero.learner.labelled import Name

AHEAD = 1000  # images whose fingerprints are computed in advance


class Conflict(NamedTuple):
    """An image that is given as one class, and given or learned before as another."""

    item: Item
    given: Name
    other: Name
    learned: bool
    """Whether the other class is that of an earlier call."""


@dataclass
class Comparison:
    """Labelled images by what a model knows of them. An image that is given several times counts as new once."""

    new: dict[Name, list[Item]] = field(default_factory=dict)
    """Images of classes that the model does not know."""
    more: dict[Name, list[Item]] = field(default_factory=dict)
    """Images of known classes that it has not learned."""
    known: dict[Name, list[Item]] = field(default_factory=dict)
    """Images that it has learned as the same class."""
    duplicates: list[Item] = field(default_factory=list)
    """Repetitions of an image within a class."""
    conflicts: list[Conflict] = field(default_factory=list)
    renamed: dict[Name, Name] = field(default_factory=dict)
    """New names of classes whose images were all learned as a single class of another name: that name."""

    @property
    def nothing_new(self) -> bool:
        return not self.new and not self.more


def compare(
    by_class: Mapping[Name, Sequence[Item]],
    names: Sequence[Name],
    seen: Mapping[int, int],
    watch: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Compare labelled images with a model's classes and the fingerprints of its images."""
    keys, found, known_names = _fingerprints(by_class, watch), Comparison(), set(names)
    first: dict[int, Name] = {}
    for name, items in by_class.items():
        own = keys[name]
        learned = [names[seen[key]] for key in own if key in seen]
        if name not in known_names and len(learned) == len(own) and len(set(learned)) == 1:
            found.renamed[name] = learned[0]
            continue
        fresh, known = dict[int, Item](), list[Item]()
        for item, key in zip(items, own, strict=True):
            before = names[seen[key]] if key in seen else first.setdefault(key, name)
            if before != name:
                found.conflicts.append(Conflict(item, name, before, key in seen))
            elif key in seen:
                known.append(item)
            elif key in fresh:
                found.duplicates.append(item)
            else:
                fresh[key] = item
        if fresh:
            (found.more if name in known_names else found.new)[name] = list(fresh.values())
        if known:
            found.known[name] = known
    return found


def _fingerprints(
    by_class: Mapping[Name, Sequence[Item]], watch: Callable[[int, int], None] | None
) -> dict[Name, list[int]]:
    items = [item for own in by_class.values() for item in own]
    every = []
    for key in read_ahead(lambda at: fingerprint(items[at]), len(items), AHEAD):
        every.append(key)
        if watch is not None:
            watch(len(every), len(items))
    ends = iter(every)
    return {name: [next(ends) for _ in own] for name, own in by_class.items()}
