"""Presets: complete configurations by name, `METHOD[+TERM]/DATA/bBsS`.

A data set says how it is trained (network, schedule, protocol) and which numbers LUCIR and CwD take there; a
preset is a method, its phase-0 terms and a data set together. Where a number is not the default of its class,
a comment names its source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from phasezero.config import Network, Protocol, RunConfig, Training, parse_term
from phasezero.data.catalog import DATA_SETS, split_name
from phasezero.errors import UserError
from phasezero.methods import METHODS, MethodOptions
from phasezero.methods.lucir import Lucir
from phasezero.registry import Registry
from phasezero.schedule import Schedule

PRESETS: Registry[Callable[[], RunConfig]] = Registry("preset")


@dataclass(frozen=True)
class Recipe:
    """How a data set is trained."""

    network: Network
    training: Training
    lucir: Lucir.Options
    eta: float
    """CwD's coefficient."""
    cwd_lr: float | None = None
    """Phase-0 learning rate with CwD, where the published scripts use another one than without."""
    base: int | None = 50
    steps: tuple[int, ...] = (10, 5, 2)
    """B and the published choices of S; None where only the user can know."""


_IMAGENET = Training(*2 * (Schedule(epochs=90, milestones=(30, 60), weight_decay=1e-4),))

RECIPES = {
    # In small: the same shape (a long flat start, two drops) for a network that a CPU trains in a minute.
    # eta: with so short a training 0.5 costs phase 0 more than it gives later (docs/results.md).
    "glyphs": Recipe(
        Network("resnet-glyphs"),
        Training(
            Schedule(epochs=10, milestones=(7, 9), batch_size=64),
            Schedule(epochs=6, milestones=(4, 5), batch_size=64),
        ),
        Lucir.Options(),
        eta=0.1,
    ),
    "cifar100": Recipe(Network("resnet18-cifar"), Training(), Lucir.Options(), eta=0.5),
    # The published ImageNet100 scripts: eta 0.75, and with CwD a phase-0 rate of 0.2 (0.1 without).
    "imagenet100": Recipe(
        Network("resnet18"), _IMAGENET, Lucir.Options(lambda_base=10.0), eta=0.75, cwd_lr=0.2
    ),
    # eta 1.5 and class-balanced fine-tuning: the paper's author, asked about ImageNet; the rest is LUCIR's own.
    "imagenet": Recipe(
        Network("resnet18"),
        _IMAGENET,
        Lucir.Options(lambda_base=10.0, imprint=True, balanced_epochs=20),
        eta=1.5,
        base=100,
        steps=(100, 50),
    ),
    # Anybody's photos are trained like ImageNet100; B and S are theirs to say.
    "folder": Recipe(Network("resnet18"), _IMAGENET, Lucir.Options(lambda_base=10.0), eta=0.75, base=None),
}


def recipe_for(data: str) -> Recipe:
    name = split_name(data)[0]
    DATA_SETS[name]  # an unknown name is refused here
    return RECIPES["imagenet100" if name.startswith("imagenet100") else name]


def build_config(
    method: str = "lucir",
    data: str = "glyphs",
    *,
    initial: Sequence[str] = (),
    base: int | None = None,
    step: int | None = None,
) -> RunConfig:
    """A complete configuration from names; `initial` holds terms such as `cwd` or `cwd:0.75`."""
    recipe = recipe_for(data)
    base = base if base is not None else recipe.base
    if base is None or (step is None and not recipe.base):
        raise UserError(f"data {data!r}: say how many classes come first and at a time (--base B --step S)")
    step = step if step is not None else recipe.steps[0]
    terms = [parse_term(text if ":" in text or text != "cwd" else f"cwd:{recipe.eta}") for text in initial]
    training = recipe.training
    if recipe.cwd_lr is not None and any(term.name == "cwd" for term in terms):
        training = replace(training, first=replace(training.first, lr=recipe.cwd_lr))
    options: MethodOptions = recipe.lucir if method == "lucir" else METHODS[method].Options()
    config = RunConfig(
        protocol=Protocol(data, DATA_SETS[split_name(data)[0]].class_order, base, step),
        network=recipe.network,
        method=options,
        initial=tuple(terms),
        training=training,
    )
    return replace(config, name=standard_name(config))


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
    for data in DATA_SETS:
        if split_name(data)[0] == "folder" or data == "imagenet100":  # an alias has no presets of its own
            continue
        for step in recipe_for(data).steps:
            for initial in ((), ("cwd",)):
                build = partial(build_config, "lucir", data, initial=initial, step=step)
                PRESETS.register(build().name)(build)


_register_presets()
