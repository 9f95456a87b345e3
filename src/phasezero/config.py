"""The configuration of a run: frozen dataclasses with every field that can affect a number, and YAML.

Every field of YAML and `--set` is checked. The error for an unknown key names the nearest known key.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import types
import typing
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from phasezero.errors import UserError, unknown
from phasezero.initial import STRATEGIES, StrategyOptions
from phasezero.memory import MemoryRule
from phasezero.methods import METHODS, MethodOptions
from phasezero.methods.lucir import Lucir
from phasezero.nets import NETWORKS
from phasezero.records.files import read_file
from phasezero.schedule import Schedule, Training
from phasezero.validation import BATCH_SIZE, POSITIVE, WEIGHT, Limited, check_number, check_printable, option, shown


@dataclass(frozen=True)
class Protocol:
    """The order and phases of the classes, and the memory rule."""

    data: str = "glyphs"  # the data set, with its argument if any: folder:photos
    # Name of an order, or a list of class indices. It does not depend on the run's seed.
    class_order: str | tuple[int, ...] = "seed1993"
    base: int = 50  # B: number of classes in phase 0
    step: int = 10  # S: number of classes in each later phase
    phase_sizes: tuple[int, ...] = ()  # instead of base and step: any sizes, also uneven
    memory: str = "per_class:20"  # exemplars: per_class:R, or total:M for all classes together
    selection: Literal["herding", "random"] = "herding"  # how exemplars are chosen

    def __post_init__(self) -> None:
        MemoryRule.parse(self.memory)

    @property
    def first_classes(self) -> int:
        """Return how many classes phase 0 has."""
        return self.phase_sizes[0] if self.phase_sizes else self.base


MODULE = "module"
"""Name and weights of a network that a learner was given as a module."""


@dataclass(frozen=True)
class Network(Limited):
    name: str = "resnet18-cifar"  # the backbone: a name from `phasezero list networks`
    # Whether features pass a ReLU before the pooling. LUCIR and its descendants remove it.
    last_relu: bool = False
    weights: str = option("", before="")  # pretrained weights: a name or a file; empty for random numbers
    # Learning rate of the backbone relative to the rest of the model; 0 freezes it from the beginning.
    backbone_lr: float = option(1.0, **WEIGHT, before=1.0)
    # Side of the images that pretrained weights see; 0: that of their training. Smaller images take less time.
    image_size: int = option(0, least=0, most=2048, before=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights != MODULE:
            NETWORKS[self.name]
        check_printable("network.weights", self.weights)


@dataclass(frozen=True)
class Engine(Limited):
    """How a run is computed. `auto` is resolved when it starts; the record has what was used."""

    device: str = "auto"  # auto, cpu, cuda or cuda:N; auto takes a GPU if there is one
    # Number format of training. auto: fp16 on a GPU, fp32 on a CPU.
    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = "auto"
    # How steps are executed. auto: eager on a CPU, captured on a GPU, compiled on a GPU for a long phase 0.
    engine: Literal["auto", "eager", "captured", "compiled"] = "auto"
    threads: int = option(0, least=0, most=1024)  # CPU threads; 0 means all. Rounding depends on it
    test_batch_size: int = option(500, **BATCH_SIZE)  # images per batch in evaluation; at most 64 on a CPU
    loss_limit: float = option(1e4, **POSITIVE, infinite=True)  # a larger mean loss of an epoch means divergence
    # resident: image files are decoded once and kept on the device. files: they are decoded again in each epoch. The
    # training views differ slightly (docs/protocols.md). auto: resident if they fit on a GPU, otherwise files.
    photos: Literal["auto", "resident", "files"] = option("auto", before="auto")


@dataclass(frozen=True)
class RunConfig:
    """The complete configuration of a run.

    >>> from phasezero import RunConfig, preset
    >>> config = preset("lucir+cwd/glyphs/b50s10").override({"training.first.lr": 0.05})
    >>> config.training.first.lr, config.initial[0].label
    (0.05, 'cwd:0.1')
    >>> RunConfig.from_dict(config.to_dict()) == config
    True
    """

    name: str = ""  # name of the run in tables; presets set it
    seed: int = 0  # decides initialisation, data order and augmentation
    protocol: Protocol = Protocol()
    network: Network = Network()
    method: MethodOptions = field(default_factory=lambda: Lucir.Options())
    initial: tuple[StrategyOptions, ...] = ()
    training: Training = Training()
    engine: Engine = Engine()

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise UserError(f"seed: must not be negative, got {self.seed}")
        check_printable("name", self.name)
        check_printable("protocol.data", self.protocol.data)
        for place, term in enumerate(self.initial):
            check_printable(f"the file of initial.{place}", term.file)

    @property
    def method_name(self) -> str:
        """Return the method with its variant: `lucir-original`."""
        return "-".join(filter(None, [self.method.name, self.method.variant]))

    @property
    def label(self) -> str:
        """Return the method, its variant and its phase-0 strategies: `lucir+cwd`."""
        return "+".join([self.method_name, *(term.name for term in self.initial)])

    def to_dict(self) -> dict[str, Any]:
        return {key: _plain(value) for key, value in dataclasses.asdict(self).items()}

    def to_yaml(self) -> str:
        return str(yaml.safe_dump(self.to_dict(), sort_keys=False, default_flow_style=None, width=100))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunConfig:
        """Build a configuration from nested settings; a missing setting gets its default."""
        return typing.cast(RunConfig, _build(cls, values, ""))

    @classmethod
    def from_record(cls, values: Mapping[str, Any]) -> RunConfig:
        """Build the configuration of a record, which may be older than some settings."""
        return cls.from_dict(complete(values))

    def override(self, assignments: Mapping[str, Any]) -> RunConfig:
        """Return a changed configuration; keys are dotted paths: `{"training.first.lr": 0.2}`."""
        if not assignments:
            return self
        if "method.variant" in assignments:  # it only names the settings of a preset
            raise UserError("method.variant: a variant is chosen by the method's name, such as lucir-original")
        values = self.to_dict()
        for path, value in assignments.items():
            _assign(values, path, value)
        return RunConfig.from_dict(values)


def complete(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's configuration, with newer settings at the values that runs had before these existed."""
    sections = dict(config)
    for name, kind in (("engine", Engine), ("network", Network)):
        if name in config:
            sections[name] = _before(kind) | dict(config[name])
    if "training" in config:
        schedules = {name: _before(Schedule) | dict(config["training"][name]) for name in ("first", "later")}
        sections["training"] = dict(config["training"]) | schedules
    if "method" in config:
        sections["method"] = _complete(config["method"], METHODS)
    if "initial" in config:
        sections["initial"] = [_complete(term, STRATEGIES) for term in config["initial"]]
    return sections


def _complete(values: Mapping[str, Any], registry: Any) -> dict[str, Any]:
    """Complete the options of a method or term, if it is registered."""
    known = values["name"] in registry
    return (_before(registry[values["name"]].Options) if known else {}) | dict(values)


def _before(kind: type) -> dict[str, Any]:
    """Return the values that runs had before these fields existed."""
    return {field.name: field.metadata["before"] for field in dataclasses.fields(kind) if "before" in field.metadata}


def load_yaml(path: str | Path) -> RunConfig:
    """Read a configuration from a YAML file.

    >>> import pathlib, tempfile
    >>> from phasezero import load_yaml, preset
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name) / "mine.yaml"
    >>> _ = file.write_text(preset("lucir/glyphs/b50s10").to_yaml())
    >>> load_yaml(file) == preset("lucir/glyphs/b50s10")
    True
    """
    content = read_file(Path(path), "configuration", MOST_YAML)
    try:
        values = list(yaml.load_all(content.decode("utf-8"), _UniqueKeys))
    except NOT_YAML as error:
        raise UserError(f"configuration {path} is not YAML: {yaml_fault(error)}") from None
    if len(values) > 1:
        raise UserError(f"configuration {path} holds {len(values)} configurations; --config takes one")
    (value,) = values or [None]
    if not isinstance(value, dict):
        raise UserError(f"configuration {path}: a mapping of sections is expected, got {type(value).__name__}")
    return RunConfig.from_dict(value)


MOST_YAML = 1 << 20  # bytes; PyYAML reads about 100 kB a second
NOT_YAML = (yaml.YAMLError, ValueError, RecursionError)
"""What PyYAML raises: ValueError for an impossible date or text that is not UTF-8, RecursionError for deep nesting."""


def yaml_fault(error: Exception) -> str:
    """Return what is wrong with a YAML text, in one line."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
    return f"{problem or ' '.join(str(error).split())}{place}"


class _UniqueKeys(yaml.SafeLoader):
    """Reject a key that is given twice: PyYAML would use the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = Counter(str(key.value) for key, _ in node.value)
        if twice := next((key for key, count in keys.items() if count > 1), None):
            raise yaml.constructor.ConstructorError(None, None, f"{twice} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


def parse_assignments(texts: list[str]) -> dict[str, Any]:
    """Read `key=value` texts; the value is YAML (0.2, true, [80, 120], a word)."""
    assignments = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UserError(f"--set {shown(text)}: write key=value, for example training.first.lr=0.2")
        try:
            assignments[key.strip()] = yaml.safe_load(value)
        except NOT_YAML as error:
            raise UserError(f"--set {shown(text)}: the value cannot be read: {yaml_fault(error)}") from None
    return assignments


def parse_strategy(text: str) -> StrategyOptions:
    """Parse `cwd:0.5`, or `cwd` for the strategy's default weight."""
    name, colon, weight = text.partition(":")
    options = STRATEGIES[name].Options
    if not colon:
        return options(name=name)
    try:
        number = float(weight)
    except ValueError:
        raise UserError(f"initial {text!r}: the weight after the colon must be a number") from None
    check_number(f"initial {text!r}.weight", number, options.__dataclass_fields__["weight"])
    return options(name=name, weight=number)


def leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested settings as (dotted key, value); entries of a list of mappings have numbers for keys."""
    for key, value in config.items():
        if isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value):
            value = {str(place): entry for place, entry in enumerate(value)}
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _plain(value: Any) -> Any:
    """Return a value for JSON and YAML. JSON has no infinity, so it becomes a word that a field of floats reads."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return "inf" if value == math.inf else value


def _assign(values: dict[str, Any], path: str, value: Any) -> None:
    """Set the entry of nested mappings and lists at a dotted path; raise UserError if it does not exist."""
    node: Any = values
    keys = path.split(".")
    for depth, key in enumerate(keys):
        known = node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        entry = int(key) if isinstance(node, list) and key.isdecimal() else key
        if entry not in known:
            raise unknown(f"key in {'.'.join(keys[:depth]) or 'the configuration'}", key, map(str, known))
        parent, node = node, node[entry]
    parent[entry] = value


_type_hints = functools.cache(typing.get_type_hints)  # evaluating annotations is the slow part of reading


def _build(kind: type, values: Any, where: str) -> Any:
    """Build a dataclass from a mapping; for a base class of options, that of the method or term it names."""
    if not isinstance(values, Mapping):
        raise UserError(f"{where or 'configuration'}: a mapping is expected, got {shown(values)}")
    if kind is MethodOptions or kind is StrategyOptions:
        registry: Any = METHODS if kind is MethodOptions else STRATEGIES
        if "name" not in values:
            raise UserError(f"{where}: a name is needed, one of {', '.join(registry)}")
        entry = registry[_convert(str, values["name"], f"{where}.name")]
        kind, variant = entry.Options, _convert(str, values.get("variant", ""), f"{where}.variant")
        if variant and registry is METHODS and variant not in entry.variants:
            raise unknown(f"variant of {values['name']}", variant, entry.variants)
    hints, known = _type_hints(kind), {entry.name: entry for entry in dataclasses.fields(kind)}
    for key in values:
        if key not in known:
            raise unknown(f"key in {where or 'the configuration'}", key, known)
    prefix = f"{where}." if where else ""
    return kind(**{k: _convert(hints[k], value, prefix + k, known[k]) for k, value in values.items()})


def _convert(hint: Any, value: Any, where: str, limits: dataclasses.Field[Any] | None = None) -> Any:
    """Convert a value to its annotated type; raise UserError where it does not fit."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _build(hint, value, where)
    if origin is Literal:
        if value not in arguments:
            raise unknown(f"value of {where}:", value, map(str, arguments))
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{where}: a list is expected, got {shown(value)}")
        return tuple(_convert(arguments[0], item, f"{where}.{i}", limits) for i, item in enumerate(value))
    if origin in (typing.Union, types.UnionType):
        wants_list = isinstance(value, list | tuple)
        options = [option for option in arguments if (typing.get_origin(option) is tuple) == wants_list]
        return _convert(options[0], value, where, limits)
    if hint is float and isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = float(value)  # YAML 1.1 reads 1e-4 as a word
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number if hint is float else isinstance(value, hint) and (number or hint is not int)):
        raise UserError(f"{where}: {hint.__name__} is expected, got {shown(value)}")
    if number:
        check_number(where, value, limits)  # before float(), which fails for huge integers
    return float(value) if hint is float else value
