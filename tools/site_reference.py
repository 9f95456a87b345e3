"""Write the reference pages of the site from the code: commands, configuration fields, public names.

`tools/build_site.py` replaces a line `<!-- generated: KIND [NAMES] -->` of a page by what `generate` returns.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import io
import math
import re
import textwrap
import tokenize
import typing
from collections.abc import Callable, Iterator
from typing import Any

import typer

import phasezero
from phasezero.cli.main import app
from phasezero.config import Engine, Network, Protocol, RunConfig
from phasezero.initial import STRATEGIES
from phasezero.methods import METHODS
from phasezero.schedule import Schedule, Training
from phasezero.validation import ABOVE_ZERO, BELOW_ONE

MARKER = re.compile(r"^<!-- generated: (\w+)(?: ([^>]*?))? -->$", re.MULTILINE)
TECHNICAL = 1e9
"""Upper limits from here on only keep numbers in their format, and are not shown."""
WIDTH = 88
"""Longer signatures have a line for each parameter."""


def generate(kind: str, names: str) -> str:
    """Return the Markdown of a marker."""
    kinds: dict[str, Callable[[], str]] = {
        "commands": commands,
        "sections": sections,
        "methods": lambda: options_of(METHODS, "method"),
        "strategies": lambda: options_of(STRATEGIES, "initial.N"),
        "api": lambda: "\n".join(api(name) for name in names.split()),
    }
    return kinds[kind]()


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table without empty columns."""
    kept = [place for place in range(len(header)) if place == 0 or any(row[place] for row in rows)]
    lines = [[header[place] for place in kept], ["---"] * len(kept)]
    lines += [[row[place].replace("|", "\\|") for place in kept] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


# Commands


def commands() -> str:
    """Return a section for each command and subcommand."""
    found = [*all_commands()]
    return "\n".join(command_section(name, command) for name, command in found)


def all_commands() -> Iterator[tuple[str, Any]]:
    """Yield every command with its full name; first the options of `phasezero` itself."""
    group: Any = typer.main.get_command(app)
    yield "", group
    for name, command in group.commands.items():
        yield name, command
        for inner, subcommand in getattr(command, "commands", {}).items():
            yield f"{name} {inner}", subcommand


def command_section(name: str, command: Any) -> str:
    title = " ".join(filter(None, ["phasezero", name]))
    hints = typing.get_type_hints(inspect.unwrap(command.callback)) if command.callback else {}
    arguments, options = [], []
    usage = [title]
    for one in command.params:
        if one.hidden or one.name == "help":
            continue
        meaning = (one.help or "").strip()
        if one.param_type_name == "argument":
            word = one.metavar or (one.name.upper() if one.required else f"[{one.name.upper()}]")
            usage.append(word)
            arguments.append((f"`{word}`", meaning, fallback(one)))
        else:
            flags = ", ".join(f"`{flag}`" for flag in [*one.opts, *one.secondary_opts])
            value = "" if one.is_flag else one.metavar or kind_of(hints.get(one.name, str))
            remarks = [meaning, "Required." if one.required else "", f"Also `${one.envvar}`." if one.envvar else ""]
            options.append((f"{flags} {value}".strip(), " ".join(filter(None, remarks)), fallback(one)))
    if options:
        usage.insert(1, "[OPTIONS]")
    if hasattr(command, "commands"):
        usage.append("COMMAND")
    parts = [f"## {title}\n", f"{(command.help or '').strip()}\n", f"```text\n{' '.join(usage)}\n```\n"]
    if arguments:
        parts.append(table(("argument", "meaning", "default"), arguments))
    if options:
        parts.append(table(("option", "meaning", "default"), options))
    return "\n".join(parts)


def fallback(parameter: Any) -> str:
    """Return the default of a parameter; empty if there is none, or if leaving a flag out says it."""
    value = parameter.default
    if value is None or value in ("", False) or callable(value) or parameter.required:
        return ""
    return f"`{value}`"


def kind_of(hint: Any) -> str:
    """Return what a value of this annotation looks like on the command line."""
    inner = [entry for entry in typing.get_args(hint) if entry is not type(None)]
    if inner:  # of `list[Path] | None`
        return kind_of(inner[0])
    return {"int": "INTEGER", "float": "NUMBER", "Path": "PATH"}.get(getattr(hint, "__name__", ""), "TEXT")


# Configuration


def sections() -> str:
    """Return a table of fields for each section of a configuration, except method and initial."""
    whole = [field for field in dataclasses.fields(RunConfig) if field.name in ("name", "seed")]
    parts = ["### Run\n", field_table(RunConfig, "", whole)]
    for title, kind, prefix in (
        ("Protocol", Protocol, "protocol."),
        ("Network", Network, "network."),
        ("Training", Training, "training."),
        ("Schedules", Schedule, "training.first. and training.later."),
        ("Engine", Engine, "engine."),
    ):
        parts.append(f"### {title}\n")
        if kind is Schedule:
            parts.append("`training.first` is the schedule of phase 0, `training.later` that of the later phases.\n")
            prefix = "training.first."
        parts.append(field_table(kind, prefix, own_fields(kind)))
    return "\n".join(parts)


def own_fields(kind: type) -> list[dataclasses.Field[Any]]:
    """Return the fields whose values are not sections themselves."""
    return [field for field in dataclasses.fields(kind) if not dataclasses.is_dataclass(field.default)]


def options_of(registry: Any, prefix: str) -> str:
    """Return a section for each method or strategy: what it does, its options, and the published settings."""
    parts = []
    for name in registry:
        entry = registry[name]
        fields = [field for field in dataclasses.fields(entry.Options) if field.name not in ("name", "variant")]
        parts.append(f"### `{name}`\n\n{sentence(registry.summaries[name])}\n")
        parts.append(field_table(entry.Options, f"{prefix}.", fields) if fields else "It has no options.\n")
        groups = {name: entry.published} | {
            f"{name}-{variant}": published for variant, published in getattr(entry, "variants", {}).items()
        }
        rows = [
            (f"`{which}`", "every data set" if data == "*" else f"`{data}`", assignments(values))
            for which, published in groups.items()
            for data, values in published.items()
        ]
        if rows:
            parts.append("Presets change these settings:\n")
            parts.append(table(("preset", "data", "settings"), rows))
    return "\n".join(parts)


def assignments(values: typing.Mapping[str, Any]) -> str:
    return ", ".join(f"`{key}={shown(value)}`" for key, value in values.items())


def field_table(kind: type, prefix: str, fields: list[dataclasses.Field[Any]]) -> str:
    hints, notes = typing.get_type_hints(kind), field_comments(kind)
    rows = []
    for field in fields:
        default = field.default if field.default is not dataclasses.MISSING else ""
        note = sentence(notes.get(field.name, ""))
        if field.metadata.get("later"):
            note = f"{note} Only later phases read it.".strip()
        rows.append((f"`{prefix}{field.name}`", values_of(hints[field.name], field), f"`{shown(default)}`", note))
    return table(("field", "values", "default", "meaning"), rows)


def shown(value: Any) -> str:
    """Return a value as it is written in YAML and after `--set`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    return '""' if value == "" else f"{value:g}" if isinstance(value, float) else str(value)


def values_of(hint: Any, field: dataclasses.Field[Any]) -> str:
    """Return which values a field takes, with its limits."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return ", ".join(f"`{entry}`" for entry in arguments)
    if origin is tuple:
        return f"list of {values_of(arguments[0], field)}"
    if arguments:
        return " or ".join(values_of(entry, field) for entry in arguments)
    word = {"int": "integer", "float": "number", "str": "text", "bool": "`true`, `false`"}.get(hint.__name__, "")
    least, most = field.metadata.get("least", -math.inf), field.metadata.get("most", math.inf)
    if hint not in (int, float):
        return word
    low = "above 0" if least == ABOVE_ZERO else f"from {least:,g}" if least > -math.inf else ""
    high = "below 1" if most == BELOW_ONE else f"to {most:,.0f}" if most < TECHNICAL else ""
    return " ".join(filter(None, [word, low, high]))


@functools.cache
def field_comments(kind: type) -> dict[str, str]:
    """Return the comments of a dataclass's fields: at the end of the line, or on the lines above."""
    found: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if dataclasses.is_dataclass(owner):
            found |= _comments_of(owner)
    return found


def _comments_of(owner: type) -> dict[str, str]:
    source = textwrap.dedent(inspect.getsource(owner))
    lines = source.splitlines()
    comments = {
        token.start[0]: token.string.lstrip("# ").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for node in body.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        above, place = [], node.lineno - 1
        while place in comments and lines[place - 1].lstrip().startswith("#"):
            above.insert(0, comments[place])
            place -= 1
        beside = [comments[row] for row in range(node.lineno, (node.end_lineno or 0) + 1) if row in comments]
        if above or beside:
            found[node.target.id] = " ".join(above + beside)
    return found


def sentence(text: str) -> str:
    """Return a comment or summary as a sentence: with a capital letter and a full stop."""
    if not text:
        return ""
    word = re.match("[a-z]{2,}", text)
    return (text[0].upper() + text[1:] if word else text) + ("" if text.endswith(".") else ".")


# Public names


def api(name: str) -> str:
    """Return the section of a public name: signature, docstring, examples, and the members of a class."""
    thing = getattr(phasezero, name)
    parts = [f"### `{name}`\n", code_of(name, thing), prose(inspect.getdoc(thing) or "")]
    if inspect.isclass(thing) and not issubclass(thing, BaseException):
        rows = [(f"`{field}`", sentence(text)) for field, text in attributes(thing).items()]
        if rows:
            parts.append(table(("attribute", "meaning"), rows))
        for member, method in members(thing):
            parts.append(f"#### `{name}.{member}`\n")
            if not isinstance(method, property):
                parts.append(code_of(member, method))
            parts.append(prose(inspect.getdoc(method) or ""))
    return "\n".join(parts)


def code_of(name: str, thing: Any) -> str:
    shown_class = inspect.isclass(thing)
    text = f"class {name}" if shown_class else name
    if not shown_class or own_signature(thing):
        text += signature(thing)
    return f"```python\n{text}\n```\n"


def own_signature(kind: type) -> bool:
    """Return whether users make objects of a class by calling it."""
    return not (issubclass(kind, BaseException) or inspect.isabstract(kind) or typing.is_typeddict(kind))


def signature(thing: Any) -> str:
    """Return a signature with annotations as they are written; `self` is left out."""
    found = inspect.signature(thing)
    shown_parameters, keywords = [], False
    for parameter in found.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            keywords = True
        if parameter.kind is parameter.KEYWORD_ONLY and not keywords:
            shown_parameters.append("*")
            keywords = True
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        text = stars + parameter.name
        text += f": {annotation(parameter.annotation)}" if parameter.annotation is not parameter.empty else ""
        if parameter.default is not parameter.empty:
            default = repr(parameter.default)
            text += f" = {'...' if '<' in default or len(default) > 40 else default}"
        shown_parameters.append(text)
    returned = found.return_annotation
    end = "" if returned is found.empty or inspect.isclass(thing) else f" -> {annotation(returned)}"
    line = f"({', '.join(shown_parameters)}){end}"
    if len(line) <= WIDTH:
        return line
    return "(\n" + "".join(f"    {text},\n" for text in shown_parameters) + f"){end}"


def annotation(found: Any) -> str:
    return found if isinstance(found, str) else inspect.formatannotation(found)


def attributes(kind: type) -> dict[str, str]:
    """Return the attributes of a class that have a comment, or a text below them."""
    found: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if not owner.__module__.startswith("phasezero"):
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        assert isinstance(body, ast.ClassDef)
        for node, after in zip(body.body, body.body[1:], strict=False):
            below = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            if below and isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found[node.target.id] = " ".join(str(after.value.value).split())  # type: ignore[attr-defined]
        for name, text in _comments_of(owner).items():
            found.setdefault(name, text)
    return {name: text for name, text in found.items() if not name.startswith("_")}


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties with a docstring that the package defines, in the order of the source."""
    seen = set()
    for owner in kind.__mro__:
        if not owner.__module__.startswith("phasezero"):
            continue
        for name, value in vars(owner).items():
            plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            public = (inspect.isfunction(plain) or isinstance(plain, property)) and not name.startswith("_")
            if public and name not in seen and plain.__doc__:
                seen.add(name)
                yield name, plain


def prose(text: str) -> str:
    """Return a docstring as Markdown: its examples become blocks of code."""
    parts, example = [], False
    for line in text.splitlines():
        begins = line.startswith(">>>")
        if begins and not example:
            parts += ["", "```pycon"]
            example = True
        elif example and not line.strip():
            parts.append("```")
            example = False
        parts.append(line)
    return "\n".join([*parts, "```"] if example else parts) + "\n"
