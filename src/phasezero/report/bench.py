"""The table of `phasezero bench`."""

from __future__ import annotations

from typing import Any

from phasezero.report.grid import NOTHING, Grid

COLUMNS = {
    "images_per_second": ("images/s", "{:,.0f}"),
    "tflops": ("TFLOP/s", "{:.3g}"),
    "share_of_matrix_rate": ("of matrix rate", "{:.0%}"),
    "peak_memory_mib": ("peak MiB", "{:,.0f}"),
}


def bench_grid(report: dict[str, Any]) -> Grid:
    """Return the comparisons of a benchmark's report as a table with a caption."""
    rows = [(result, result["facts"]) for result in report["comparisons"]]
    shown = {key: how for key, how in COLUMNS.items() if any(key in facts for _, facts in rows)}
    lines = [
        [
            result["name"],
            NOTHING if result["published"] is None else f"{result['published'] * 1e3:,.2f}",
            f"{result['ours'] * 1e3:,.2f}",
            NOTHING if result["ratio"] is None else f"{result['ratio']:.1f}",
            *(form.format(facts[key]) if key in facts else NOTHING for key, (_, form) in shown.items()),
        ]
        for result, facts in rows
    ]
    machine, cost = report["environment"], report["cost_of_cwd"]
    caption = (
        f"{report['network']}, batch {report['batch_size']}, {machine['device_name']}, {machine['precision']}, "
        f"{machine['engine']}; a large matrix product runs at {report['matrix_tflops']:.3g} TFLOP/s; CwD adds "
        f"{cost['published']:.1%} to a published step, {cost['ours']:.1%} to ours"
    )
    if min(cost.values()) < 0:
        caption += ": within noise; measure longer (--seconds) on a less busy machine"
    return Grid(["", "published, ms", "ours, ms", "ratio", *(name for name, _ in shown.values())], lines, caption)
