"""Bad inputs of every kind that the command reads, made from random numbers in the folder `in`."""

from __future__ import annotations

import copy
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from PIL import Image

from phasezero.records.jsonfile import DIGEST, digest
from phasezero.records.run import write_record
from samples import make_analysis, make_photo, make_record

OLD_MODEL = Path(__file__).parent / "learner" / "models" / "1-icarl"
RUN = ("run", "--parallel", "1", "--out", "out")
TINY = ("--set", "protocol.phase_sizes=[2,2]", "--set", "engine.threads=1", "--epochs", "1")


@dataclass(frozen=True)
class Case:
    kind: str
    what: str
    arguments: tuple[str, ...]


def odd_value(rng: Random) -> Any:
    """A value that few settings take."""
    return rng.choice(ODD)


ODD = (
    *(None, True, {}, {"x": 1}, [], [[1]], [None], [1, "a"], -1, -0.5, 10**12, 10**400, 1e308),
    *("", "inf", "nan", "1e999", "no such thing", "\x1b[2J", "a\nb", "é" * 300),
    *("~nobody_x/y", "../../x", "$(touch x)", "__import__('os')"),
)


def places(value: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield (*where, key)
        yield from places(entry, (*where, key))


def changed_tree(value: Any, rng: Random) -> tuple[Any, str]:
    """Change a random entry of nested mappings and lists: another value, gone, renamed, or repeated."""
    changed = copy.deepcopy(value)
    where = rng.choice(list(places(changed)))
    parent = changed
    for key in where[:-1]:
        parent = parent[key]
    how = rng.choice(["value", "value", "value", "gone", "key", "deep"])
    if how == "value":
        parent[where[-1]] = odd_value(rng)
    elif how == "gone":
        del parent[where[-1]]
    elif how == "key" and isinstance(parent, dict):
        parent[f"{where[-1]}{rng.choice(['x', ' ', '.', chr(0x1B)])}"] = parent.pop(where[-1])
    elif how == "key":
        parent += parent[: where[-1] + 1]
    else:
        for _ in range(rng.choice([3, 400])):
            parent[where[-1]] = [parent[where[-1]]]
    return changed, f"{how} at {'.'.join(map(str, where))}"


def changed_bytes(content: bytes, rng: Random) -> tuple[bytes, str]:
    """Damage a file: cut, a flipped bit, a zeroed block, random bytes, or other content."""
    at = rng.randrange(max(len(content), 1))
    how = rng.choice(["cut", "bit", "zeroed", "noise", "empty", "text", "nested", "twice"])
    if how == "cut":
        return content[:at], f"cut at {at}"
    if how == "bit":
        return content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :], f"bit at {at}"
    if how == "zeroed":
        return content[:at] + bytes(len(content[at : at + 512])) + content[at + 512 :], f"zeroed at {at}"
    if how == "noise":
        return content[:at] + rng.randbytes(64) + content[at + 64 :], f"noise at {at}"
    found = {"empty": b"", "text": b"words", "nested": b'{"a":' * 100_000, "twice": content + content}
    return found[how], how


def special_file(path: Path, rng: Random) -> str:
    """Put something else than a file at a path."""
    how = rng.choice(["pipe", "folder", "loop", "missing", "link to a device", "name"])
    path.parent.mkdir(parents=True, exist_ok=True)
    if how == "pipe":
        os.mkfifo(path)
    elif how == "folder":
        path.mkdir()
    elif how == "loop":
        path.symlink_to(path)
    elif how == "link to a device":
        path.symlink_to("/dev/zero")
    return how


def config_case(rng: Random) -> Case:
    from phasezero.presets import preset

    values = preset("lucir+cwd/glyphs/b50s10").override({"protocol.phase_sizes": [2, 2]}).to_dict()
    values, what = changed_tree(values, rng)
    Path("in/run.yaml").write_text(json.dumps(values, indent=1))  # JSON is YAML
    return Case("config", what, (*RUN, "--config", "in/run.yaml"))


YAML_TEXTS = (
    *("a: " + "[" * 1000, "\n".join(" " * depth + "a:" for depth in range(1000)), "- " * 3000, "x" * 2_000_000),
    *("a: &a [*a]", "seed: &s [*s, *s]", "seed: [&a [1, 1], &b [*a, *a], &c [*b, *b]]", "<<: 3", "<<: [1, 2]"),
    *("name: !!python/object/apply:os.system ['touch x']", "!!binary aGFsbG8=", "? [a, b]\n: 1", "? {a: b}\n: 1"),
    *("seed: 0x" + "f" * 5000, "seed: " + "9" * 100_000, "name: 2026-13-45", "--- 1\n--- 2", "seed: 1\nseed: 2"),
    *("name: 'open", "\t- tab", "%YAML 9.9\n---\n{}", "name: \u2028", "seed: .nan", "seed: 1e400", "seed: 12:30:45"),
)


def yaml_case(rng: Random) -> Case:
    from phasezero.presets import preset

    path = Path("in/run.yaml")
    way = rng.randrange(4)
    if way == 0:
        what = special_file(path, rng)
    elif way == 1:
        what = rng.choice(YAML_TEXTS)
        path.write_text(what)
    else:
        content, what = changed_bytes(preset("lucir/glyphs/b50s10").to_yaml().encode(), rng)
        path.write_bytes(content)
    return Case("yaml", what[:60], (*RUN, "--config", str(path)))


PLAIN = (
    "x -1 0 1.5 1e999 nan inf 1,1 1,,2 ~nobody_x ~nobody_x/y /dev/null/x /proc/x in in/none ../.. a=b = a.b.c=1 cwd:x "
    "cwd:-1 cwd:nan cwd:0.1:2 folder: folder:~nobody_x folder:/dev/null lucir//b1s1 a/b/c/d lucir/glyphs/b0s0 "
    "lucir/glyphs/b50s7 lucir+/glyphs/b50s10 lucir/glyphs/b50s10,x=1 per_class:-1 per_class:x total: cuda:99 seed1 "
    "protocol=1 { !!python/name:os.system method.name=podnet training.first.milestones=3 initial.7.weight=1 "
    "protocol.phase_sizes=[[1]]"
)
BAD_TEXTS = ("", " ", "a" * 5000, "\x1b[2J", "a\nb", "\udcff", "9" * 400, "[" * 2000, *PLAIN.split())

OPTIONS = {
    "run": "--data --method --initial --base --step --memory --class-order --seeds --epochs --precision --engine "
    "--device --root --out --config --set --parallel --store --tensorboard --nonsense --resume --overwrite",
    "show": "--format --figure --head --nonsense",
    "report": "--out --title --nonsense",
    "analyze": "--root --phase --out --k --split --features --floor --store --device --read",
    "results": "--out --figures",
    "predict": "--model --top --reject --format --device",
    "evaluate": "--model --out --device",
    "info": "--model",
    "undo": "--model",
    "export": "--model --format --out",
    "learn": "--model --backbone --method --initial --memory --keep-images --set --device",
    "store": "--prune --empty --nonsense",
    "list": "--nonsense --format",
    "data": "--root --nonsense",
    "--plugin": "",
}


def options_case(rng: Random) -> Case:
    """A command with one or two options whose values are odd; what it needs besides is there."""
    command = rng.choice(list(OPTIONS))
    words = [command]
    if command == "--plugin":
        words += [rng.choice(BAD_TEXTS), "list"]
    options = OPTIONS[command].split()
    for option in rng.sample(options, min(len(options), rng.choice([1, 1, 2]))):
        words += [option, rng.choice(BAD_TEXTS)]
    if command == "run":
        words += ["--parallel", "1"] if "--parallel" not in words else []
        words += ["--out", "out"] if "--out" not in words else []
        words += [] if {"--config", "--data", "--method", "--initial"} & {*words} else ["lucir/glyphs/b50s10", *TINY]
    if command in ("show", "report", "analyze"):
        keep_record("in/run")
        words.insert(1, "in/run")
    if command == "report" and "--out" not in words:
        words += ["--out", "out/report.html"]
    if command in ("predict", "evaluate", "learn"):
        keep_photos("in/photos")
        words.insert(1, "in/photos")
    if "--model" in options and "--model" not in words:
        words += ["--model", "in/none"]
    if rng.random() < 0.1:
        words.insert(rng.randrange(1, len(words) + 1), rng.choice(BAD_TEXTS))
    return Case("options", " ".join(words)[:60], tuple(words))


def keep_record(folder: str) -> Path:
    path = Path(folder) / "record.json"
    write_record(path, make_record(data="glyphs", sizes=(3, 2, 2), nearest_mean=True))
    return path


def keep_photos(folder: str, classes: int = 2, each: int = 3) -> list[Path]:
    paths = []
    for place in range(classes):
        for seed in range(each):
            path = Path(folder) / f"class{place}" / f"{seed}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(make_photo((60 * place, 90, 120), 10 * place + seed, 24))
            paths.append(path)
    return paths


def image_bytes(rng: Random) -> tuple[bytes, str]:
    """A damaged image, or one that is larger than it looks."""
    form = rng.choice(["JPEG", "PNG", "BMP", "WEBP", "TIFF", "GIF"])
    file = io.BytesIO()
    noise = np.random.default_rng(rng.randrange(100)).integers(0, 256, (24, 30, 3), dtype=np.uint8)
    Image.fromarray(noise).save(file, form)
    if rng.random() < 0.1:
        file = io.BytesIO()
        Image.new("1", (30_000, 30_000)).save(file, "PNG")
        return file.getvalue(), "900 million pixels"
    content, what = changed_bytes(file.getvalue(), rng)
    return content, f"{form} {what}"


def image_case(rng: Random) -> Case:
    path = rng.choice(keep_photos("in/photos"))
    if rng.random() < 0.15:
        path.unlink()
        what = special_file(path, rng)
        if what == "missing":
            path.symlink_to("nowhere")
    else:
        content, what = image_bytes(rng)
        path.write_bytes(content)
    commands = (
        (*RUN, "--data", "folder:in/photos", "--base", "1", "--step", "1", "--method", "lucir", *TINY[2:]),
        ("learn", "in/photos", "--model", "out/model", "--backbone", "none", "--dry-run"),
        ("predict", str(path), "--model", "in/none"),
    )
    return Case("image", what, rng.choice(commands))


def folder_case(rng: Random) -> Case:
    keep_photos("in/photos", classes=rng.choice([1, 2, 3]))
    how = rng.choice(["empty class", "one photo", "train only", "odd name", "not a folder", "loop", "no class", "text"])
    inner = Path("in/photos/class0")
    if how == "empty class":
        (Path("in/photos") / "empty").mkdir()
    elif how == "one photo":
        for path in sorted(inner.iterdir())[1:]:
            path.unlink()
    elif how == "train only":
        Path("in/train").mkdir()
        shutil.move("in/photos", "in/train/photos")
        shutil.move("in/train", "in/photos")
        shutil.move("in/photos/photos", "in/photos/train")
    elif how == "odd name":
        os.rename(inner, os.fsencode("in/photos/") + rng.choice([b"\xff", b"\x1b[2J", b"a\nb", b"\t"]))
    elif how == "not a folder":
        shutil.rmtree("in/photos")
        special_file(Path("in/photos"), rng)
    elif how == "loop":
        (inner / "loop").symlink_to(inner.absolute())
        (inner / "loop.jpg").symlink_to("loop.jpg")
    elif how == "no class":
        shutil.rmtree("in/photos")
        Path("in/photos").mkdir()
    else:
        for path in inner.iterdir():
            path.write_text("words")
    data = f"folder:in/photos{rng.choice(['', '/', '/..//photos'])}"
    commands = (
        (*RUN, "--data", data, "--base", "1", "--step", "1", "--method", "lucir", *TINY[2:]),
        ("learn", "in/photos", "--model", "out/model", "--backbone", "none", "--dry-run"),
        ("predict", "in/photos", "--model", "in/none"),
        ("evaluate", "in/photos", "--model", "in/none"),
    )
    return Case("folder", how, rng.choice(commands))


def damaged_json(path: Path, rng: Random) -> str:
    """Change a JSON file: its tree, without or with its digest, or its bytes, or replace it."""
    way = rng.choice(["old", "old", "new", "bytes", "special"])
    if way == "special":
        path.unlink()
        return special_file(path, rng)
    if way == "bytes":
        content, what = changed_bytes(path.read_bytes(), rng)
        path.write_bytes(content)
        return what
    value = json.loads(path.read_text())
    value.pop(DIGEST, None)
    if way == "new":
        value[DIGEST] = digest(value)
    value, what = changed_tree(value, rng)
    path.write_text(json.dumps(value))
    return f"{way}: {what}"


def record_case(rng: Random) -> Case:
    what = damaged_json(keep_record("in/run"), rng)
    commands = (
        ("show", "in/run/record.json"),
        ("show", "in/run/record.json", "--format", "csv"),
        ("report", "in/run/record.json", "--out", "out/report.html"),
        ("analyze", "in/run", "--out", "out"),
    )
    return Case("record", what, rng.choice(commands))


def analysis_case(rng: Random) -> Case:
    path = Path("in/run/analysis-phase0.json")
    path.parent.mkdir()
    path.write_text(json.dumps(make_analysis([0.2, 0.3, 0.4, 0.5])))
    what = damaged_json(path, rng)
    return Case("analysis", what, ("analyze", "in/run/analysis-phase0.json", "--read", "--out", "out"))


def model_case(rng: Random) -> Case:
    model = Path("in/model")
    shutil.copytree(OLD_MODEL, model, ignore=shutil.ignore_patterns("expected.json", "tested.npy"))
    keep_photos("in/photos", 1, 1)
    files = sorted(path for path in model.rglob("*") if path.is_file() and path.suffix != ".md")
    path = model / "model.json" if rng.random() < 0.7 else rng.choice(files)
    if path.name == "model.json":
        what = damaged_json(path, rng)
    elif rng.random() < 0.3:
        path.unlink()
        what = special_file(path, rng)
    else:
        content, what = changed_bytes(path.read_bytes(), rng)
        path.write_bytes(content)
    commands = (
        ("info", "--model", "in/model"),
        ("predict", "in/photos", "--model", "in/model"),
        ("evaluate", "in/photos", "--model", "in/model"),
        ("undo", "--model", "in/model"),
        ("learn", "in/photos", "--model", "in/model", "--dry-run"),
    )
    return Case("model", f"{path.name}: {what}", rng.choice(commands))


KINDS: dict[str, Callable[[Random], Case]] = {
    "config": config_case,
    "yaml": yaml_case,
    "options": options_case,
    "image": image_case,
    "folder": folder_case,
    "record": record_case,
    "analysis": analysis_case,
    "model": model_case,
}
