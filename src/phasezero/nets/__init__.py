"""Networks: backbones, heads that grow, and the model of both. Importing this package registers the networks."""

from phasezero.nets import alexnet, efficientnet, vit  # noqa: F401
from phasezero.nets.heads import BiasCorrectedHead, CosineHead, GrowingHead, LinearHead
from phasezero.nets.lsc import LocalSimilarityHead, imprint_proxies
from phasezero.nets.model import IncrementalModel, Output
from phasezero.nets.pretrained import BACKBONES, Pretrained, build_backbone, load_backbone
from phasezero.nets.resnet import NETWORKS, Backbone, Features, ResNet, fits_network, register_network

__all__ = [
    "BACKBONES",
    "NETWORKS",
    "Backbone",
    "BiasCorrectedHead",
    "CosineHead",
    "Features",
    "GrowingHead",
    "IncrementalModel",
    "LinearHead",
    "LocalSimilarityHead",
    "Output",
    "Pretrained",
    "ResNet",
    "build_backbone",
    "fits_network",
    "imprint_proxies",
    "load_backbone",
    "register_network",
]
