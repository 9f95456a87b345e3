"""Methods, one file each. Importing this package registers them all."""

from phasezero.methods import aanet, bic, finetune, icarl, joint, lucir, lwf, podnet
from phasezero.methods.base import METHODS, Batch, Method, MethodOptions, Stage

__all__ = [
    "METHODS",
    "Batch",
    "Method",
    "MethodOptions",
    "Stage",
    "aanet",
    "bic",
    "finetune",
    "icarl",
    "joint",
    "lucir",
    "lwf",
    "podnet",
]
