"""`python -m phasezero` is the command `phasezero`."""

from phasezero.cli.main import entry

entry()
