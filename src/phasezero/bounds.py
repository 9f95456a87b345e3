"""Which numbers and texts the fields of a configuration may have, the same wherever a field's name occurs."""

from __future__ import annotations

import math
import re

from phasezero.errors import UserError

ABOVE_ZERO = math.ulp(0.0)
BELOW_ONE = math.nextafter(1.0, 0.0)
ENDLESS = math.inf

# Least and most. A number that is not named here only has to be one: neither NaN nor infinite.
BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(
        ["epochs", "balanced_epochs", "finetune_epochs", "bias_epochs", "milestones", "balanced_milestones"],
        (0, ENDLESS),
    ),
    # No machine has room for more; and torch keeps sizes in 64 bits, rates in 32.
    **dict.fromkeys(["batch_size", "test_batch_size", "weights_batch_size"], (1, 1_000_000)),
    **dict.fromkeys(["top_k", "proxies", "groups"], (1, 10_000)),
    **dict.fromkeys(["lr", "balanced_lr", "finetune_lr", "bias_lr", "weights_lr"], (ABOVE_ZERO, 1e30)),
    **dict.fromkeys(["temperature", "clamp", "loss_limit"], (ABOVE_ZERO, ENDLESS)),
    **dict.fromkeys(["weight", "weight_decay", "beta_decay", "lambda_base", "ranking_weight"], (0, ENDLESS)),
    **dict.fromkeys(["margin", "distillation", "flat", "spatial"], (0, ENDLESS)),
    **dict.fromkeys(["momentum", "bias_momentum"], (0, BELOW_ONE)),
    **dict.fromkeys(["decay", "brightness", "weights_drops"], (0, 1)),
    "held_out": (ABOVE_ZERO, BELOW_ONE),
    "set_aside": (0, BELOW_ONE),
    "threads": (0, 1024),
}
MAY_BE_INFINITE = ("loss_limit",)
MOST_DIGITS = 300
"""Of a whole number: one that a float can still be compared with."""

UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""What a terminal would obey, or a line, an SVG or a file in UTF-8 could not hold."""


def whole_number(text: str) -> int | None:
    """Of digits alone, and not too many of them; else None."""
    return int(text) if re.fullmatch(f"[0-9]{{1,{MOST_DIGITS}}}", text) else None


def refuse_unprintable(where: str, text: str) -> None:
    """Names and paths go into records, tables and figures."""
    if UNPRINTABLE.search(text):
        raise UserError(f"{where}: {text!r} has a character that cannot be printed; choose another name")


def refuse_outside(where: str, value: float) -> None:
    """`where` is the field's dotted path; an entry of a list goes by the list's name."""
    name = next(part for part in reversed(where.split(".")) if not part.isdecimal())
    if isinstance(value, int) and abs(value) >= 10**MOST_DIGITS:
        raise UserError(f"{where}: a number of at most {MOST_DIGITS} digits is expected")
    if not math.isfinite(value) and not (value > 0 and name in MAY_BE_INFINITE):
        raise UserError(f"{where}: a finite number is expected, got {value}")
    least, most = BOUNDS.get(name, (-ENDLESS, ENDLESS))
    if not least <= value <= most:
        raise UserError(f"{where}: must be {_words(least, most)}, got {value:g}")


def _words(least: float, most: float) -> str:
    low = "above 0" if least == ABOVE_ZERO else f"at least {least:g}"
    if most == ENDLESS:
        return low
    return f"{low} and {'below 1' if most == BELOW_ONE else f'at most {most:g}'}"
