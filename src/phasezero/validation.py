"""Limits of numbers and texts. A field declares its limits in its `option(...)`."""

from __future__ import annotations

import math
import re
import reprlib
from dataclasses import Field, field, fields
from pathlib import Path
from typing import Any

from phasezero.errors import UserError

ABOVE_ZERO = math.ulp(0.0)
BELOW_ONE = math.nextafter(1.0, 0.0)

# Limits that many options share.
EPOCHS: dict[str, Any] = {"least": 0}
WEIGHT: dict[str, Any] = {"least": 0}
POSITIVE: dict[str, Any] = {"least": ABOVE_ZERO}
SHARE: dict[str, Any] = {"least": 0, "most": 1}
MOMENTUM: dict[str, Any] = {"least": 0, "most": BELOW_ONE}
RATE: dict[str, Any] = {"least": ABOVE_ZERO, "most": 1e30}  # torch stores learning rates in 32 bits
COUNT: dict[str, Any] = {"least": 1, "most": 10_000}
BATCH_SIZE: dict[str, Any] = {"least": 1, "most": 1_000_000}  # no machine has memory for more

MOST_DIGITS = 300
"""The most digits of a whole number that can be compared with a float."""

UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Characters that control a terminal, or that a line, an SVG or a UTF-8 file cannot contain."""


def option(
    default: Any,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    infinite: bool = False,
    later: bool = False,
    before: Any = None,
) -> Any:
    """Declare a field of an options dataclass.

    `least` and `most` are its limits, `infinite` allows infinity. `later` marks a field that only the phases after
    phase 0 read. `before` is the value that runs had before the field existed.

    >>> from dataclasses import dataclass
    >>> from phasezero import MethodOptions, UserError, option
    >>> @dataclass(frozen=True)
    ... class Options(MethodOptions):
    ...     temperature: float = option(2.0, least=0, later=True)
    >>> Options(temperature=-1)
    Traceback (most recent call last):
    phasezero.errors.UserError: temperature: must be at least 0, got -1
    """
    facts = {"least": least, "most": most, "infinite": infinite, "later": later}
    return field(default=default, metadata=facts if before is None else {**facts, "before": before})


class Limited:
    """Check the fields of a dataclass against their limits when it is made."""

    def __post_init__(self) -> None:
        for declared in fields(self):  # type: ignore[arg-type]
            value = getattr(self, declared.name)
            for entry in value if isinstance(value, tuple) else (value,):
                if isinstance(entry, int | float) and not isinstance(entry, bool):
                    check_number(declared.name, entry, declared)


def check_number(where: str, value: float, limits: Field[Any] | None = None) -> None:
    """Raise UserError for a number outside its field's limits; `where` is the field's dotted path."""
    facts = limits.metadata if limits is not None else {}
    least, most = facts.get("least", -math.inf), facts.get("most", math.inf)
    if isinstance(value, int) and abs(value) >= 10**MOST_DIGITS:
        raise UserError(f"{where}: a number of at most {MOST_DIGITS} digits is expected")
    if not math.isfinite(value) and not (value == math.inf and facts.get("infinite")):
        raise UserError(f"{where}: a finite number is expected, got {value}")
    if not least <= value <= most:
        low = "above 0" if least == ABOVE_ZERO else f"at least {least:g}" if least > -math.inf else ""
        high = "below 1" if most == BELOW_ONE else f"at most {most:g}" if most < math.inf else ""
        raise UserError(f"{where}: must be {' and '.join(filter(None, (low, high)))}, got {value:g}")


def whole_number(text: str) -> int | None:
    """Parse a text of digits as a number; return None for any other text."""
    return int(text) if re.fullmatch(f"[0-9]{{1,{MOST_DIGITS}}}", text) else None


def check_printable(where: str, text: str) -> None:
    """Raise UserError for a text that records, tables and figures cannot show."""
    if UNPRINTABLE.search(text):
        raise UserError(f"{where}: {text!r} has a character that cannot be printed; choose another name")


def shown(value: object) -> str:
    """Return the start of a value's repr, for messages: YAML aliases can make a small file endlessly large."""
    return _SHORT.repr(value)


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 100


def user_path(text: str | Path) -> Path:
    """Return a path with `~` replaced by the home folder; raise UserError for the name of an unknown user."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise UserError(f"{text}: there is no such user; write ./~name for a folder of that name") from None


def no_formula(text: str) -> str:
    """Quote a name such as `=1+1`, which a spreadsheet would evaluate; leave numbers with a sign unchanged."""
    try:
        float(text)
    except ValueError:
        return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
    return text


def printable(text: str) -> str:
    """Replace characters that control a terminal or cannot be written by escapes such as `\\x1b`."""
    return UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def shorten(text: str, width: int) -> str:
    """Cut a text in its middle, because both ends of a name distinguish runs."""
    if len(text) <= width:
        return text
    head = width // 2
    return f"{text[:head]}…{text[len(text) - (width - head - 1) :]}"
