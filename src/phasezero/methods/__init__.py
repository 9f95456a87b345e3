"""Methods, one file each. Importing this package registers them all."""

from phasezero.methods import aanet, bic, fecam, finetune, icarl, joint, lucir, lwf, ncm, podnet, ridge, slda  # noqa: F401
from phasezero.methods.base import METHODS, Method, MethodOptions, classifier_of, later_cost, register_method
from phasezero.methods.stage import Batch, Stage

__all__ = ["METHODS", "Batch", "Method", "MethodOptions", "Stage", "classifier_of", "later_cost", "register_method"]
