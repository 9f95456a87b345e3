"""The study of when CwD helps: its gain by the epochs of phase 0, eta and the classifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from phasezero.data.catalog import find_data_set
from phasezero.paper.tables import Row, Table, method_label
from phasezero.report.grid import NOTHING, Cell, Grid, Spread
from phasezero.report.looks import looks_of_values
from phasezero.report.panels import Line, Panel, write_panels
from phasezero.report.published import gain, published_for
from phasezero.report.style import write_every_format
from phasezero.report.tables import spread

ABOUT_GAINS = "Gains are differences of the average incremental accuracy from eta = 0, with the same epochs and seeds"
ABOUT = f"{ABOUT_GAINS}: mean ± sample standard deviation over n seeds. Steps: training steps of phase 0."

Cells = dict[tuple[str, int], dict[float, Row]]
"""Rows by method and epochs, then by eta."""


def cells(table: Table) -> Cells:
    found: Cells = {}
    for row in table.rows:
        found.setdefault((method_label(row.config), row.config.training.first.epochs), {})[row.weight] = row
    return found


def gains(table: Table) -> dict[tuple[str, int], dict[float, list[float]]]:
    """Return each seed's gain over eta = 0, by method and epochs, then by eta; eta 0 has the averages themselves."""
    found: dict[tuple[str, int], dict[float, list[float]]] = {}
    for key, rows in cells(table).items():
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
        own = [_gain(by_eta[eta]) if eta in by_eta else NOTHING for eta in etas]
        lines.append([method, str(epochs), f"{steps_of(table, epochs):,}", spread(by_eta[0.0]), *own])
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


def published_gain(rows: Mapping[float, Row], eta: float) -> float | None:
    """Return the gain of an eta over eta = 0 in the paper, if it has both numbers."""
    records = [record for at in (eta, 0.0) for _, record in list(rows[at].records.values())[:1]]
    found = [cell.mean for cell in map(published_for, records) if cell is not None]
    return gain(found[:1], found[1:]) if len(found) == 2 else None


def draw_study(table: Table, base: Path, suffixes: Sequence[str]) -> list[Path]:
    """Draw the gain over the epochs of phase 0: a line for each eta, a panel for each classifier."""
    found, rows = gains(table), cells(table)
    counts = sorted({epochs for _, epochs in found})
    etas = sorted({eta for by_eta in found.values() for eta in by_eta if eta})
    looks = dict(zip(etas, looks_of_values(len(etas)), strict=True))

    def mark(axes: Axes) -> None:
        axes.set_xscale("log", base=2)
        axes.axhline(0, color="0.4", linewidth=0.8, zorder=1)
        axes.xaxis.set_major_locator(FixedLocator(counts))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(ScalarFormatter())

    panels = []
    for method in dict.fromkeys(method for method, _ in found):
        lines = []
        for eta in etas:
            known = [epochs for epochs in counts if eta in found.get((method, epochs), {})]
            points = [(epochs, found[method, epochs][eta]) for epochs in known]
            theirs = [(epochs, published_gain(rows[method, epochs], eta)) for epochs in known]
            published = [(epochs, mean, None) for epochs, mean in theirs if mean is not None]
            lines += [Line(f"eta {eta:g}", points, looks[eta], published)] if points else []
        if lines:
            panels.append(Panel(lines, "Epochs of phase 0", "Gain of CwD (points)", method, mark))
    if not panels:
        return []
    caption = f"{table.figure_caption} {ABOUT_GAINS}."
    return write_every_format(base, partial(write_panels, panels=panels, caption=caption), suffixes)
