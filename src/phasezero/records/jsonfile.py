"""JSON files, written atomically with a digest of their content, and checked against it and a schema when read."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, cast

from phasezero.errors import UserError
from phasezero.records.files import read_file, write_whole
from phasezero.validation import MOST_DIGITS, UNPRINTABLE

DIGEST = "content_sha256"
"""The last key of a file: the sha256 of all the rest. Files of versions up to 0.2.0 have none."""


def write_json(path: str | Path, value: Mapping[str, Any], what: str) -> None:
    """Write a mapping as JSON atomically, with the digest of its content."""
    as_read = json.loads("".join(_pieces(value, what, 0)))
    write_whole(Path(path), "".join(_pieces({**value, DIGEST: digest(as_read)}, what, 0)) + "\n")


def digest(value: Mapping[str, Any]) -> str:
    """Return the sha256 of a parsed JSON object, whatever the order of its keys, the spaces and the escapes."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _pieces(value: object, where: str, depth: int) -> Iterator[str]:
    """Yield JSON with an indent of one; a list of plain values stays on one line, which json cannot do."""
    if isinstance(value, Mapping) and value:
        if any(not isinstance(key, str) for key in value):
            raise TypeError(f"{where}: a key is not a string")
        entries = [(f"{where}.{key}", f"{json.dumps(key, ensure_ascii=False)}: ", item) for key, item in value.items()]
        opening, closing = "{}"
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping | list | tuple) for item in value):
        entries = [(f"{where}[{index}]", "", item) for index, item in enumerate(value)]
        opening, closing = "[]"
    else:
        # A diverged run shows here first; name the field instead of writing invalid JSON.
        for index, number in enumerate(value if isinstance(value, list | tuple) else [value]):
            if isinstance(number, float) and not math.isfinite(number):
                place = f"{where}[{index}]" if isinstance(value, list | tuple) else where
                raise UserError(f"{place} is {number}: a record holds finite numbers; did training diverge?")
        yield json.dumps(value, ensure_ascii=False, allow_nan=False)
        return
    for index, (place, key, entry) in enumerate(entries):
        yield f"{',' if index else opening}\n{' ' * (depth + 1)}{key}"
        yield from _pieces(entry, place, depth + 1)
    yield f"\n{' ' * depth}{closing}"


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Read the JSON object in a file and check its digest, if it has one; `what` names its kind in error messages."""
    content = read_file(path, what)
    try:
        value = json.loads(content.decode("utf-8"), parse_float=_finite, parse_constant=_finite, parse_int=_whole)
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, or nested too deeply
        raise UserError(f"{path}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise UserError(f"{path}: not a {what} (the file holds no JSON object)")
    if DIGEST in value and value.pop(DIGEST) != digest(value):
        raise UserError(
            f"{path}: the content was changed or damaged after it was written (it does not match its {DIGEST}); "
            "restore the file from a copy, or make it again"
        )
    return value


def _finite(text: str) -> float:
    """Reject NaN, Infinity and 1e999, which Python's json accepts as numbers."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


def _whole(text: str) -> int:
    """Reject a whole number that does not fit into a float."""
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a whole number of {len(text)} digits")
    return int(text)


@cache
def load_schema(name: str) -> dict[str, Any]:
    """Return the schema of that name, parsed."""
    text = resources.files("phasezero.records").joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
    return cast(dict[str, Any], json.loads(text))


Lists = Iterator[tuple[str, Sized, int]]
"""The place of each list, the list, and its required length."""


def check_content(path: Path, value: dict[str, Any], schema: str, lists: Callable[[dict[str, Any]], Lists]) -> None:
    """Raise UserError for a violation of the schema that affects views, or for a list of the wrong length."""
    rules = load_schema(schema)
    for problem in _problems(value, rules, "", rules["$defs"]):
        raise UserError(f"{path}: {problem}")
    for where, found, length in lists(value):
        if len(found) != length:
            raise UserError(f"{path}: {where} has {len(found)} entries and should have {length}")


_KINDS: dict[str, Any] = {"object": dict, "array": list, "string": str, "integer": int, "number": int | float}
_KINDS |= {"null": type(None), "boolean": bool}


def _problems(value: Any, rule: dict[str, Any], where: str, named: Mapping[str, Any]) -> Iterator[str]:
    """Yield violations of the schema that affect views (the tests check all), and texts that cannot be shown."""
    if "anyOf" in rule:  # in these schemas only ever "something or null"
        rule = {"type": "null"} if value is None else rule["anyOf"][0]
    if "$ref" in rule:
        rule = named[rule["$ref"].rpartition("/")[2]]
    kinds = rule.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    fits = isinstance(value, tuple(_KINDS[name] for name in kinds))
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
        if set(map(type, value)) in ({int}, {float}):  # often long: it is enough to check the extremes
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
