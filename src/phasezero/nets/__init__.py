"""Networks: backbones, heads that grow, and the model of both."""

from phasezero.nets.heads import CosineHead, GrowingHead, LinearHead
from phasezero.nets.model import IncrementalModel, Output
from phasezero.nets.resnet import NETWORKS, Features, ResNet

__all__ = [
    "NETWORKS",
    "CosineHead",
    "Features",
    "GrowingHead",
    "IncrementalModel",
    "LinearHead",
    "Output",
    "ResNet",
]
