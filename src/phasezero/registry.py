"""Registries: methods, phase-0 strategies, networks and data sets register themselves by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from phasezero import plugins
from phasezero.errors import UserError, unknown

T = TypeVar("T")


class Registry(Generic[T]):
    """Map names to entries. Installed plug-ins are loaded at the first lookup that needs them."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.summaries: dict[str, str] = {}
        """The line of text that `phasezero list` shows, by name."""
        self._entries: dict[str, T] = {}

    def register(self, name: str, summary: str = "") -> Callable[[T], T]:
        """Return a decorator that adds an entry. A name can be taken only once."""

        def keep(entry: T) -> T:
            if name in self._entries:
                raise UserError(f"{self.kind} {name!r} is already registered; choose another name")
            self._entries[name], self.summaries[name] = entry, summary
            return entry

        return keep

    def __getitem__(self, name: str) -> T:
        if name not in self:
            raise unknown(self.kind, name, self._entries)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        if name not in self._entries:
            plugins.load_installed()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        plugins.load_installed()
        return iter(sorted(self._entries))
