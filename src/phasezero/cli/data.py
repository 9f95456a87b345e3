"""`phasezero data`: list and download data sets."""

from __future__ import annotations

from typing import Annotated

import typer

from phasezero.cli.options import Root
from phasezero.errors import UserError

data_app = typer.Typer(help="List and download data sets.", rich_markup_mode=None)


@data_app.callback(invoke_without_command=True)
def data_sets(context: typer.Context, root: Root = None) -> None:
    """List data sets and whether their files are found. `data get` downloads."""
    from rich.console import Console
    from rich.table import Table

    from phasezero.data.catalog import DATA_SETS, default_root

    if context.invoked_subcommand:
        return
    where = root or default_root()
    table = Table("name", "found", "what it is", box=None)
    for name in DATA_SETS:
        data_set = DATA_SETS[name]
        found = "" if data_set.takes_argument else "yes" if data_set.present(where) else "no"
        table.add_row(name, found, DATA_SETS.summaries[name])
    Console().print(table)
    print(f"looked in {where}; to download: phasezero data get cifar100 --root {where}")


@data_app.command("get")
def data_get(name: Annotated[str, typer.Argument(help="Data set, such as cifar100.")], root: Root = None) -> None:
    """Download a data set from its official site and check its md5."""
    from phasezero.data.catalog import DATA_SETS, default_root

    download = DATA_SETS[name].download
    if download is None:
        raise UserError(f"data set {name!r} cannot be downloaded: {DATA_SETS.summaries[name]}")
    download(root or default_root())
