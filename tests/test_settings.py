"""Changing single fields of a configuration: dotted paths, assignments as they are typed, terms, limits."""

from __future__ import annotations

import json
import math
import re

import pytest

from phasezero.config import RunConfig, parse_assignments, parse_strategy
from phasezero.errors import UserError
from phasezero.initial.cwd import ClassWiseDecorrelation
from phasezero.methods.lucir import Lucir
from phasezero.presets import preset
from phasezero.schedule import Schedule

LUCIR = preset("lucir+cwd/glyphs/b50s10")


def test_override() -> None:
    config = preset("lucir+cwd/cifar100/b50s10")
    changed = config.override(
        {
            "seed": 4,
            "training.first.lr": 0.2,
            "training.later.milestones": [10, 20],
            "training.first.milestones.1": 130,
            "initial.0.weight": 0.75,
            "protocol.class_order": [2, 0, 1],
            "method.top_k": 3,
        }
    )
    assert changed.seed == 4
    assert changed.training.first == Schedule(lr=0.2, milestones=(80, 130))
    assert changed.training.later == Schedule(milestones=(10, 20))
    assert changed.initial == (ClassWiseDecorrelation.Options(weight=0.75),)
    assert changed.protocol.class_order == (2, 0, 1)
    assert changed.method == Lucir.Options(top_k=3)
    assert changed.network == config.network
    assert config == preset("lucir+cwd/cifar100/b50s10")


def test_override_a_whole_section() -> None:
    config = LUCIR
    assert config.override({"initial": []}).initial == ()
    new = config.override({"initial": [{"name": "cwd", "weight": 2}], "method": {"name": "lucir", "margin": 1}})
    assert new.initial == (ClassWiseDecorrelation.Options(weight=2.0),)
    assert new.method == Lucir.Options(margin=1.0)
    assert config.override({}) == config


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("sed", ["the configuration", "did you mean 'seed'"]),
        ("trainin.first.lr", ["the configuration", "did you mean 'training'"]),
        ("training.fist.lr", ["training", "did you mean 'first'"]),
        ("training.first.l", ["training.first", "'l'"]),
        ("training.first.lr.value", ["training.first.lr", "'value'"]),
        ("seed.value.more", ["seed", "'value'"]),
        ("initial.1.weight", ["initial", "'1'", "known: 0"]),
        ("initial.first.weight", ["initial", "'first'", "known: 0"]),
        ("initial.1", ["initial", "'1'"]),
        ("initial.0.wight", ["initial.0", "did you mean 'weight'"]),
        ("training.first.milestones.2", ["training.first.milestones", "'2'"]),
        ("", ["the configuration"]),
    ],
)
def test_an_unknown_path_is_refused(path: str, words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        preset("lucir+cwd/cifar100/b50s10").override({path: 1})
    for word in words:
        assert word in str(caught.value)


def test_assignments() -> None:
    texts = ["seed=3", "training.first.lr=1e-1", "a.b=[80, 120]", "network.last_relu=true", "name=x=y", "name2="]
    assert parse_assignments(texts) == {
        "seed": 3,
        "training.first.lr": "1e-1",  # a word of YAML, which the field then reads as a number
        "a.b": [80, 120],
        "network.last_relu": True,
        "name": "x=y",
        "name2": None,
    }
    assert parse_assignments(["x=1", "x=2"]) == {"x": 2}
    assert RunConfig().override(parse_assignments(["training.first.lr=1e-1"])).training.first.lr == 0.1


@pytest.mark.parametrize("text", ["seed", "=3", "", "training.first.lr 0.2", "a=[1, 2"])
def test_an_assignment_needs_a_key_and_a_value(text: str) -> None:
    with pytest.raises(UserError, match="cannot be read" if "[" in text else "key=value"):
        parse_assignments([text])


def test_terms() -> None:
    assert parse_strategy("cwd") == ClassWiseDecorrelation.Options()
    assert parse_strategy("cwd:0.75") == ClassWiseDecorrelation.Options(weight=0.75)
    assert parse_strategy("cwd:1e-3") == ClassWiseDecorrelation.Options(weight=0.001)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cwd:", "must be a number"),
        ("cwd:much", "must be a number"),
        ("cwd:1:2", "must be a number"),
        ("cdw:1", "did you mean 'cwd'"),
        ("", "unknown phase-0 strategy"),
        ("cwd:nan", "cwd:nan"),
        ("cwd:inf", "cwd:inf"),
        ("cwd:-1", "cwd:-1"),
    ],
)
def test_a_wrong_term_is_refused(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        parse_strategy(text)


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("training.first.momentum", -1, "at least 0 and below 1"),
        ("training.first.momentum", 1, "at least 0 and below 1"),
        ("training.later.weight_decay", -1, "at least 0"),
        ("training.first.decay", -1, "at least 0 and at most 1"),
        ("training.first.epochs", -1, "at least 0"),
        ("training.first.batch_size", 0, "at least 1"),
        ("training.first.lr", 0, "above 0"),
        ("training.first.lr", math.nan, "finite"),
        ("training.first.lr", "fast", "float is expected"),
        ("training.first.milestones", [1, -2], "at least 0"),
        ("training.brightness", 100, "at most 1"),
        ("engine.test_batch_size", 0, "at least 1"),
        ("engine.threads", 100_000, "at most 1024"),
        ("engine.loss_limit", 0, "above 0"),
        ("method.top_k", -1, "at least 1"),
        ("method.balanced_epochs", -3, "at least 0"),
        ("training.first.lr", 1e300, "at most 1e\\+30"),
        ("training.later.batch_size", 10**20, "at most 1e\\+06"),
        ("initial.0.weight", -1, "at least 0"),
        ("initial.0.weight", math.inf, "finite"),
    ],
)
def test_outside(setting: str, value: object, said: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(setting)}.*{said}"):
        LUCIR.override({setting: value})


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("podnet", "proxies", 0),
        ("podnet", "proxies", 10**12),
        ("bic", "bias_lr", 1e300),
        ("bic", "set_aside", 1),
        ("podnet", "finetune_epochs", -1),
        ("bic", "held_out", 2),
        ("bic", "held_out", math.nan),
        ("lwf", "temperature", 0),
        ("aanet", "weights_batch_size", 0),
    ],
)
def test_outside_of_a_methods_bounds(name: str, setting: str, value: float) -> None:
    with pytest.raises(UserError, match=rf"^method\.{setting}"):
        preset(f"{name}/glyphs/b50s10").override({f"method.{setting}": value})


def test_limits_hold_for_options_made_in_python() -> None:
    unlimited = LUCIR.override({"engine.loss_limit": math.inf})
    assert unlimited.engine.loss_limit == math.inf
    assert RunConfig.from_dict(json.loads(json.dumps(unlimited.to_dict(), allow_nan=False))) == unlimited
    with pytest.raises(UserError, match="top_k: must be at least 1"):
        Lucir.Options(top_k=0)
    with pytest.raises(UserError, match="milestones: must be at least 0"):
        Schedule(milestones=(3, -1))
