"""Phase-0 terms. Importing this package registers them all."""

from phasezero.initial import cwd
from phasezero.initial.base import TERMS, Term, TermOptions

__all__ = ["TERMS", "Term", "TermOptions", "cwd"]
