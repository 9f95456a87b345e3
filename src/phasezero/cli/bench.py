"""`phasezero bench`: the published way and ours, timed side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phasezero.cli.options import Device, check_file
from phasezero.errors import UserError, unknown

if TYPE_CHECKING:
    from phasezero.benchmarks.suite import Comparison
    from phasezero.report.grid import Grid


def bench(
    network: Annotated[
        str | None, typer.Option(help="Default: resnet18-cifar on a GPU, resnet-glyphs on a CPU.")
    ] = None,
    precision: Annotated[str, typer.Option(help="auto, fp32, tf32, bf16, fp16.")] = "auto",
    engine: Annotated[str, typer.Option(help="auto, eager, captured, compiled.")] = "auto",
    device: Device = "auto",
    images: Annotated[int, typer.Option(min=20, help="Random images of each class.")] = 500,
    seconds: Annotated[float, typer.Option(min=0.0, help="For each measurement, about.")] = 2.0,
    out: Annotated[Path | None, typer.Option(help="Also write the numbers here, as JSON.")] = None,
) -> None:
    """How fast this machine trains, beside the published way. Ratios are published time over ours."""
    import torch
    from rich.console import Console

    from phasezero.benchmarks.suite import Suite, bench_config
    from phasezero.nets import NETWORKS
    from phasezero.records.files import writable, write_whole
    from phasezero.report.grid import print_grid

    on_gpu = torch.cuda.is_available() and not device.startswith("cpu")
    network = network or ("resnet18-cifar" if on_gpu else "resnet-glyphs")
    if network not in NETWORKS:
        raise unknown("network", network, NETWORKS)
    if out is not None:
        if not out.parent.is_dir():
            raise UserError(f"--out {out}: the folder {out.parent} is not there")
        check_file("--out", out)
        with writable(out.parent):  # before minutes of measuring, not after
            pass
    settings = {"engine.precision": precision, "engine.engine": engine, "engine.device": device}
    suite = Suite(bench_config(network, settings), images, seconds)
    console = Console()
    found = []
    for comparison in suite.run():
        found.append(comparison)
        console.print(f"{comparison.name}: {comparison.ours * 1e3:.2f} ms", markup=False, highlight=False)
    report = suite.report(found)
    print_grid(bench_grid(found, report), "terminal", console)
    if out is not None:
        write_whole(out, json.dumps(report, indent=1) + "\n")


def bench_grid(comparisons: list[Comparison], report: dict[str, Any]) -> Grid:
    """Return the comparisons as a table with a caption."""
    from phasezero.report.grid import NOTHING, Grid

    columns = {
        "images/s": ("images_per_second", "{:,.0f}"),
        "TFLOP/s": ("tflops", "{:.3g}"),
        "of matrix rate": ("share_of_matrix_rate", "{:.0%}"),
        "peak MiB": ("peak_memory_mib", "{:,.0f}"),
    }
    shown = {name: how for name, how in columns.items() if any(how[0] in one.facts for one in comparisons)}
    lines = [
        [
            one.name,
            NOTHING if one.published is None else f"{one.published * 1e3:,.2f}",
            f"{one.ours * 1e3:,.2f}",
            NOTHING if one.ratio is None else f"{one.ratio:.1f}",
            *(form.format(one.facts[key]) if key in one.facts else NOTHING for key, form in shown.values()),
        ]
        for one in comparisons
    ]
    machine, cost = report["environment"], report["cost_of_cwd"]
    caption = (
        f"{report['network']}, batch {report['batch_size']}, {machine['device_name']}, {machine['precision']}, "
        f"{machine['engine']}; a large matrix product runs at {report['matrix_tflops']:.3g} TFLOP/s; CwD adds "
        f"{cost['published']:.1%} to a published step, {cost['ours']:.1%} to ours"
    )
    if min(cost.values()) < 0:
        caption += ": noise, since a term costs something; measure longer (--seconds) on a quieter machine"
    return Grid(["", "published, ms", "ours, ms", "ratio", *shown], lines, caption)
