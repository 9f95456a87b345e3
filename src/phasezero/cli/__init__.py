"""The command line: one file per command."""

import sys


def entry() -> None:
    """Run the command of the shell; Ctrl-C while its modules are imported ends it without a traceback."""
    try:
        from phasezero.cli.main import entry as run

        run()
    except KeyboardInterrupt:
        print("phasezero: stopped", file=sys.stderr)
        sys.exit(130)
