# The public names: type checkers read this file, and __init__.py finds in it the module of each name.

from phasezero.analysis.information import information_proxy as information_proxy
from phasezero.analysis.overlap import overlap as overlap
from phasezero.analysis.spectra import alpha as alpha, class_spectra as class_spectra
from phasezero.config import RunConfig as RunConfig, load_yaml as load_yaml
from phasezero.data.catalog import Recipe as Recipe, load_data as load_data, register_data as register_data
from phasezero.data.images import ImageData as ImageData, View as View
from phasezero.data.stream import Phase as Phase
from phasezero.engine.callbacks import Callback as Callback
from phasezero.errors import UserError as UserError
from phasezero.export import export_model as export_model
from phasezero.initial.base import (
    Strategy as Strategy,
    StrategyOptions as StrategyOptions,
    Term as Term,
    register_initial as register_initial,
)
from phasezero.initial.cwd import class_wise_decorrelation as class_wise_decorrelation
from phasezero.initial.decov import decov as decov
from phasezero.initial.mimic import oracle_mimicry as oracle_mimicry
from phasezero.initial.sdc import structured_decorrelation as structured_decorrelation
from phasezero.learner.learner import Learner as Learner
from phasezero.memory import herd as herd
from phasezero.methods.base import Method as Method, MethodOptions as MethodOptions, register_method as register_method
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

STARTED: float
__version__: str
