"""`python -m phasezero` is the command `phasezero`."""

from phasezero.cli import entry

entry()
