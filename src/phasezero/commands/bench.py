"""`phasezero bench`: the published way and ours, timed side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from phasezero.benchmarks.suite import Comparison, Suite, bench_config
from phasezero.commands.options import refuse_folder
from phasezero.errors import UserError, unknown
from phasezero.nets import NETWORKS
from phasezero.results.files import write_whole
from phasezero.session import writable


def bench(
    network: Annotated[
        str | None, typer.Option(help="Default: resnet18-cifar on a GPU, resnet-glyphs on a CPU.")
    ] = None,
    precision: Annotated[str, typer.Option(help="auto, fp32, tf32, bf16, fp16.")] = "auto",
    engine: Annotated[str, typer.Option(help="auto, eager, captured, compiled.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1.")] = "auto",
    images: Annotated[int, typer.Option(min=20, help="Random images of each class.")] = 500,
    seconds: Annotated[float, typer.Option(min=0.0, help="For each measurement, about.")] = 2.0,
    out: Annotated[Path | None, typer.Option(help="Also write the numbers here, as JSON.")] = None,
) -> None:
    """How fast this machine trains, beside the published way. Ratios are published time over ours."""
    on_gpu = torch.cuda.is_available() and not device.startswith("cpu")
    network = network or ("resnet18-cifar" if on_gpu else "resnet-glyphs")
    if network not in NETWORKS:
        raise unknown("network", network, NETWORKS)
    if out is not None:
        if not out.parent.is_dir():
            raise UserError(f"--out {out}: the folder {out.parent} is not there")
        refuse_folder("--out", out)
        with writable(out.parent):  # said before minutes of measuring, not after
            pass
    settings = {"engine.precision": precision, "engine.engine": engine, "engine.device": device}
    suite = Suite(bench_config(network, settings), images, seconds)
    console = Console()
    found = []
    for comparison in suite.run():
        found.append(comparison)
        console.print(f"{comparison.name}: {comparison.ours * 1e3:.2f} ms", markup=False, highlight=False)
    report = suite.report(found)
    console.print(bench_table(found, report))
    if out is not None:
        write_whole(out, json.dumps(report, indent=1) + "\n")


def bench_table(comparisons: list[Comparison], report: dict[str, Any]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=0, show_edge=False)
    names = ["", "published, ms", "ours, ms", "ratio", "images/s", "TFLOP/s", "of matrix rate"]
    names += ["peak MiB"] * any("peak_memory_mib" in one.facts for one in comparisons)
    for name in names:
        table.add_column(name, justify="right" if name else "left")
    for one in comparisons:
        facts = one.facts
        table.add_row(
            one.name,
            f"{one.published * 1e3:,.2f}" if one.published is not None else "",
            f"{one.ours * 1e3:,.2f}",
            f"{one.ratio:.1f}" if one.ratio is not None else "",
            f"{facts['images_per_second']:,.0f}" if "images_per_second" in facts else "",
            f"{facts['tflops']:.3g}" if "tflops" in facts else "",
            f"{facts['share_of_matrix_rate']:.0%}" if "share_of_matrix_rate" in facts else "",
            *([f"{facts['peak_memory_mib']:,.0f}"] if "peak_memory_mib" in facts else []),
        )
    machine = report["environment"]
    cost = report["cost_of_cwd"]
    table.caption = (
        f"{report['network']}, batch {report['batch_size']}, {machine['device_name']}, {machine['precision']}, "
        f"{machine['engine']}; a large matrix product runs at {report['matrix_tflops']:.3g} TFLOP/s; CwD adds "
        f"{cost['published']:.1%} to a published step, {cost['ours']:.1%} to ours"
    )
    if min(cost.values()) < 0:
        table.caption += (
            ": noise, for a term costs something; measure longer (--seconds) on a quieter machine"
        )
    table.caption_justify = "left"
    return table
