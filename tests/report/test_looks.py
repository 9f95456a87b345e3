"""The looks of methods: every method has its own, also for colour-blind readers and in grey."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from phasezero.initial import STRATEGIES
from phasezero.methods import METHODS
from phasezero.report.looks import COLOURS, DASHES, METHOD_LOOKS, OTHER_LOOKS, looks_among, method_look

# Machado, Oliveira and Fernandes (2009), severity 1, for linear RGB.
VISION = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE 1976 L*a*b* of linear RGB."""
    xyz = TO_XYZ @ np.clip(rgb, 0, 1) / [0.9505, 1, 1.089]
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(colour: str, ground: str) -> float:
    """Contrast as WCAG 2.2 defines it."""
    darker, lighter = sorted(TO_XYZ[1] @ linear(each) for each in (colour, ground))
    return float((lighter + 0.05) / (darker + 0.05))


@pytest.mark.parametrize("vision", VISION)
def test_no_two_methods_have_colours_that_a_reader_confuses(vision: str) -> None:
    colours = {name: lab(VISION[vision] @ linear(light)) for name, (light, _, _) in METHOD_LOOKS.items()}
    apart = {pair: np.linalg.norm(colours[pair[0]] - colours[pair[1]]) for pair in combinations(colours, 2)}
    assert min(apart.values()) >= 15, min(apart, key=lambda pair: apart[pair])


def test_colours_stand_out_from_the_ground_and_markers_differ() -> None:
    known = [*METHOD_LOOKS.values(), *OTHER_LOOKS]
    for light, dark, _ in known:
        assert contrast(light, "#FFFFFF") >= 3  # WCAG 1.4.11
        assert contrast(dark, "#14181D") >= 3
    assert len({marker for _, _, marker in known}) == len(known)
    assert all(contrast(colour, "#FFFFFF") >= 3 for colour in COLOURS)


def test_every_method_and_strategy_of_the_package_is_in_the_tables() -> None:
    assert set(METHODS) >= set(METHOD_LOOKS)
    assert {name for name in METHODS if METHODS[name].__module__.startswith("phasezero.")} <= set(METHOD_LOOKS)
    assert {name for key in DASHES for name in key.split("+") if name} <= set(STRATEGIES)
    assert len(set(DASHES.values())) == len(DASHES)


def test_cwd_changes_the_line_and_not_the_colour() -> None:
    plain, with_cwd = method_look("podnet"), method_look("podnet", ["cwd"])
    assert (plain.colour, plain.marker) == (with_cwd.colour, with_cwd.marker)
    assert plain.dash != with_cwd.dash


def test_a_method_from_a_plug_in_looks_the_same_in_every_figure() -> None:
    alone, among = method_look("mine"), looks_among([("lucir", []), ("mine", [])])[1]
    assert alone == among
    assert alone.colour not in {light for light, _, _ in METHOD_LOOKS.values()}


def test_lines_of_the_same_model_get_shades_of_its_colour_and_other_markers() -> None:
    looks = looks_among([("lucir", []), *[("lucir", ["mimic"])] * 3])
    assert looks[0] == method_look("lucir")
    shades = looks[1:]
    lightness = [lab(linear(look.colour))[0] for look in shades]
    assert lightness == sorted(lightness, reverse=True)
    assert shades[1].colour == looks[0].colour
    assert all(contrast(look.dark, "#14181D") >= 3 for look in shades)
    assert len({look.marker for look in shades}) == 3
    assert {look.dash for look in shades} == {method_look("lucir", ["mimic"]).dash}
