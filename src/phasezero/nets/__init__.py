"""Networks: backbones, heads that grow, and the model of both."""

from phasezero.nets.alexnet import AlexNet
from phasezero.nets.bias import BiasCorrectedHead
from phasezero.nets.heads import CosineHead, GrowingHead, LinearHead
from phasezero.nets.lsc import LocalSimilarityHead, imprint_proxies
from phasezero.nets.model import IncrementalModel, Output
from phasezero.nets.podnet import PodResNet
from phasezero.nets.resnet import NETWORKS, Backbone, Features, NetworkFactory, ResNet

__all__ = [
    "NETWORKS",
    "AlexNet",
    "Backbone",
    "BiasCorrectedHead",
    "CosineHead",
    "Features",
    "GrowingHead",
    "IncrementalModel",
    "LinearHead",
    "LocalSimilarityHead",
    "NetworkFactory",
    "Output",
    "PodResNet",
    "ResNet",
    "imprint_proxies",
]
