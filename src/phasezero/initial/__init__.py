"""Phase-0 strategies, one file each. Importing this package registers them all."""

from phasezero.initial import cwd, decov, mimic, sdc
from phasezero.initial.base import TERMS, OracleProvider, Term, TermOptions, register_initial

__all__ = ["TERMS", "OracleProvider", "Term", "TermOptions", "cwd", "decov", "mimic", "register_initial", "sdc"]
