"""The configuration of a run: frozen dataclasses, every field that can move a number, YAML in and out.

A preset (presets.py) is a function that returns one. Whatever comes from outside (YAML, `--set`) is checked
field by field; an unknown key is refused with the nearest known one.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from phasezero.bounds import refuse_outside, refuse_unprintable
from phasezero.errors import UserError, unknown
from phasezero.initial import TERMS, TermOptions
from phasezero.memory import MemoryRule
from phasezero.methods import METHODS, MethodOptions
from phasezero.methods.lucir import Lucir
from phasezero.nets import NETWORKS
from phasezero.schedule import Schedule


@dataclass(frozen=True)
class Protocol:
    """Which classes come when, and what may be kept of them."""

    data: str = "glyphs"
    class_order: str | tuple[int, ...] = "seed1993"  # apart from the run's seed
    base: int = 50  # B: classes of phase 0
    step: int = 10  # S: classes of each later phase
    phase_sizes: tuple[int, ...] = ()  # instead of base and step: any sizes, uneven ones too
    memory: str = "per_class:20"  # R; or total:M
    selection: Literal["herding", "random"] = "herding"

    def __post_init__(self) -> None:
        MemoryRule.parse(self.memory)


@dataclass(frozen=True)
class Network:
    name: str = "resnet18-cifar"
    last_relu: bool = False  # LUCIR and its descendants remove the ReLU before the pooling

    def __post_init__(self) -> None:
        NETWORKS[self.name]


@dataclass(frozen=True)
class Training:
    first: Schedule = Schedule()  # phase 0
    later: Schedule = Schedule()
    brightness: float = 0.0  # jitter of the training images; PODNet's and AANets' codes: 63/255 = 0.247


@dataclass(frozen=True)
class Engine:
    """How it is computed. `auto` is settled when the run starts; the record says what was used."""

    device: str = "auto"
    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = "auto"
    engine: Literal["auto", "eager", "captured", "compiled"] = "auto"
    threads: int = 0  # of a CPU; 0: all there are. Rounding depends on it, and so do the last digits
    test_batch_size: int = 500  # at a time in evaluation; on a CPU 64 at most, which fit its caches
    loss_limit: float = 1e4  # a mean epoch loss beyond this is called divergence
    # Of image files: decoded once and kept on the device, or decoded anew in each epoch. The training views differ
    # slightly (docs/protocols.md). auto: resident on a CUDA device with room for them (data/sources.py), else files.
    photos: Literal["auto", "resident", "files"] = "auto"


@dataclass(frozen=True)
class RunConfig:
    name: str = ""
    seed: int = 0  # initialisation, data order and augmentation
    protocol: Protocol = Protocol()
    network: Network = Network()
    method: MethodOptions = field(default_factory=lambda: Lucir.Options())
    initial: tuple[TermOptions, ...] = ()
    training: Training = Training()
    engine: Engine = Engine()

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise UserError(f"seed: must not be negative, got {self.seed}")
        refuse_unprintable("name", self.name)
        refuse_unprintable("protocol.data", self.protocol.data)
        for place, term in enumerate(self.initial):
            refuse_unprintable(f"the file of initial.{place}", term.file)

    @property
    def label(self) -> str:
        """`lucir+cwd`, `lucir-original`: the method, its variant and its phase-0 terms."""
        method = "-".join(filter(None, [self.method.name, self.method.variant]))
        return "+".join([method, *(term.name for term in self.initial)])

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = _plain(dataclasses.asdict(self))
        return plain

    def to_yaml(self) -> str:
        text: str = yaml.safe_dump(self.to_dict(), sort_keys=False, default_flow_style=None, width=100)
        return text

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunConfig:
        config: RunConfig = _build(cls, values, "")
        return config

    def override(self, assignments: Mapping[str, Any]) -> RunConfig:
        """`{"training.first.lr": 0.2}` -> a new configuration; keys are dotted paths."""
        if not assignments:
            return self
        if "method.variant" in assignments:  # it only names what a preset has set
            raise UserError(
                "method.variant: a variant is chosen by the method's name, such as lucir-original"
            )
        values = self.to_dict()
        for path, value in assignments.items():
            _assign(values, path, value)
        return RunConfig.from_dict(values)


def load_yaml(path: str | Path) -> RunConfig:
    try:
        values = list(yaml.load_all(Path(path).read_text(), _NoRepetition))
    except OSError as error:
        raise UserError(f"configuration {path} cannot be read: {error.strerror or error}") from None
    except (yaml.YAMLError, ValueError) as error:  # the latter: no UTF-8, or a date that is none
        raise UserError(f"configuration {path} is not YAML: {error}") from None
    if len(values) > 1:
        raise UserError(f"configuration {path} holds {len(values)} configurations; --config takes one")
    (value,) = values or [None]
    if not isinstance(value, dict):
        raise UserError(
            f"configuration {path}: a mapping of sections is expected, got {type(value).__name__}"
        )
    return RunConfig.from_dict(value)


class _NoRepetition(yaml.SafeLoader):
    """YAML in which a key that is given twice is a mistake: PyYAML would take the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            raise yaml.constructor.ConstructorError(None, None, f"{twice} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


def parse_assignments(texts: list[str]) -> dict[str, Any]:
    """`--set key=value` texts; the value is read as YAML (0.2, true, [80, 120], a word)."""
    assignments = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UserError(f"--set {text!r}: write key=value, for example training.first.lr=0.2")
        try:
            assignments[key.strip()] = yaml.safe_load(value)
        except (yaml.YAMLError, ValueError):  # the latter: a date that is none, a number without end
            raise UserError(f"--set {text!r}: the value cannot be read") from None
    return assignments


def parse_term(text: str) -> TermOptions:
    """`cwd:0.5` or `cwd` (the term's own default weight)."""
    name, colon, weight = text.partition(":")
    options = TERMS[name].Options
    if not colon:
        return options()
    try:
        number = float(weight)
    except ValueError:
        raise UserError(f"initial {text!r}: the weight after the colon must be a number") from None
    refuse_outside(f"initial {text!r}.weight", number)
    return options(weight=number)


def leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings as (dotted key, value)."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _assign(values: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    node: Any = values
    for depth, key in enumerate(parents):
        where = ".".join(parents[:depth])
        if isinstance(node, list):
            if not key.isdecimal() or int(key) >= len(node):
                raise UserError(f"{path}: {where} has {len(node)} entries; write its index, from 0")
            node = node[int(key)]
        elif isinstance(node, dict) and key in node:
            node = node[key]
        else:
            raise unknown(
                f"key in {where or 'the configuration'}", key, node if isinstance(node, dict) else ()
            )
    if isinstance(node, list) and last.isdecimal() and int(last) < len(node):
        node[int(last)] = value
    elif isinstance(node, dict) and last in node:
        node[last] = value
    else:
        known = (
            node if isinstance(node, dict) else map(str, range(len(node))) if isinstance(node, list) else ()
        )
        raise unknown(f"key in {'.'.join(parents) or 'the configuration'}", last, known)


_type_hints = functools.cache(typing.get_type_hints)  # evaluating annotations is the slow part of reading


def _build(kind: type, values: Any, where: str) -> Any:
    """A dataclass from a mapping, each field converted to its annotated type."""
    if not isinstance(values, Mapping):
        raise UserError(f"{where or 'configuration'}: a mapping is expected, got {values!r}")
    if kind is MethodOptions or kind is TermOptions:
        registry: Any = METHODS if kind is MethodOptions else TERMS
        if "name" not in values:
            raise UserError(f"{where}: a name is needed, one of {', '.join(registry)}")
        kind = registry[_convert(str, values["name"], f"{where}.name")].Options
        variant = _convert(str, values.get("variant", ""), f"{where}.variant")
        if registry is METHODS and variant:
            known = METHODS[values["name"]].variants
            if variant not in known:
                raise unknown(f"variant of {values['name']}", variant, known)
    hints = _type_hints(kind)
    names = [entry.name for entry in dataclasses.fields(kind)]
    for key in values:
        if key not in names:
            raise unknown(f"key in {where or 'the configuration'}", key, names)
    prefix = f"{where}." if where else ""
    return kind(**{key: _convert(hints[key], value, prefix + key) for key, value in values.items()})


def _convert(hint: Any, value: Any, where: str) -> Any:
    found = _converted(hint, value, where)
    if isinstance(found, int | float) and not isinstance(found, bool):
        refuse_outside(where, found)
    return found


def _converted(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _build(hint, value, where)
    if origin is Literal:
        if value not in arguments:
            raise unknown(f"value of {where}:", value, map(str, arguments))
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{where}: a list is expected, got {value!r}")
        return tuple(_convert(arguments[0], item, f"{where}.{i}") for i, item in enumerate(value))
    if origin in (typing.Union, types.UnionType):
        wants_list = isinstance(value, list | tuple)
        options = [option for option in arguments if (typing.get_origin(option) is tuple) == wants_list]
        return _convert(options[0], value, where)
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        refuse_outside(where, value)  # here already: float() fails at a whole number without end
        return float(value)
    if hint is float and isinstance(value, str):
        try:
            return float(value)  # YAML 1.1 reads 1e-4 as a word
        except ValueError:
            pass
    if isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise UserError(f"{where}: {hint.__name__} is expected, got {value!r}")
