"""Phase-0 strategies, one file each. Importing this package registers them all."""

from phasezero.initial import augment, cwd, decov, label_smoothing, mimic, mixing, sdc, self_distillation, sla  # noqa: F401
from phasezero.initial.base import STRATEGIES, OracleProvider, Strategy, StrategyOptions, Term, register_initial
from phasezero.initial.combine import Strategies

__all__ = ["STRATEGIES", "OracleProvider", "Strategies", "Strategy", "StrategyOptions", "Term", "register_initial"]
