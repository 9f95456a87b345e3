"""Methods, one file each. Importing this package registers them all."""

from phasezero.methods import lucir
from phasezero.methods.base import METHODS, Batch, Method, MethodOptions, Stage

__all__ = ["METHODS", "Batch", "Method", "MethodOptions", "Stage", "lucir"]
