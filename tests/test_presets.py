"""Presets: the published settings, and what goes with a phase-0 term; the schedules they are made of."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import yaml

from phasezero.config import RunConfig, Training
from phasezero.data.catalog import DATA_SETS
from phasezero.data.stream import class_order, cut_phases
from phasezero.engine.store import phase_zero_of
from phasezero.errors import UserError
from phasezero.initial.cwd import ClassWiseDecorrelation
from phasezero.methods import METHODS
from phasezero.methods.lucir import Lucir
from phasezero.presets import (
    FIRST_RUN,
    build_config,
    choose_configs,
    preset,
    published_presets,
    renamed,
    run_name,
    with_settings,
    with_strategies,
)
from phasezero.registry import Registry
from phasezero.schedule import Schedule


def test_every_preset_is_complete() -> None:
    """It is called what it is, its data set exists, its protocol can be cut, and it survives YAML."""
    names = list(published_presets())
    assert len(names) == len(set(names)) > 1000
    for place, name in enumerate(names):
        config = preset(name)
        label, data, sizes = name.rsplit("/", 2)
        assert (config.name, config.label, config.protocol.data, config.seed) == (name, label, data, 0)
        assert sizes == f"b{config.protocol.base}s{config.protocol.step}"
        data_set = DATA_SETS[data]
        assert config.protocol.class_order == data_set.class_order
        phases = cut_phases(data_set.size[0], config.protocol.base, config.protocol.step)
        assert phases[-1].seen == len(class_order(config.protocol.class_order, data_set.size[0]))
        if not METHODS[config.method.name].trains_later:
            assert config.protocol.memory == "per_class:0"
        elif config.method.variant not in ("free", "total"):
            assert (config.protocol.memory, config.protocol.selection) == ("per_class:20", "herding")
        assert config.network.last_relu is (
            config.method.name not in ("lucir", "aanet", "podnet", "joint", "fecam", "ncm", "ridge", "slda")
        )
        for term in config.initial:
            if term.name == "cwd":  # the published code's form, on unit features
                assert term == ClassWiseDecorrelation.Options(weight=term.weight, form="code", normalize=True)
        if place % 10 == 0:  # YAML is slow
            assert RunConfig.from_dict(yaml.safe_load(config.to_yaml())) == config


@pytest.mark.parametrize(
    "name",
    [
        "lucir/cifar100/b50s10",
        "lucir+cwd:0.75/cifar100/b20s4r40",
        "podnet-original+cwd/cifar100/b50s2",
        "bic-podnet/glyphs/sizes4-2-2,protocol.memory=total:60",
        "lucir+cwd/imagenet100-cwd/b50s10,epochs=20",
        "lucir/glyphs/b50s10,later.epochs=2,method.imprint=true,training.first.lr=0.05",
        "lucir+cwd:0.3+sdc/glyphs/b50s10,initial.0.form=equation,training.later.milestones=[1,2]",
        "joint/folder:some/where/b3s1,network.name=resnet-glyphs",
        "joint/folder:some/a,b=c/b3s1,network.name=resnet-glyphs",
        "lucir/glyphs/b50s10,protocol.class_order=[3,1,2],method.balanced_lr=1e-05",
        'lucir/glyphs/b50s10,protocol.class_order="[no list"',
    ],
)
def test_a_name_is_a_preset_that_gives_the_run_again(name: str) -> None:
    config = preset(name, seed=3)
    assert config.name == run_name(config) == name
    assert preset(config.name, seed=3) == config


def test_changed_settings_show_in_the_name() -> None:
    config = preset("lucir+cwd/glyphs/b50s10")
    changed = renamed(config.override({"training.first.lr": 0.05, "initial.0.weight": 0.3, "engine.threads": 2}))
    assert changed.name == "lucir+cwd:0.3/glyphs/b50s10,training.first.lr=0.05"
    assert renamed(replace(config, name="mine", seed=2)).name == "mine"
    assert renamed(replace(config, name="")).name == config.name
    elsewhere = replace(config, protocol=replace(config.protocol, data="of the caller"))
    assert renamed(elsewhere) == elsewhere
    shorter = with_settings(config, {"epochs": 5})
    assert shorter.training.first == config.training.first.stretched(5)
    assert renamed(shorter).name == "lucir+cwd/glyphs/b50s10,epochs=5"
    assert renamed(with_settings(config, {"training.first.epochs": 5})).training.first.milestones == (7, 9)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("initial.0.weight", weight) for weight in (1 / 3, 0.1 + 0.2, 1e6, 123456789.0, 1e-7)),
        *(("initial.0.oracle", path) for path in ("a,epochs=3", "a, b", "@a", "a: b: c", "true", "2020-13-45")),
    ],
)
def test_numbers_and_texts_of_any_kind_come_back_from_a_name(key: str, value: object) -> None:
    config = renamed(preset("lucir+mimic/glyphs/b50s10").override({key: value}))
    assert preset(config.name) == config != preset("lucir+mimic/glyphs/b50s10")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lucir/cifar10/b50s10", "unknown data set 'cifar10'; did you mean 'cifar100'"),
        ("lucyr/cifar100/b50s10", "unknown method 'lucyr'; did you mean 'lucir'"),
        ("lucir+cdw/cifar100/b50s10", "unknown phase-0 strategy 'cdw'; did you mean 'cwd'"),
        ("lucir-original/glyphs/b50s10", "'lucir-original' is not defined for data 'glyphs'"),
        ("lucir/cifar100", "write METHOD"),
        ("lucir/cifar100/b50", "write METHOD"),
        ("xyz", "write METHOD"),
        ("lucir/glyphs/b50s10,epochs=many", "epochs: a whole number is expected"),
        ("lucir/glyphs/b50s10,method.margn=1", "did you mean 'margin'"),
    ],
)
def test_a_wrong_name_is_rejected(name: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        preset(name)


@pytest.mark.parametrize("step", [10, 5, 2])
@pytest.mark.parametrize("cwd", [False, True])
def test_cifar100(step: int, cwd: bool) -> None:
    config = preset(f"lucir{'+cwd' if cwd else ''}/cifar100/b50s{step}")
    assert config.network.name == "resnet18-cifar"
    assert config.protocol.class_order == "seed1993"
    published = Schedule(160, 0.1, milestones=(80, 120), decay=0.1, momentum=0.9, weight_decay=5e-4, batch_size=128)
    assert config.training == Training(published, published)
    assert config.method == Lucir.Options(
        lambda_base=5.0, margin=0.5, top_k=2, ranking_weight=1.0, imprint=False, balanced_epochs=0
    )
    assert [(term.name, term.weight) for term in config.initial] == ([("cwd", 0.5)] if cwd else [])


@pytest.mark.parametrize("data", ["imagenet100-cwd", "imagenet100-lucir", "imagenet100-podnet"])
@pytest.mark.parametrize("cwd", [False, True])
def test_imagenet100(data: str, cwd: bool) -> None:
    config = preset(f"lucir{'+cwd' if cwd else ''}/{data}/b50s10")
    assert config.network.name == "resnet18"
    later = Schedule(90, 0.1, milestones=(30, 60), decay=0.1, momentum=0.9, weight_decay=1e-4, batch_size=128)
    assert config.training == Training(replace(later, lr=0.2 if cwd else 0.1), later)
    assert config.method == Lucir.Options(
        lambda_base=10.0, margin=0.5, top_k=2, ranking_weight=1.0, imprint=False, balanced_epochs=0
    )
    assert [(term.name, term.weight) for term in config.initial] == ([("cwd", 0.75)] if cwd else [])


@pytest.mark.parametrize("cwd", [False, True])
def test_imagenet(cwd: bool) -> None:
    config = preset(f"lucir{'+cwd' if cwd else ''}/imagenet/b100s100")
    published = Schedule(epochs=90, lr=0.1, milestones=(30, 60), weight_decay=1e-4, batch_size=128)
    assert config.training == Training(published, published)
    assert config.method == Lucir.Options(
        lambda_base=10.0, imprint=True, balanced_epochs=20, balanced_lr=0.01, balanced_milestones=(10,)
    )
    assert [(term.name, term.weight) for term in config.initial] == ([("cwd", 1.5)] if cwd else [])


def test_a_terms_weight_may_be_a_variants_own() -> None:
    weights = {"podnet+cwd": 0.25, "lucir-original+cwd": 0.5, "podnet-original+cwd": 0.1}
    assert {name: preset(f"{name}/cifar100/b50s10").initial[0].weight for name in weights} == weights
    assert build_config("podnet-original", "cifar100", initial=["cwd:0.5"]).initial[0].weight == 0.5


def test_podnets_statistics_move_in_its_own_settings_and_stay_on_cifar100s_resnet18() -> None:
    moving = {
        name: preset(name).to_dict()["method"]["finetune_statistics"]
        for name in ("podnet/cifar100/b50s5", "podnet-original/cifar100/b50s5", "podnet/imagenet100-cwd/b50s5")
    }
    assert list(moving.values()) == [False, True, True]


@pytest.mark.parametrize(("epoch", "rate"), [(0, 0.1), (79, 0.1), (80, 0.01), (119, 0.01), (120, 0.001), (159, 0.001)])
def test_the_rate_drops_at_80_and_120(epoch: int, rate: float) -> None:
    assert preset("lucir/cifar100/b50s10").training.later.lr_at(epoch) == pytest.approx(rate, rel=1e-12)


def test_flat_and_cosine_rates() -> None:
    assert [Schedule(lr=0.3, milestones=()).lr_at(epoch) for epoch in (0, 50, 159)] == [0.3] * 3
    rates = [Schedule(epochs=160, lr=0.1, shape="cosine").lr_at(epoch) for epoch in (0, 40, 80, 159)]
    end = 0.1 * (1 + math.cos(math.pi * 159 / 160)) / 2
    assert rates == pytest.approx([0.1, 0.1 * (1 + math.sqrt(0.5)) / 2, 0.05, end])


@pytest.mark.parametrize(("epoch", "rate_of"), [(0, 0), (1, 0), (2, 1), (159, 158)])
def test_a_rate_that_lags_by_an_epoch(epoch: int, rate_of: int) -> None:
    """PODNet's code steps its schedule late: its first two epochs share the full rate."""
    cosine = Schedule(epochs=160, shape="cosine")
    assert replace(cosine, shift=-1).lr_at(epoch) == cosine.lr_at(rate_of)
    assert Schedule(shift=-1).lr_at(80) == Schedule().lr_at(79)
    assert Schedule(shift=1).lr_at(79) == Schedule().lr_at(80)


@pytest.mark.parametrize("milestones", [(80, 120), (2, 3), (159,)])
@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_however_short_a_schedule_begins_at_its_rate(milestones: tuple[int, ...], shift: int) -> None:
    for epochs in range(1, 160):
        short = Schedule(epochs=160, milestones=milestones, shift=shift).stretched(epochs)
        assert short.lr_at(0) == 0.1
        assert short.shift == (0 if epochs == 1 and shift == 1 else shift)
    assert Schedule(shape="cosine", shift=shift).stretched(1).lr_at(0) == 0.1
    assert Schedule(milestones=(1, 2)).stretched(1).lr_at(0) == 0.1
    assert Schedule(milestones=(0, 80)).stretched(40).milestones == (0, 20)  # where a drop is wanted there
    assert Schedule(epochs=160, milestones=(80, 120)).stretched(20) == Schedule(epochs=20, milestones=(10, 15))


def test_a_name_has_one_owner() -> None:
    registry: Registry[int] = Registry("number")
    assert registry.register("one")(1) == 1
    with pytest.raises(UserError, match="number 'one' is already registered"):
        registry.register("one")(2)
    assert registry["one"] == 1
    registry.register("another")(3)
    assert list(registry) == ["another", "one"]
    assert "one" in registry
    assert "two" not in registry
    with pytest.raises(UserError, match="unknown number 'onw'; did you mean 'one'"):
        registry["onw"]
    with pytest.raises(UserError, match="unknown number 'xyz'; known: another, one"):
        registry["xyz"]


@pytest.mark.parametrize("data", ["imagenet100-cwd", "cifar100", "glyphs"])
def test_what_goes_with_a_term_goes_with_the_term(data: str) -> None:
    """ImageNet100 with CwD has a phase-0 rate of its own."""
    plain, with_cwd = preset(f"lucir/{data}/b50s10"), preset(f"lucir+cwd/{data}/b50s10")
    assert with_strategies(with_cwd, []) == plain
    assert with_strategies(plain, ["cwd"]) == with_cwd
    assert with_strategies(with_cwd, ["cwd"]) == with_cwd
    for start, terms in ((plain, ["cwd"]), (with_cwd, [])):  # a rate that was set by hand stays
        assert with_strategies(start.override({"training.first.lr": 0.07}), terms).training.first.lr == 0.07


def chosen(**given: Any) -> list[str]:
    """Return the names of what `phasezero run` trains."""
    usual = {"presets": [], "config_file": None, "data": None, "method": None, "initial": [], "assignments": {}}
    return [config.name for config in choose_configs(**{**usual, **given})]


def test_the_first_run_shows_forgetting_and_its_remedies() -> None:
    assert chosen() == list(FIRST_RUN)
    labels = [name.partition("/")[0] for name in FIRST_RUN]
    assert set(labels) == {"joint", "finetune-free", "lucir", "lucir+cwd:0.3", "ridge", "ncm", "ncm+cwd:0.3"}
    configs = [preset(name) for name in FIRST_RUN]
    assert len({phase_zero_of(config) for config in configs}) == 3  # plain, with CwD, and that of fine-tuning
    assert all(config.training.first.epochs == 1 for config in choose_configs([], None, None, None, [], {"epochs": 1}))


def test_data_alone_is_trained_by_the_methods_that_suit_it() -> None:
    assert chosen(data="glyphs") == ["lucir/glyphs/b50s10", "lucir+cwd/glyphs/b50s10"]
    phases = {"protocol.base": 4, "protocol.step": 2}
    assert chosen(data="folder:x", assignments=phases) == ["lucir/folder:x/b4s2", "ridge/folder:x/b4s2"]
    assert chosen(assignments=phases) == ["lucir/glyphs/b4s2", "lucir+cwd/glyphs/b4s2"]
    assert chosen(initial=["augment", "cwd:0.25"]) == ["lucir+augment+cwd:0.25/glyphs/b50s10"]
    assert chosen(data="glyphs", initial=["none"]) == ["lucir/glyphs/b50s10"]


@pytest.mark.parametrize("size", [1, 2, 7, 32])
def test_even_batches_have_no_last_batch_that_is_less_than_half_full(size: int) -> None:
    for images in range(1, 300):
        assert Schedule(batch_size=size).for_images(images).batch_size == size  # as published
        chosen = Schedule(batch_size=size, even_batches=True).for_images(images).batch_size
        batches = [min(chosen, images - start) for start in range(0, images, chosen)]
        assert sum(batches) == images
        assert max(batches) <= size
        assert len(batches) == 1 or 2 * batches[-1] >= batches[0]
