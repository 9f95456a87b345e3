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


@pytest.mark.parametrize(
    ("name", "classes", "start"),
    [
        ("seed1993", 100, SEED_1993),
        ("seed1993", 1000, "54 7 894 512 126 337 988 11 284 493 133 783 192 979 622 215 240 548 238 419"),
        ("podnet-1", 100, "87 0 52 58 44 91 68 97 51 15 94 92 10 72 49 78 61 14 8 86"),
        ("podnet-2", 100, "58 30 93 69 21"),
        ("podnet-3", 100, "71 54 45 32 4"),
        ("natural", 7, "0 1 2 3 4 5 6"),
    ],
)
def test_named_orders(name: str, classes: int, start: str) -> None:
    assert name in ORDER_NAMES
    before = np.random.get_state()
    order = class_order(name, classes)
    after = np.random.get_state()
    assert order[: len(start.split())] == tuple(map(int, start.split()))
    assert sorted(order) == list(range(classes))
    assert np.array_equal(before[1], after[1])  # numpy's global state is neither used nor moved
    assert before[2] == after[2]


@pytest.mark.parametrize(
    ("classes", "base", "step", "count"),
    [(100, 50, 10, 6), (100, 50, 2, 26), (100, 10, 10, 10), (1000, 100, 50, 19), (7, 3, 2, 3), (10, 10, 0, 1)],
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


def test_uneven_sizes_go_before_base_and_step() -> None:
    assert cut_phases(10, 50, 3, [4, 1, 3]) == (Phase(0, 0, 4), Phase(1, 4, 1), Phase(2, 5, 3))
    assert cut_phases(10, 50, 3, (10,)) == (Phase(0, 0, 10),)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((4, [0, 1, 1], 2, 1), ["distinct", "between 0 and 3"]),
        ((4, [0, 4], 1, 1), ["distinct", "between 0 and 3"]),
        ((4, [-1, 0], 1, 1), ["distinct", "between 0 and 3"]),
        ((100, "seed1992", 50, 10), ["did you mean 'seed1993'"]),
        ((10, "podnet-2", 5, 5), ["'podnet-2' is for 100 classes", "has 10"]),
        ((100, "natural", 0, 10), ["base", "1 and 100", "got 0"]),
        ((100, "natural", 101, 10), ["base", "1 and 100", "got 101"]),
        ((10, [7, 2, 5, 0], 5, 1), ["base", "1 and 4"]),  # of the listed classes, not of all
        ((100, "natural", 50, 0), ["step", "got 0"]),
        ((100, "natural", 50, 7), ["base 50", "step 7", "100 classes", "50 classes are left", "phase_sizes"]),
        ((100, "natural", 50, 60), ["base 50", "step 60", "100 classes", "50 classes are left"]),
        ((10, "natural", 5, 5, [5, 0, 5]), ["phase_sizes", "[5, 0, 5]"]),
        ((10, "natural", 5, 5, [6, 5]), ["phase_sizes", "11 classes", "has 10"]),
    ],
)
def test_what_does_not_fit_is_refused_with_its_numbers(arguments: tuple, named: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        make_stream(*arguments)
    for words in named:
        assert words in str(caught.value)


def test_positions_are_the_inverse_of_the_order() -> None:
    stream = make_stream(100, "seed1993", 50, 10)
    positions = stream.positions(100)
    assert positions.dtype == np.int64
    assert [positions[index] for index in stream.order] == list(range(100))
    assert stream.sizes == (50, 10, 10, 10, 10, 10)
    assert stream.order_name == "seed1993"


def test_a_stream_may_leave_classes_out() -> None:
    stream = make_stream(10, np.array([7, 2, 5, 0]), 2, 1)  # any sequence will do
    assert (stream.order, stream.sizes, stream.order_name) == ((7, 2, 5, 0), (2, 1, 1), "list")
    assert stream.positions(10).tolist() == [3, -1, 1, -1, -1, 2, -1, 0, -1, -1]
    stream = make_stream(10, "natural", 50, 10, [3, 2])
    assert stream.positions(10).tolist() == [0, 1, 2, 3, 4, -1, -1, -1, -1, -1]
