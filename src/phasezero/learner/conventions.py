"""The conventions of scikit-learn, without depending on it."""

from __future__ import annotations

import inspect
from typing import Any, Self


class Estimator:
    """Parameters are the constructor's arguments, kept under their names."""

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
        return {one.name: one.default for one in parameters}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> Self:
        """Change arguments of the constructor; they take effect at the next `fit`."""
        for name, value in params.items():
            if name not in self._defaults():
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}")
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        # Images are neither a matrix of features nor always of one shape.
        images = InputTags(two_d_array=False, three_d_array=True)
        return Tags("classifier", TargetTags(required=True), classifier_tags=ClassifierTags(), input_tags=images)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "classes_")

    def __repr__(self) -> str:
        own, usual = self.get_params(), self._defaults()
        changed = [f"{name}={value!r}" for name, value in own.items() if value != usual[name]]
        return f"{type(self).__name__}({', '.join(changed)})"
