"""Numbers that make no sense are refused before anything starts, by name and with what is allowed."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest

from phasezero.bounds import BOUNDS
from phasezero.config import RunConfig, parse_term
from phasezero.errors import UserError
from phasezero.initial import TERMS
from phasezero.methods import METHODS
from phasezero.presets import PRESETS, preset
from phasezero.schedule import Schedule

LUCIR = preset("lucir+cwd/glyphs/b50s10")


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


@pytest.mark.parametrize("text", ["cwd:nan", "cwd:inf", "cwd:-1"])
def test_weights_of_terms(text: str) -> None:
    with pytest.raises(UserError, match=text):
        parse_term(text)


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


def test_no_limit_is_a_limit() -> None:
    assert LUCIR.override({"engine.loss_limit": math.inf}).engine.loss_limit == math.inf


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_preset_is_inside(name: str) -> None:
    assert RunConfig.from_dict(preset(name).to_dict()) == preset(name)


def test_bounds_are_of_fields_that_exist() -> None:
    kinds = [Schedule, *(METHODS[name].Options for name in METHODS), *(TERMS[name].Options for name in TERMS)]
    kinds += [type(LUCIR.training), type(LUCIR.engine)]
    assert set(BOUNDS) <= {entry.name for kind in kinds for entry in dataclasses.fields(kind)}
