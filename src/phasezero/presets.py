"""Presets: complete configurations by name, `METHOD[-VARIANT][+STRATEGY[:WEIGHT]]/DATA/bBsS[rR][,KEY=VALUE]`.

A preset starts from the usual training on a data set and adds the settings that the authors of the method and of the
phase-0 strategies published (`published`). The name of every run is itself a preset:
`lucir/cifar100/b50s10,epochs=20,method.imprint=true`.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from phasezero.config import (
    NOT_YAML,
    Engine,
    Network,
    Protocol,
    RunConfig,
    leaves,
    load_yaml,
    parse_assignments,
    parse_strategy,
)
from phasezero.data.catalog import DATA_SETS, family_of, find_data_set
from phasezero.errors import UserError, unknown
from phasezero.initial import STRATEGIES
from phasezero.methods import METHODS

SYNTAX = "METHOD[+STRATEGY[:WEIGHT]]/DATA/bBsS, such as lucir+cwd/cifar100/b50s10"
_SIZES = r"b([0-9]{1,9})s([0-9]{1,9})(?:r([0-9]{1,9}))?|sizes([0-9]{1,9}(?:-[0-9]{1,9})*)"
_SETTING = r",(?=[a-z_0-9.]+=)"  # a comma within a list does not separate
_NAME = re.compile(rf"([^/]*)/(.+?)/(?:{_SIZES})(?:{_SETTING}(.+))?")


def preset(name: str, *, seed: int = 0) -> RunConfig:
    """Return the configuration of that name.

    >>> from phasezero import preset
    >>> preset("lucir+cwd/cifar100/b50s10").initial[0].label
    'cwd:0.5'
    >>> preset("podnet/glyphs/b20s4,epochs=3").training.later.epochs
    3
    """
    parts = _NAME.fullmatch(name)
    if not parts:
        raise UserError(f"preset {name!r}: write {SYNTAX}")
    label, data, base, step, kept, listed, changed = parts.groups(default="")
    method, *terms = label.split("+")
    settings = re.split(_SETTING, changed) if changed else []
    protocol: dict[str, Any] = {"protocol.phase_sizes": [int(size) for size in listed.split("-")]} if listed else {}
    protocol |= {"protocol.memory": f"per_class:{kept}"} if kept else {}
    config = _assemble(method, data, terms, int(base or 1), int(step or 1)).override(protocol)
    return with_name(with_settings(replace(config, seed=seed), parse_assignments(settings)))


def build_config(
    method: str = "lucir",
    data: str = "glyphs",
    *,
    initial: Sequence[str] = (),
    base: int | None = None,
    step: int | None = None,
) -> RunConfig:
    """Build a complete configuration from names: `lucir` or `lucir-original`; terms such as `cwd` or `cwd:0.75`."""
    return with_name(_assemble(method, data, initial, base, step))


def _assemble(method: str, data: str, initial: Sequence[str], base: int | None, step: int | None) -> RunConfig:
    """Combine the settings of data set, method and terms, without a name."""
    data_set, family = find_data_set(data), family_of(data)
    recipe = data_set.recipe
    if recipe.base is None and (base is None or step is None):
        raise UserError(f"data {data!r} has no default phases; give --base B and --step S")
    plain, variant = split_method(method)
    if not has_variant(plain, variant, family):
        raise UserError(f"method {method!r} is not defined for data {data!r}; use {plain!r} and --set")
    settings: dict[str, Any] = {}
    for published in (METHODS[plain].published, METHODS[plain].variants.get(variant, {})):
        settings |= {**published.get("*", {}), **published.get(family, {})}
    terms = []
    for text in initial:
        term = parse_strategy(text)
        for key in (family, f"{plain}/{family}", f"{method}/{family}"):
            settings |= STRATEGIES[term.name].published.get(key, {})
        weight = settings.pop("weight", term.weight)
        terms.append(term if ":" in text else replace(term, weight=weight))
    base = (recipe.base or 0) if base is None else base
    step = recipe.steps[0] if step is None else step
    return RunConfig(
        protocol=Protocol(data, data_set.class_order, base, step),
        network=Network(recipe.network),
        method=METHODS[plain].Options(name=plain, variant=variant),
        initial=tuple(terms),
        training=recipe.training,
        engine=Engine(threads=recipe.threads),
    ).override(settings)


def usual_config(config: RunConfig, terms: Sequence[str] | None = None) -> RunConfig:
    """Return the preset of the same method, data and phases, with these terms, or its own terms at usual weights."""
    protocol = config.protocol
    texts = [term.name for term in config.initial] if terms is None else terms
    usual = _assemble(config.method_name, protocol.data, texts, protocol.base, protocol.step)
    return replace(usual, protocol=replace(usual.protocol, phase_sizes=protocol.phase_sizes))


def with_strategies(config: RunConfig, texts: Sequence[str]) -> RunConfig:
    """Replace the phase-0 strategies. A strategy without a weight gets the published weight.

    Settings published with a strategy are added and removed with it. Settings made by hand stay.
    """
    before, after = usual_config(config, [term.label for term in config.initial]), usual_config(config, texts)
    now, old, new = (dict(leaves(replace(one, initial=()).to_dict())) for one in (config, before, after))
    moved = {key: new[key] for key in new if new[key] != old[key] and old[key] == now[key]}
    return renamed(replace(config, initial=after.initial).override(moved))


def with_settings(config: RunConfig, settings: Mapping[str, Any]) -> RunConfig:
    """Change settings by dotted keys. `epochs`, `first.epochs` and `later.epochs` keep the shape of a schedule."""
    plain, training = dict(settings), config.training
    for key, parts in _EPOCHS.items():
        if key in plain:
            epochs = plain.pop(key)
            if not isinstance(epochs, int) or isinstance(epochs, bool):
                raise UserError(f"{key}: a whole number is expected, got {epochs!r}")
            training = replace(training, **{part: getattr(training, part).stretched(epochs) for part in parts})
    return replace(config, training=training).override(plain)


_EPOCHS = {"epochs": ("first", "later"), "first.epochs": ("first",), "later.epochs": ("later",)}


def with_name(config: RunConfig) -> RunConfig:
    """Give a configuration its name."""
    return replace(config, name=run_name(config))


def renamed(config: RunConfig) -> RunConfig:
    """Update an automatic name to match the settings; keep a name that the user chose."""
    try:
        if config.name:
            preset(config.name)  # raises for a chosen name
        return with_name(config)
    except UserError:  # or for data that only the caller has
        return config


def run_name(config: RunConfig) -> str:
    """Return the name of a run: the preset that gives this configuration, except for seed and engine."""
    protocol, usual = config.protocol, usual_config(config)
    terms = [
        term.name if term.weight == own.weight else term.label
        for term, own in zip(config.initial, usual.initial, strict=True)
    ]
    sizes = f"b{protocol.base}s{protocol.step}"
    if protocol.phase_sizes:
        sizes = "sizes" + "-".join(map(str, protocol.phase_sizes))
    elif protocol.memory != usual.protocol.memory and protocol.memory.startswith("per_class:"):
        sizes += protocol.memory.replace("per_class:", "r")
        usual = replace(usual, protocol=replace(usual.protocol, memory=protocol.memory))
    changed = [f"{key}={_written(value)}" for key, value in changed_settings(config, usual).items()]
    return ",".join([f"{'+'.join([config.method_name, *terms])}/{protocol.data}/{sizes}", *changed])


def changed_settings(config: RunConfig, usual: RunConfig) -> dict[str, Any]:
    """Return the settings that differ from the usual configuration, by the keys that `with_settings` takes.

    The parts of every name (method, data, phases, weights) and the engine section are left out.
    """
    mine, theirs = ({"first": one.training.first.epochs, "later": one.training.later.epochs} for one in (config, usual))
    epochs = {f"{part}.epochs": mine[part] for part in mine if mine[part] != theirs[part]}
    if len(epochs) == 2 and mine["first"] == mine["later"]:
        epochs = {"epochs": mine["first"]}
    expected = dict(leaves(with_settings(usual, epochs).to_dict()))
    in_name = ("name", "seed", "engine.", "protocol.data", "protocol.base", "protocol.step", "protocol.phase_sizes")
    return epochs | {
        key: value
        for key, value in leaves(config.to_dict())
        if expected.get(key) != value and not key.startswith(in_name) and not re.fullmatch(r"initial\.\d+\.weight", key)
    }


def _written(value: Any) -> str:
    """Format a value as YAML, without commas in texts, which would begin another setting."""
    if not isinstance(value, str):
        return json.dumps(value, separators=(",", ":"))
    with contextlib.suppress(*NOT_YAML):
        if "," not in value and yaml.safe_load(value) == value:
            return value
    return json.dumps(value, ensure_ascii=False).replace(",", r"\x2c")


def split_method(method: str) -> tuple[str, str]:
    """Split `lucir-original` into ("lucir", "original"); a plain name has an empty variant."""
    if method in METHODS:
        return method, ""
    for plain in METHODS:
        if method in method_names(plain):
            return plain, method.removeprefix(f"{plain}-")
    raise unknown("method", method, [name for known in METHODS for name in method_names(known)])


def method_names(method: str) -> list[str]:
    """Return the names of the method and its variants."""
    return [method, *(f"{method}-{variant}" for variant in METHODS[method].variants)]


def has_variant(method: str, variant: str, family: str) -> bool:
    """Tell whether a variant is defined for a data set; the method itself is defined for all."""
    return not variant or not METHODS[method].variants[variant].keys().isdisjoint(("*", family))


def published_presets() -> Iterator[str]:
    """Yield the names of all methods and variants, without and with each term, in the published protocols."""
    for data in (name for name in DATA_SETS if DATA_SETS[name].presets):
        recipe = DATA_SETS[data].recipe
        for method in (name for known in METHODS for name in method_names(known)):
            if has_variant(*split_method(method), family_of(data)):
                for label in (method, *(f"{method}+{term}" for term in STRATEGIES)):
                    yield from (f"{label}/{data}/b{recipe.base}s{step}" for step in recipe.steps)


FIRST_RUN = (
    "joint/glyphs/b10s10,first.epochs=40,later.epochs=4",  # from scratch in each phase; the longest comes first
    *(
        f"{label}/glyphs/b10s10,first.epochs=40,later.epochs=2,training.later.lr=0.03"
        for label in ("lucir", "lucir+cwd:0.3", "finetune-free", "ridge", "ncm", "ncm+cwd:0.3")
    ),
)
"""What `phasezero run` trains without arguments: forgetting, remedies, what CwD does to phase 0, and an upper bound.

The protocol was chosen on seeds 0 to 4, so that CwD's effect is clear (notebook/results.md).
"""


def _sets_phases(assignments: Mapping[str, Any]) -> bool:
    """Tell whether the phases are given by hand."""
    return any(f"protocol.{key}" in assignments for key in ("base", "step", "phase_sizes"))


def choose_configs(
    presets: Sequence[str],
    config_file: Path | None,
    data: str | None,
    method: str | None,
    initial: Sequence[str],
    assignments: Mapping[str, Any],
) -> list[RunConfig]:
    """Return what `phasezero run` trains: presets, a file, a method on a data set, or FIRST_RUN if nothing is given.

    The assignments change settings of all of them.
    """
    nothing = not presets and not initial and (config_file, data, method) == (None, None, None)
    if nothing and not _sets_phases(assignments):
        presets = FIRST_RUN
    terms = [text for text in initial if text != "none"]
    if presets and config_file:
        raise UserError("give presets or --config, not both")
    if presets or config_file:
        if data is not None or method is not None:
            raise UserError("--data and --method replace a preset; leave them out, or the preset (or --config)")
        configs = [load_yaml(config_file)] if config_file else [preset(name) for name in presets]
        if initial:
            configs = [with_strategies(config, terms) for config in configs]
    else:
        listed = bool(assignments.get("protocol.phase_sizes"))  # they replace B and S
        base, step = ((1 if listed else assignments.get(f"protocol.{key}")) for key in ("base", "step"))
        data = data or "glyphs"
        runs = [label.split("+") for label in find_data_set(data).compare]
        if method is not None or initial:
            runs = [[method or "lucir", *terms]]
        configs = [build_config(name, data, initial=own, base=base, step=step) for name, *own in runs]
    changed = [with_settings(config, assignments) for config in configs]
    for config in changed:
        sizes = config.protocol.phase_sizes
        if sizes and {"protocol.base", "protocol.step"} & assignments.keys():
            raise UserError(
                f"--base and --step have no effect because protocol.phase_sizes is {list(sizes)}; "
                "leave them out, or add --set protocol.phase_sizes=[]"
            )
    return changed if "name" in assignments else [renamed(config) for config in changed]
