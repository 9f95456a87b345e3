"""What CwD in phase 0 adds to a method in Table 1, and whether it adds the more the smaller the steps are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from phasezero.reproduce.cells import Entry
from phasezero.reproduce.targets import PAPER_NAMES
from phasezero.reproduce.verdicts import Checked, verdict_of
from phasezero.reproduce.views import NAMES, averages
from phasezero.results.grid import NOTHING, Cell, Grid, Spread


@dataclass(frozen=True)
class Gain:
    """Of one method at one S; `ours` is None as long as one of the two has no run."""

    data: str
    method: str
    step: int
    precision: str
    n: tuple[int, int]
    """Runs without and with CwD."""
    ours: float | None
    paper: float
    entries: tuple[Entry, Entry]
    """With CwD and without."""


def gains(table1: Sequence[Entry]) -> list[Gain]:
    """For every data set, method with and without CwD, and S; each precision by itself."""
    listed = []
    for entry in table1:
        config = entry.line.config
        if [term.name for term in config.initial] != ["cwd"]:
            continue
        plain = [other for other in table1 if _twins(other, entry)]
        base = next((one for one in plain if one.precision == entry.precision), plain[0])
        without, with_term = averages(base.line), averages(entry.line)
        same = base.precision == entry.precision
        ours = fmean(with_term) - fmean(without) if with_term and without and same else None
        listed.append(
            Gain(
                entry.data,
                config.method.name,
                config.protocol.step,
                entry.precision,
                (len(without) if same or not with_term else 0, len(with_term)),
                ours,
                entry.cell.mean - base.cell.mean,
                (entry, base),
            )
        )
    return listed


def _twins(plain: Entry, with_term: Entry) -> bool:
    one, other = plain.line.config, with_term.line.config
    return not one.initial and (plain.data, one.method, one.protocol) == (
        with_term.data,
        other.method,
        other.protocol,
    )


def check_gains(table1: Sequence[Entry]) -> Checked:
    listed = gains(table1)
    families: dict[tuple[str, str], list[Gain]] = {}
    for gain in sorted(listed, key=lambda one: -one.step):
        families.setdefault((gain.data, gain.method), []).append(gain)
    measured = {key: [one for one in some if one.ours is not None] for key, some in families.items()}
    sentences = [_sentence(families[key], some) for key, some in measured.items() if some]
    positive = verdict_of(_positive(some) for some in measured.values() if some)
    known = {key: found for key, some in measured.items() if (found := _grows(some)) is not None}
    grows = verdict_of(known.values())
    if known and len(known) < len(families):
        grows += f" (so far {', '.join(_name(*key) for key in known)})"
    if unmeasured := [key for key, some in measured.items() if not some]:
        sentences.append(f"No pair of runs yet for {', '.join(_name(*key) for key in unmeasured)}.")
    by_paper = {key: list({one.step: one.paper for one in some}.values()) for key, some in families.items()}
    shrinks = [key for key, curve in by_paper.items() if not all(a < b for a, b in pairwise(curve))]
    if shrinks:
        names = ", ".join(_name(*key) for key in shrinks)
        sentences.append(f"In the paper's own table the gain does not grow at every step for {names}.")
    pairs = [gain.entries for gain in listed if gain.ours is not None]
    used = [*(one for one, _ in pairs), *(other for _, other in pairs)]
    return Checked(
        key="cwd-gain",
        title="CwD in phase 0 gains, and gains the more the smaller S is (Table 1)",
        verdict=f"gains: {positive}; gains more: {grows}",
        sentences=sentences,
        grids=[_grid(listed)],
        sources=[path for entry in used for path, _ in entry.line.records.values()],
    )


def _name(data: str, method: str) -> str:
    return f"{NAMES[method]} on {PAPER_NAMES[data]}"


def _positive(some: Sequence[Gain]) -> bool:
    return all(one.ours is not None and one.ours > 0 for one in some)


def _grows(some: Sequence[Gain]) -> bool | None:
    """From each S to the next smaller one; None where there are not two of one precision."""
    by_precision: dict[str, list[float]] = {}
    for one in some:
        if one.ours is not None:
            by_precision.setdefault(one.precision, []).append(one.ours)
    pairs = [before < after for curve in by_precision.values() for before, after in pairwise(curve)]
    return all(pairs) if pairs else None


def _sentence(family: Sequence[Gain], measured: Sequence[Gain]) -> str:
    name = _name(family[0].data, family[0].method)
    shown = ", ".join(f"{one.ours:+.2f} at S={one.step}" for one in measured)
    sign = "positive" if _positive(measured) else "not positive everywhere"
    growth = {
        True: "it grows as S shrinks",
        False: "it does not grow at every step to a smaller S",
        None: "whether it grows as S shrinks is not known yet",
    }[_grows(measured)]
    found = {one.step for one in measured}  # in another precision, say
    left = [f"S={one.step}" for one in family if one.step not in found]
    missing = f" No record yet for {', '.join(left)}." if left else ""
    paper = ", ".join(f"{one.paper:+.2f}" for one in {one.step: one for one in family}.values())
    return f"{name}: the gain is {sign} ({shown}), and {growth}.{missing} The paper's: {paper}."


def _grid(listed: Sequence[Gain]) -> Grid:
    rows: list[list[Cell]] = [
        [
            PAPER_NAMES[one.data],
            NAMES[one.method],
            str(one.step),
            one.precision or NOTHING,
            NOTHING if one.ours is None else Spread(one.ours, sign=True),
            " and ".join(map(str, one.n)),
            Spread(one.paper, sign=True),
        ]
        for one in listed
    ]
    header = ["data", "method", "S", "precision", "gain of CwD", "n without and with", "paper's gain"]
    return Grid(
        header, rows, "Gain: our mean with CwD less our mean without, both of one precision.", words=2
    )
