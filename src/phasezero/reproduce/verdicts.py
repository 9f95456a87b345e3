"""A statement of the paper held against what is there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from phasezero.reproduce.views import relative
from phasezero.results.grid import Grid, markdown

HOLDS = "holds"
ON_AVERAGE = "holds on average, not in every case"
DOES_NOT_HOLD = "does not hold"
NO_RECORD = "no record yet"


def verdict_of(found: Iterable[bool]) -> str:
    said = list(found)
    if not said:
        return NO_RECORD
    if any(said) and not all(said):
        return f"{HOLDS} in {sum(said)} of {len(said)} cases"
    return HOLDS if all(said) else DOES_NOT_HOLD


def so_far(verdict: str, there: Iterable[object], what: str = "models") -> str:
    """Says how much of what the paper shows a verdict stands on; `there` is true where something is."""
    found = [bool(one) for one in there]
    if verdict == NO_RECORD or all(found):
        return verdict
    return f"{verdict} (so far {sum(found)} of {len(found)} {what})"


@dataclass(frozen=True)
class Checked:
    key: str
    """By which notes know it."""
    title: str
    verdict: str
    sentences: Sequence[str]
    grids: Sequence[Grid]
    sources: Sequence[Path]
    """Records and analyses that it stands on."""

    def markdown(self, note: str, start: Path, figures: Sequence[Path] = ()) -> str:
        lines = [f"### {self.title}\n", f"**{self.verdict[0].upper()}{self.verdict[1:]}.**"]
        lines += [f"- {sentence}" for sentence in self.sentences]
        parts = ["\n".join(lines[:2]) + "\n", "".join(f"{line}\n" for line in lines[2:])]
        parts += [f"Note: {note}\n" if note else ""]
        parts += [figure(path, start) for path in figures]
        parts += [markdown(grid) for grid in self.grids if grid.rows]
        if self.sources:
            parts.append(f"Stands on {', '.join(folded(relative(path, start) for path in self.sources))}.\n")
        return "\n".join(filter(None, parts))


def figure(path: Path, start: Path) -> str:
    """In Markdown, as seen from `start`."""
    return f"![{path.stem}]({quote(relative(path, start))})\n"


def folded(paths: Iterable[str]) -> list[str]:
    """`a/seed0/b.json` and `a/seed1/b.json` as `a/seed{0,1}/b.json`."""
    seeds: dict[tuple[str, str], list[str]] = {}
    for path in dict.fromkeys(paths):
        found = re.search(r"seed(\d+)", path)
        before, after = (path[: found.start()], path[found.end() :]) if found else (path, "")
        seeds.setdefault((before, after), []).append(found[1] if found else "")
    return [f"`{before}{_seeds(some)}{after}`" for (before, after), some in seeds.items()]


def _seeds(some: Sequence[str]) -> str:
    if some == [""]:
        return ""
    return f"seed{some[0]}" if len(some) == 1 else f"seed{{{','.join(some)}}}"
