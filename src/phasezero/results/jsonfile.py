"""JSON files that others may rely on: written whole or not at all, and checked against a schema when read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sized
from importlib import resources
from pathlib import Path
from typing import Any, cast

from phasezero.bounds import MOST_DIGITS, UNPRINTABLE
from phasezero.errors import UserError
from phasezero.results.files import write_whole

MOST_BYTES = 256 << 20
"""Far more than any of these files has, and no more than a machine can hold."""


def write_json(path: str | Path, value: Mapping[str, Any], what: str) -> None:
    text = "".join(_pieces(value, what, 0)) + "\n"  # before any file is touched, for it may refuse
    write_whole(Path(path), text)


def _pieces(value: object, where: str, depth: int) -> Iterator[str]:
    """JSON with an indent of one, except that a list of plain values stays on one line (json cannot)."""
    if isinstance(value, Mapping) and value:
        opening = "{"
        for key, entry in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where}: key {key!r} is not a string")
            yield f"{opening}\n{' ' * (depth + 1)}{json.dumps(key, ensure_ascii=False)}: "
            yield from _pieces(entry, f"{where}.{key}", depth + 1)
            opening = ","
        yield f"\n{' ' * depth}}}"
    elif isinstance(value, list | tuple) and any(isinstance(one, Mapping | list | tuple) for one in value):
        opening = "["
        for index, entry in enumerate(value):
            yield f"{opening}\n{' ' * (depth + 1)}"
            yield from _pieces(entry, f"{where}[{index}]", depth + 1)
            opening = ","
        yield f"\n{' ' * depth}]"
    else:
        # A diverged run shows here first; say where, rather than write what is not JSON.
        for index, number in enumerate(value if isinstance(value, list | tuple) else [value]):
            if isinstance(number, float) and not math.isfinite(number):
                place = f"{where}[{index}]" if isinstance(value, list | tuple) else where
                raise UserError(f"{place} is {number}: a record holds finite numbers; did training diverge?")
        yield json.dumps(value, ensure_ascii=False, allow_nan=False)


def read_json(path: Path, what: str) -> dict[str, Any]:
    """The JSON object in a file; `what` it should be, for the message if it is none."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UserError(f"{path}: larger than {MOST_BYTES >> 20} MiB, so no {what} of phasezero's")
        value = json.loads(
            path.read_text(encoding="utf-8"), parse_float=_finite, parse_constant=_finite, parse_int=_whole
        )
    except OSError as error:
        raise UserError(f"{path}: no {what} to read ({error.strerror or error})") from error
    except (ValueError, RecursionError) as error:  # not JSON, or not even UTF-8, or nested without end
        raise UserError(f"{path}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise UserError(f"{path}: not a {what} (the file holds no JSON object)")
    return value


def _finite(text: str) -> float:
    """Python's json takes NaN, Infinity and 1e999 for numbers; a mean over them would be none."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is no finite number")
    return number


def _whole(text: str) -> int:
    """Python's whole numbers have no end; a mean over one that no float can hold would fail."""
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a whole number of {len(text)} digits")
    return int(text)


def load_schema(package: str, name: str) -> dict[str, Any]:
    text = resources.files(package).joinpath(name).read_text(encoding="utf-8")
    return cast(dict[str, Any], json.loads(text))


def refuse_misfits(path: Path, value: Any, schema: dict[str, Any]) -> None:
    for problem in _problems(value, schema, "", schema["$defs"]):
        raise UserError(f"{path}: {problem}")


def refuse_other_lengths(path: Path, lists: Iterable[tuple[str, Sized, int]]) -> None:
    """`lists`: where each stands, itself, and how long it must be, which no schema can say."""
    for where, found, length in lists:
        if len(found) != length:
            raise UserError(f"{path}: {where} has {len(found)} entries and should have {length}")


_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
    "boolean": (bool,),
}


def _problems(value: Any, rule: dict[str, Any], where: str, named: Mapping[str, Any]) -> Iterator[str]:
    """By the schema what a view would trip over (the tests check it all), and texts that it could not show."""
    if "anyOf" in rule:  # in these schemas only ever "something or null"
        rule = {"type": "null"} if value is None else rule["anyOf"][0]
    if "$ref" in rule:
        rule = named[rule["$ref"].rpartition("/")[2]]
    kinds = rule.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    fits = isinstance(value, tuple(kind for name in kinds for kind in _KINDS[name]))
    if kinds and (not fits or isinstance(value, bool) != ("boolean" in kinds)):
        yield f"{where} should be {' or '.join(kinds)}"
    elif isinstance(value, dict):
        for key in rule.get("required", []):
            if key not in value:
                yield f"missing key {f'{where}.{key}'.lstrip('.')!r}"
        known, others = rule.get("properties", {}), rule.get("additionalProperties")
        for key, entry in value.items():
            if UNPRINTABLE.search(key):
                yield f"the key {key!r} has a character that cannot be printed"
            inner = known.get(key, others if isinstance(others, dict) else {})
            yield from _problems(entry, inner, f"{where}.{key}".lstrip("."), named)
    elif isinstance(value, list):
        if len(value) < rule.get("minItems", 0):
            yield f"{where} is empty"
        places: Iterable[int] = range(len(value))
        if set(map(type, value)) in ({int}, {float}):  # long, most of them: the extremes speak for all
            places = sorted({value.index(min(value)), value.index(max(value))})
        for index in places:
            yield from _problems(value[index], rule.get("items", {}), f"{where}[{index}]", named)
    elif isinstance(value, str):
        if UNPRINTABLE.search(value):
            yield f"{where} has a character that cannot be printed"
    elif isinstance(value, int | float):
        if value < rule.get("minimum", value):
            yield f"{where} should be at least {rule['minimum']}"
        if value > rule.get("maximum", value):
            yield f"{where} should be at most {rule['maximum']}"
