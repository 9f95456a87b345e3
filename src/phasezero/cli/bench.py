"""`phasezero bench`: time the published implementation and ours side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from phasezero.cli.options import Device, check_file
from phasezero.errors import UserError


def bench(
    network: Annotated[
        str | None, typer.Option(help="Network (default: resnet18-cifar on a GPU, resnet-glyphs on a CPU).")
    ] = None,
    precision: Annotated[str, typer.Option(help="auto, fp32, tf32, bf16, fp16.")] = "auto",
    engine: Annotated[str, typer.Option(help="auto, eager, captured, compiled.")] = "auto",
    device: Device = "auto",
    images: Annotated[int, typer.Option(min=20, help="Number of random images per class.")] = 500,
    seconds: Annotated[float, typer.Option(min=0.0, help="Approximate time per measurement.")] = 2.0,
    out: Annotated[Path | None, typer.Option(help="Also write the numbers to this JSON file.")] = None,
) -> None:
    """Measure training speed on this machine next to the published implementation. A ratio above 1: ours is faster."""
    import torch
    from rich.console import Console

    from phasezero.benchmarks.suite import Suite, bench_config
    from phasezero.records.files import writable, write_whole
    from phasezero.report.bench import bench_grid
    from phasezero.report.grid import print_grid

    on_gpu = torch.cuda.is_available() and not device.startswith("cpu")
    network = network or ("resnet18-cifar" if on_gpu else "resnet-glyphs")
    settings = {"engine.precision": precision, "engine.engine": engine, "engine.device": device}
    config = bench_config(network, settings)
    if out is not None:
        if not out.parent.is_dir():
            raise UserError(f"--out {out}: the folder {out.parent} does not exist")
        check_file("--out", out)
        with writable(out.parent):  # checked before the measurements
            pass
    suite = Suite(config, images, seconds)
    console = Console()
    found = []
    for comparison in suite.run():
        found.append(comparison)
        console.print(f"{comparison.name}: {comparison.ours * 1e3:.2f} ms", markup=False, highlight=False)
    report = suite.report(found)
    print_grid(bench_grid(report), "terminal", console)
    if out is not None:
        write_whole(out, json.dumps(report, indent=1) + "\n")
