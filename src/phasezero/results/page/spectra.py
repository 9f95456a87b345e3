"""The spectra of a run's features, from the analyses that lie beside its record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phasezero.errors import UserError
from phasezero.results.metrics import mean_and_deviation

FILES = "analysis-phase*.json"
FORMAT = "phasezero-analysis-1"
MOST_SHARES = 1024  # a file that claims more is not one of ours


@dataclass(frozen=True)
class Spectrum:
    """alpha_k after a phase (Eq. 3): what share of a class's variance its k largest directions hold, on average."""

    phase: int
    k: tuple[int, ...]
    train: tuple[float, ...]
    test: tuple[float, ...]


def read_spectra(folder: Path) -> list[Spectrum]:
    """One for each analysis in a run's folder; there may be none."""
    return [_read(path) for path in sorted(folder.glob(FILES))]


def _read(path: Path) -> Spectrum:
    try:
        analysis = json.loads(path.read_text(encoding="utf-8"))
        if (found := analysis.get("format")) != FORMAT:
            raise UserError(f"{path}: the format is {found!r}, this phasezero reads {FORMAT!r}")
        k = tuple(int(one) for one in analysis["k"][:MOST_SHARES])
        train, test = (tuple(map(float, analysis[split]["raw"]["alpha_mean"])) for split in ("train", "test"))
        if not len(k) == len(train) == len(test):
            raise ValueError(f"{len(k)} k but {len(train)} and {len(test)} shares")
        return Spectrum(int(analysis["phase"]), k, train, test)
    except UserError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path}: not an analysis to read ({error!r}); make it again or move it away"
        ) from error


def mean_shares(runs: Sequence[Sequence[Spectrum]]) -> dict[int, dict[str, Any]]:
    """For each phase that was analysed: k, and by split the shares in percent, over the runs that have them."""
    found: dict[int, list[Spectrum]] = {}
    for spectrum in (one for run in runs for one in run):
        same = found.setdefault(spectrum.phase, [])
        if not same or same[0].k == spectrum.k:
            same.append(spectrum)
    return {
        phase: {
            "k": same[0].k,
            "train": _percentages([one.train for one in same]),
            "test": _percentages([one.test for one in same]),
        }
        for phase, same in sorted(found.items())
    }


def _percentages(runs: Sequence[Sequence[float]]) -> list[list[float | None]]:
    return [spread([100 * share for share in shares]) for shares in zip(*runs, strict=True)]


def spread(values: Sequence[float]) -> list[float | None]:
    """Mean and deviation, to a precision that two printed decimals survive."""
    mean, deviation, _ = mean_and_deviation(values)
    return [round(mean, 6), None if deviation is None else round(deviation, 6)]
