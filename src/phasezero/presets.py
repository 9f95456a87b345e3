"""Presets: complete configurations by name, `METHOD[-VARIANT][+TERM]/DATA/bBsS`.

A data set says how networks are commonly trained on it; a method and a phase-0 term bring what their authors
set otherwise there (`published`, beside their equations). A preset is the three together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from phasezero.config import Engine, Network, Protocol, RunConfig, Training, leaves, parse_term
from phasezero.data.catalog import DATA_SETS, split_name
from phasezero.errors import UserError, unknown
from phasezero.initial import TERMS, TermOptions
from phasezero.methods import METHODS
from phasezero.registry import Registry
from phasezero.schedule import Schedule

PRESETS: Registry[Callable[[], RunConfig]] = Registry("preset")


@dataclass(frozen=True)
class Recipe:
    """How a data set is trained, and the protocols published on it; None where only the user can know."""

    network: Network
    training: Training
    base: int | None = 50
    steps: tuple[int, ...] = (10, 5, 2)
    threads: int = 0


_IMAGENET = Training(*2 * (Schedule(epochs=90, milestones=(30, 60), weight_decay=1e-4),))

RECIPES = {
    # In small: the same shape (a long flat start, two drops) for a network that a CPU trains in a minute.
    "glyphs": Recipe(
        Network("resnet-glyphs"),
        Training(
            Schedule(epochs=10, milestones=(7, 9), batch_size=64),
            Schedule(epochs=6, milestones=(4, 5), batch_size=64),
        ),
        threads=1,  # so small a network gains little by a second one: runs side by side gain more
    ),
    "cifar100": Recipe(Network("resnet18-cifar"), Training()),
    "imagenet100": Recipe(Network("resnet18"), _IMAGENET),
    "imagenet": Recipe(Network("resnet18"), _IMAGENET, base=100, steps=(100, 50)),
    "folder": Recipe(Network("resnet18"), _IMAGENET, base=None),
}
LIKE_IMAGENET100 = ("imagenet100-cwd", "imagenet100-lucir", "imagenet100-podnet")


def build_config(
    method: str = "lucir",
    data: str = "glyphs",
    *,
    initial: Sequence[str] = (),
    base: int | None = None,
    step: int | None = None,
) -> RunConfig:
    """A complete configuration from names: `lucir` or `lucir-original`; terms such as `cwd` or `cwd:0.75`."""
    name = split_name(data)[0]
    data_set = DATA_SETS[name]
    recipe = RECIPES["imagenet100" if name in LIKE_IMAGENET100 else name]
    family = family_of(data)
    if recipe.base is None and (base is None or step is None):
        raise UserError(f"data {data!r}: say how many classes come first and at a time (--base B --step S)")

    plain, variant = split_method(method)
    settings: dict[str, Any] = {}
    for published in (METHODS[plain].published, METHODS[plain].variants.get(variant, {})):
        settings |= {**published.get("*", {}), **published.get(family, {})}
    if not fits(plain, variant, family):
        raise UserError(f"method {method!r} is not defined for data {data!r}; use {plain!r} and --set")
    config = RunConfig(
        protocol=Protocol(
            data,
            data_set.class_order,
            base=recipe.base or 0 if base is None else base,
            step=recipe.steps[0] if step is None else step,
        ),
        network=recipe.network,
        method=METHODS[plain].Options(variant=variant),
        training=recipe.training,
        engine=Engine(threads=recipe.threads),
    ).override(settings)
    return with_terms(config, initial)


def with_terms(config: RunConfig, texts: Sequence[str]) -> RunConfig:
    """These phase-0 terms instead of the configuration's own; a weight left out is the one published for the data."""
    terms: list[TermOptions] = []
    settings: dict[str, Any] = {}
    for text in texts:
        term = parse_term(text)
        own = _published_with(term, config)
        weight = own.pop("weight", term.weight)
        terms.append(term if ":" in text else replace(term, weight=weight))
        settings |= own
    dropped: dict[str, Any] = {}
    for term in config.initial:
        dropped |= _published_with(term, config)
    dropped.pop("weight", None)
    if settings or dropped:
        # What goes with a term goes when the term goes; what was set by hand stays.
        now, plain = (dict(leaves(one.to_dict())) for one in (config, _without_terms(config)))
        settings = {
            key: settings.get(key, plain[key])
            for key in {**dropped, **settings}
            if now[key] in (plain[key], dropped.get(key, plain[key]))
        }
    config = replace(config, initial=tuple(terms)).override(settings)
    return replace(config, name=standard_name(config))


def _published_with(term: TermOptions, config: RunConfig) -> dict[str, Any]:
    """The term's own weight and what its authors changed besides, for this method on this data."""
    family, published = family_of(config.protocol.data), TERMS[term.name].published
    names = [family, f"{config.method.name}/{family}", f"{replace(config, initial=()).label}/{family}"]
    return {key: value for name in names for key, value in published.get(name, {}).items()}


def _without_terms(config: RunConfig) -> RunConfig:
    """The preset of the configuration's method on its data."""
    method, protocol = replace(config, initial=()).label, config.protocol
    return build_config(method, protocol.data, base=protocol.base, step=protocol.step)


def family_of(data: str) -> str:
    """The data set whose published numbers apply: ImageNet100's for its three lists and for anybody's photos."""
    name = split_name(data)[0]
    return "imagenet100" if name in (*LIKE_IMAGENET100, "folder") else name


def split_method(method: str) -> tuple[str, str]:
    """`lucir-original` -> ("lucir", "original"); a plain name has an empty variant."""
    if method in METHODS:
        return method, ""
    plain, _, variant = method.partition("-")
    if plain in METHODS and variant in METHODS[plain].variants:
        return plain, variant
    raise unknown("method", method, [name for one in METHODS for name in method_names(one)])


def method_names(method: str) -> list[str]:
    """The method and its variants, as they are asked for."""
    return [method, *(f"{method}-{variant}" for variant in METHODS[method].variants)]


def fits(method: str, variant: str, family: str) -> bool:
    """Whether a variant is defined for a data set (the method itself is for all)."""
    return not variant or not METHODS[method].variants[variant].keys().isdisjoint(("*", family))


def standard_name(config: RunConfig) -> str:
    """`lucir+cwd/cifar100/b50s10`, or with the sizes where they are listed."""
    protocol = config.protocol
    sizes = f"b{protocol.base}s{protocol.step}"
    if protocol.phase_sizes:
        sizes = "sizes" + "-".join(map(str, protocol.phase_sizes))
    return f"{config.label}/{protocol.data}/{sizes}"


def preset(name: str, *, seed: int = 0) -> RunConfig:
    """The configuration of that name."""
    return replace(PRESETS[name](), seed=seed)


def _register_presets() -> None:
    data_sets: Mapping[str, Recipe] = {
        name: RECIPES["imagenet100" if name in LIKE_IMAGENET100 else name]
        for name in DATA_SETS
        if name not in ("folder", "imagenet100")  # B and S are the user's; an alias has no presets of its own
    }
    for data, recipe in data_sets.items():
        names = [n for one in METHODS for n in method_names(one) if fits(*split_method(n), family_of(data))]
        for method in names:
            for step in recipe.steps:
                for initial in ((), *((term,) for term in TERMS)):
                    build = partial(build_config, method, data, initial=initial, step=step)
                    label = "+".join([method, *initial])
                    PRESETS.register(f"{label}/{data}/b{recipe.base}s{step}")(build)


_register_presets()
