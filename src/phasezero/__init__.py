"""phasezero: class-incremental learning that starts right.

from phasezero import preset, run

record = run(preset("lucir+cwd/glyphs/b50s10"))
print(record["summary"]["head"]["average_incremental_accuracy"])
"""

import os

# Before torch is loaded: two processes of torch on the same cores make each other up to fifty times slower,
# because GNU OpenMP's threads by default spin for long while they wait. Alone, shorter spinning costs nothing.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

import phasezero._start  # noqa: F401 (a clock that must start before torch is loaded)
from phasezero._version import __version__
from phasezero.config import RunConfig, load_yaml
from phasezero.errors import UserError
from phasezero.experiment import run
from phasezero.initial.cwd import class_wise_decorrelation
from phasezero.presets import preset
from phasezero.results.record import Record, read_record, write_record

__all__ = [
    "Record",
    "RunConfig",
    "UserError",
    "__version__",
    "class_wise_decorrelation",
    "load_yaml",
    "preset",
    "read_record",
    "run",
    "write_record",
]
