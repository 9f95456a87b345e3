"""From images to a model that names them: learn classes, add classes, predict, save."""

from phasezero.learner.learner import Learner

__all__ = ["Learner"]
