"""Class orders that published work shares, and how they are cut into phases."""

from __future__ import annotations

import numpy as np
import pytest

from phasezero.data.stream import ORDER_NAMES, Phase, class_order, cut_phases, make_stream
from phasezero.errors import UserError

# The CIFAR100 order of iCaRL, LUCIR, AANets and CwD, as published in their code.
SEED_1993 = """
    68 56 78 8 23 84 90 65 74 76 40 89 3 92 55 9 26 80 43 38 58 70 77 1 85 19 17 50 28 53 13 81 45 82 6 59 83
    16 15 44 91 41 72 60 79 52 20 10 31 54 37 95 14 71 96 98 97 2 64 66 42 22 35 86 24 34 87 21 99 0 88 27 18
    94 11 12 47 25 30 46 62 69 36 61 7 63 75 5 32 4 51 48 73 93 39 67 29 49 57 33
"""
PODNET_1 = """
    87 0 52 58 44 91 68 97 51 15 94 92 10 72 49 78 61 14 8 86 84 96 18 24 32 45 88 11 4 67 69 66 77 47 79 93
    29 50 57 83 17 81 41 12 37 59 25 20 80 73 1 28 6 46 62 82 53 9 31 75 38 63 33 74 27 22 36 3 16 21 60 19 70
    90 89 43 5 42 65 76 40 30 23 85 2 95 56 48 71 64 98 13 99 7 34 55 54 26 35 39
"""
IMAGENET_FIRST_TWENTY = "54 7 894 512 126 337 988 11 284 493 133 783 192 979 622 215 240 548 238 419"


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


# ---- orders -----------------------------------------------------------------------------------------------


def test_the_order_of_seed_1993() -> None:
    assert class_order("seed1993", 100) == numbers(SEED_1993)


def test_the_order_of_seed_1993_for_imagenet() -> None:
    order = class_order("seed1993", 1000)
    assert order[:20] == numbers(IMAGENET_FIRST_TWENTY)
    assert sorted(order) == list(range(1000))


def test_the_order_neither_moves_nor_uses_numpys_global_state() -> None:
    before = np.random.get_state()
    order = class_order("seed1993", 100)
    after = np.random.get_state()
    assert np.array_equal(before[1], after[1])
    assert before[2] == after[2]
    np.random.random()  # moves the global state
    assert class_order("seed1993", 100) == order


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("podnet-1", (87, 0, 52, 58, 44)),
        ("podnet-2", (58, 30, 93, 69, 21)),
        ("podnet-3", (71, 54, 45, 32, 4)),
    ],
)
def test_the_orders_of_podnet(name: str, start: tuple[int, ...]) -> None:
    order = class_order(name, 100)
    assert order[:5] == start
    assert sorted(order) == list(range(100))


def test_the_first_order_of_podnet_in_full() -> None:
    assert class_order("podnet-1", 100) == numbers(PODNET_1)


def test_the_natural_order() -> None:
    assert class_order("natural", 7) == (0, 1, 2, 3, 4, 5, 6)


def test_every_named_order_is_known() -> None:
    for name in ORDER_NAMES:
        assert sorted(class_order(name, 100)) == list(range(100))


def test_a_list_is_an_order_and_may_leave_classes_out() -> None:
    assert class_order([3, 0, 2], 4) == (3, 0, 2)
    assert class_order(np.array([1, 0]), 4) == (1, 0)


@pytest.mark.parametrize("order", [[0, 1, 1], [0, 4], [-1, 0]])
def test_a_wrong_list_is_refused(order: list[int]) -> None:
    with pytest.raises(UserError, match="distinct and between 0 and 3"):
        class_order(order, 4)


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(UserError, match="did you mean 'seed1993'"):
        class_order("seed1992", 100)


def test_podnets_orders_are_for_100_classes() -> None:
    with pytest.raises(UserError, match=r"'podnet-2' is for 100 classes; the data set has 10"):
        class_order("podnet-2", 10)


# ---- phases -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "base", "step", "count"),
    [
        (100, 50, 10, 6),
        (100, 50, 5, 11),
        (100, 50, 2, 26),
        (100, 50, 1, 51),
        (100, 10, 10, 10),
        (1000, 100, 100, 10),
        (1000, 100, 50, 19),
        (7, 3, 2, 3),
    ],
)
def test_base_and_step(classes: int, base: int, step: int, count: int) -> None:
    phases = cut_phases(classes, base, step)
    assert len(phases) == count
    known = 0
    for index, phase in enumerate(phases):
        assert phase == Phase(index, old=known, new=base if index == 0 else step)
        known += phase.new
        assert phase.seen == known
    assert known == classes


@pytest.mark.parametrize("step", [0, 1, 7, 100])
def test_all_classes_at_once(step: int) -> None:
    assert cut_phases(10, 10, step) == (Phase(0, 0, 10),)


def test_uneven_sizes_go_before_base_and_step() -> None:
    assert cut_phases(10, 50, 3, [4, 1, 3]) == (Phase(0, 0, 4), Phase(1, 4, 1), Phase(2, 5, 3))
    assert cut_phases(10, 50, 3, (10,)) == (Phase(0, 0, 10),)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((100, 0, 10), ["base", "1 and 100", "got 0"]),
        ((100, -3, 10), ["base", "1 and 100", "got -3"]),
        ((100, 101, 10), ["base", "1 and 100", "got 101"]),
        ((100, 50, 0), ["step", "got 0"]),
        ((100, 50, -2), ["step", "got -2"]),
        ((100, 50, 7), ["base 50", "step 7", "100 classes", "50 classes are left", "phase_sizes"]),
        ((100, 50, 60), ["base 50", "step 60", "100 classes", "50 classes are left"]),
        ((10, 5, 5, [5, 0, 5]), ["phase_sizes", "[5, 0, 5]"]),
        ((10, 5, 5, [5, -1]), ["phase_sizes", "[5, -1]"]),
        ((10, 5, 5, [6, 5]), ["phase_sizes", "11 classes", "has 10"]),
    ],
)
def test_what_does_not_fit_is_refused_with_its_numbers(arguments: tuple, named: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        cut_phases(*arguments)
    for words in named:
        assert words in str(caught.value)


# ---- the stream -------------------------------------------------------------------------------------------


def test_positions_are_the_inverse_of_the_order() -> None:
    stream = make_stream(100, "seed1993", 50, 10)
    positions = stream.positions(100)
    assert positions.dtype == np.int64
    for position, index in enumerate(stream.order):
        assert positions[index] == position
    assert sorted(positions.tolist()) == list(range(100))
    assert stream.sizes == (50, 10, 10, 10, 10, 10)
    assert stream.order_name == "seed1993"


def test_a_subset_of_the_classes() -> None:
    stream = make_stream(10, [7, 2, 5, 0], 2, 1)
    assert stream.order == (7, 2, 5, 0)
    assert stream.sizes == (2, 1, 1)
    assert stream.order_name == "list"
    assert stream.positions(10).tolist() == [3, -1, 1, -1, -1, 2, -1, 0, -1, -1]


def test_sizes_that_leave_classes_out() -> None:
    stream = make_stream(10, "natural", 50, 10, [3, 2])
    assert stream.order == (0, 1, 2, 3, 4)
    assert stream.positions(10).tolist() == [0, 1, 2, 3, 4, -1, -1, -1, -1, -1]


def test_phases_are_cut_from_the_listed_classes_only() -> None:
    with pytest.raises(UserError, match="1 and 4"):
        make_stream(10, [7, 2, 5, 0], 5, 1)
