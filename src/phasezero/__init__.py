"""phasezero: class-incremental learning that starts right.

>>> from phasezero import preset, run
>>> config = preset("lucir+cwd/glyphs/b50s10")
>>> config.label
'lucir+cwd'

`run(config)` trains it and returns the record and the model. Names are loaded when they are first used, so that the
command answers quickly.
"""

from __future__ import annotations

import importlib
import os
import time
from typing import TYPE_CHECKING, Any

# Before torch is loaded: two processes of torch on the same cores make each other up to fifty times slower,
# because GNU OpenMP's threads by default spin for long while they wait. Alone, shorter spinning costs nothing.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

STARTED = time.perf_counter()
"""When this process came to phasezero; torch takes a second to load."""

__version__ = "0.2.0"

if TYPE_CHECKING:
    from phasezero.analysis.information import information_proxy as information_proxy
    from phasezero.analysis.overlap import overlap as overlap
    from phasezero.analysis.spectra import alpha as alpha, class_spectra as class_spectra
    from phasezero.config import RunConfig as RunConfig, load_yaml as load_yaml
    from phasezero.data.catalog import Recipe as Recipe, load_data as load_data, register_data as register_data
    from phasezero.data.images import ImageData as ImageData, View as View
    from phasezero.data.stream import Phase as Phase
    from phasezero.engine.callbacks import Callback as Callback
    from phasezero.errors import UserError as UserError
    from phasezero.initial.base import Term as Term, TermOptions as TermOptions, register_initial as register_initial
    from phasezero.initial.cwd import class_wise_decorrelation as class_wise_decorrelation
    from phasezero.initial.decov import decov as decov
    from phasezero.initial.mimic import oracle_mimicry as oracle_mimicry
    from phasezero.initial.sdc import structured_decorrelation as structured_decorrelation
    from phasezero.memory import herd as herd
    from phasezero.methods.base import (
        Method as Method,
        MethodOptions as MethodOptions,
        register_method as register_method,
    )
    from phasezero.methods.lucir import less_forget as less_forget, margin_ranking as margin_ranking
    from phasezero.methods.podnet import nca as nca, pod_flat as pod_flat, pod_spatial as pod_spatial
    from phasezero.methods.stage import Batch as Batch, Stage as Stage
    from phasezero.nets.model import Output as Output
    from phasezero.nets.resnet import Backbone as Backbone, Features as Features, register_network as register_network
    from phasezero.plugins import load_plugin as load_plugin
    from phasezero.presets import preset as preset
    from phasezero.records.metrics import (
        average_incremental_accuracy as average_incremental_accuracy,
        confusion_matrix as confusion_matrix,
        forgetting as forgetting,
        phase_accuracies as phase_accuracies,
    )
    from phasezero.records.run import Record as Record, read_record as read_record, write_record as write_record
    from phasezero.runs.run import RunResult as RunResult, run as run
    from phasezero.schedule import Schedule as Schedule, Training as Training
    from phasezero.validation import option as option

_MODULES = {
    "analysis.information": ["information_proxy"],
    "analysis.overlap": ["overlap"],
    "analysis.spectra": ["alpha", "class_spectra"],
    "config": ["RunConfig", "load_yaml"],
    "data.catalog": ["Recipe", "load_data", "register_data"],
    "data.images": ["ImageData", "View"],
    "data.stream": ["Phase"],
    "engine.callbacks": ["Callback"],
    "errors": ["UserError"],
    "initial.base": ["Term", "TermOptions", "register_initial"],
    "initial.cwd": ["class_wise_decorrelation"],
    "initial.decov": ["decov"],
    "initial.mimic": ["oracle_mimicry"],
    "initial.sdc": ["structured_decorrelation"],
    "memory": ["herd"],
    "methods.base": ["Method", "MethodOptions", "register_method"],
    "methods.lucir": ["less_forget", "margin_ranking"],
    "methods.podnet": ["nca", "pod_flat", "pod_spatial"],
    "methods.stage": ["Batch", "Stage"],
    "nets.model": ["Output"],
    "nets.resnet": ["Backbone", "Features", "register_network"],
    "plugins": ["load_plugin"],
    "presets": ["preset"],
    "records.metrics": ["average_incremental_accuracy", "confusion_matrix", "forgetting", "phase_accuracies"],
    "records.run": ["Record", "read_record", "write_record"],
    "runs.run": ["RunResult", "run"],
    "schedule": ["Schedule", "Training"],
    "validation": ["option"],
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'phasezero' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"phasezero.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
