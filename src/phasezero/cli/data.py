"""`phasezero data`: list and download data sets."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from phasezero.cli.options import Root
from phasezero.errors import UserError
from phasezero.steps import in_lines

data_app = typer.Typer(help="List and download data sets.", rich_markup_mode=None)


@data_app.callback(invoke_without_command=True)
def data_sets(context: typer.Context, root: Root = None) -> None:
    """List data sets and whether their files are found. `data get` downloads."""
    from phasezero.data.catalog import DATA_SETS, default_root

    if context.invoked_subcommand:
        return
    where = root or default_root()
    room = 2 + max(map(len, DATA_SETS))
    for name in DATA_SETS:
        data_set = DATA_SETS[name]
        found = "" if data_set.takes_argument else "found" if data_set.present(where) else "missing"
        line = f"{name:<{room}}{found:<9}{DATA_SETS.summaries[name]}"
        print(in_lines(line, sys.stdout, " " * (room + 9)))
    print(in_lines(f"looked in {where}; to download: phasezero data get cifar100 --root {where}", sys.stdout))


@data_app.command("get")
def data_get(name: Annotated[str, typer.Argument(help="Data set, such as cifar100.")], root: Root = None) -> None:
    """Download a data set from its official site and check its md5."""
    from phasezero.data.catalog import DATA_SETS, default_root

    download = DATA_SETS[name].download
    if download is None:
        raise UserError(f"data set {name!r} cannot be downloaded: {DATA_SETS.summaries[name]}")
    download(root or default_root())
