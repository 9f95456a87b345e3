"""The study of when CwD helps: its gain by the epochs of phase 0, eta and the classifier."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from phasezero.data.catalog import find_data_set
from phasezero.paper.tables import Row, Table, method_label
from phasezero.report.grid import NOTHING, Cell, Grid, Spread
from phasezero.report.style import Panel, write_every_format, write_panels
from phasezero.report.tables import spread

ABOUT = (
    "Gains are differences of the average incremental accuracy from eta = 0, with the same epochs and seeds: mean ± "
    "sample standard deviation over n seeds. Steps: training steps of phase 0."
)


def gains(table: Table) -> dict[tuple[str, int], dict[float, list[float]]]:
    """Return each seed's gain over eta = 0, by method and epochs, then by eta; eta 0 has the averages themselves."""
    by_cell: dict[tuple[str, int], dict[float, Row]] = {}
    for row in table.rows:
        key = method_label(row.config), row.config.training.first.epochs
        by_cell.setdefault(key, {})[row.weight] = row
    found: dict[tuple[str, int], dict[float, list[float]]] = {}
    for key, rows in by_cell.items():
        plain = dict(zip(rows[0.0].records, rows[0.0].averages, strict=True)) if 0.0 in rows else {}
        if plain:
            found[key] = {0.0: list(plain.values())}
            for eta, row in sorted(rows.items()):
                own = dict(zip(row.records, row.averages, strict=True))
                differences = [own[seed] - plain[seed] for seed in own if seed in plain]
                if eta and differences:
                    found[key][eta] = differences
    return found


def study_grid(table: Table) -> Grid:
    """Return a row for each classifier and number of epochs, with the gain of each eta."""
    found = gains(table)
    etas = sorted({eta for by_eta in found.values() for eta in by_eta if eta})
    lines: list[list[Cell]] = []
    for (method, epochs), by_eta in sorted(found.items()):
        cells = [_gain(by_eta[eta]) if eta in by_eta else NOTHING for eta in etas]
        lines.append([method, str(epochs), f"{steps_of(table, epochs):,}", spread(by_eta[0.0]), *cells])
    header = ["classifier", "epochs", "steps", "eta 0", *(f"eta {eta:g}" for eta in etas)]
    return Grid(header, lines, f"{table.caption} {ABOUT}")


def _gain(values: Sequence[float]) -> Spread:
    plain = spread(values)
    return Spread(plain.mean, plain.deviation, f"n={len(values)}", sign=True)


def steps_of(table: Table, epochs: int) -> int:
    """Return the training steps of a phase 0 with this number of epochs."""
    config = table.rows[0].config
    images = config.protocol.first_classes * find_data_set(table.data).size[1]
    return epochs * config.training.first.steps(images) // max(config.training.first.epochs, 1)


def draw_study(table: Table, base: Path, suffixes: Sequence[str]) -> list[Path]:
    """Draw the gain over the epochs of phase 0: a line for each eta, a panel for each classifier."""
    found = gains(table)
    counts = sorted({epochs for _, epochs in found})

    def mark(axes: Axes) -> None:
        axes.set_xscale("log", base=2)
        axes.axhline(0, color="0.4", linewidth=0.8, zorder=1)
        axes.xaxis.set_major_locator(FixedLocator(counts))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(ScalarFormatter())

    panels = []
    for method in dict.fromkeys(method for method, _ in found):
        lines: dict[float, list[tuple[float, list[float]]]] = {}
        for epochs in counts:
            for eta, values in found.get((method, epochs), {}).items():
                if eta:
                    lines.setdefault(eta, []).append((epochs, values))
        named = [(f"eta {eta:g}", points) for eta, points in sorted(lines.items())]
        if named:
            panels.append(Panel(named, "Epochs of phase 0", "Gain of CwD (points)", method, mark))
    if not panels:
        return []
    return write_every_format(base, partial(write_panels, panels=panels, caption=f"{table.caption} {ABOUT}"), suffixes)
