"""Phase-0 terms. Importing this package registers them all."""

from phasezero.initial import cwd, decov, mimic, sdc
from phasezero.initial.base import TERMS, Term, TermOptions, Workshop

__all__ = ["TERMS", "Term", "TermOptions", "Workshop", "cwd", "decov", "mimic", "sdc"]
