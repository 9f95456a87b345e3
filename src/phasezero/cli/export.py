"""`phasezero export`: write a learned model as an ONNX or pt2 file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phasezero.cli.options import Model


def export(
    model: Model,
    form: Annotated[str | None, typer.Option("--format", help="onnx or pt2 (default: that of FILE, or onnx).")] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Output file (default: next to the model).")
    ] = None,
) -> None:
    """Write a model as a file that onnxruntime (ONNX) or torch.export (pt2) runs, and compare its probabilities."""
    from rich.console import Console

    from phasezero.export import check_format, export_model
    from phasezero.learner import Learner

    form = check_format(form or (out.suffix.removeprefix(".") if out is not None else "onnx"))
    folder = model.absolute()
    with Console(stderr=True).status("exporting and comparing ..."):  # on a terminal only
        found = export_model(Learner.load(model, device="cpu"), out or folder.with_name(f"{folder.name}.{form}"), form)
    size = found.path.stat().st_size / 2**20
    print(
        f"{found.path}: {size:.1f} MiB; probabilities differ from the model's by at most {found.difference:.1g} "
        f"({found.images} images)"
    )
