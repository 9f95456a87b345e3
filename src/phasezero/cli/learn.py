"""`phasezero learn`: make a model of a folder of photos, or teach it more classes."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phasezero.cli.options import Device, Model, Photos, Settings, counted, load_torch
from phasezero.cli.photos import FEW, check_readable
from phasezero.errors import UserError
from phasezero.steps import Steps, in_lines
from phasezero.validation import printable, user_path, whole_number

if TYPE_CHECKING:
    from phasezero.learner import Learner
    from phasezero.learner.comparison import Comparison

MOST_NAMED = 8  # classes in a line of the report


def learn(
    photos: Photos,
    model: Model,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="Pretrained network: a name, a file of weights, hf:OWNER/REPO, or none (default: efficientnet-lite0)."
        ),
    ] = None,
    method: Annotated[str | None, typer.Option(help="Method; see phasezero list (default: ridge).")] = None,
    initial: Annotated[list[str] | None, typer.Option(help="Phase-0 strategy: cwd:0.5, ... Repeatable.")] = None,
    memory: Annotated[str | None, typer.Option(help="Photos to keep in the model: per_class:20 or total:2000.")] = None,
    keep_images: Annotated[
        str | None, typer.Option(metavar="N|no", help="The same as --memory per_class:N, or none.")
    ] = None,
    settings: Settings = None,
    device: Device = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what is new, and stop.")] = False,
) -> None:
    """Learn the classes of a folder of photos. A model that exists learns what is new."""
    load_torch()
    from phasezero.config import parse_assignments
    from phasezero.learner.folder import check_folder
    from phasezero.learner.labelled import labelled

    started = time.perf_counter()
    given: dict[str, Any] = {
        "backbone": backbone,
        "method": method,
        "initial": tuple(initial) if initial else None,
        "memory": parse_memory(memory, keep_images),
        "settings": parse_assignments(settings) if settings else None,
    }
    check_apart(photos, model)
    check_folder(model)
    data = labelled(photos)
    pairs = list(zip(data.items, data.names, strict=True))
    with Steps() as steps:
        check_readable(data.items, steps)
        if dry_run:
            learner = open_model(model, given, device, steps)
            report(learner, learner.compare(pairs), photos)
            print("dry run: nothing was learned")
            return
        with changing(model):
            learner = open_model(model, given, device, steps)
            found = learner.compare(pairs)
            known = report(learner, found, photos)
            if not found.new and not known:
                print(f"nothing new: {model} stays as it is")
                return
            teach(learner, found.new, known)
            learner.save(model)
        summarise(learner, model, bool(found.new), time.perf_counter() - started)


def parse_memory(memory: str | None, keep_images: str | None) -> str | None:
    """Return the memory rule of both options, or None for the method's own."""
    if keep_images is None:
        return memory
    if memory is not None:
        raise UserError("--keep-images is a short form of --memory; give only one of the two")
    count = 0 if keep_images == "no" else whole_number(keep_images)
    if count is None:
        raise UserError(f"--keep-images {keep_images!r}: write a number of photos per class, or no")
    return f"per_class:{count}"


def check_apart(photos: Path, model: Path) -> None:
    """Raise UserError if the model would be taken for a class, or the photos for files of the model."""
    inner, outer = model.resolve(), photos.resolve()
    if inner.is_relative_to(outer) or outer.is_relative_to(inner):
        raise UserError(f"--model {model}: a model and its photos must be in separate folders")


@contextlib.contextmanager
def changing(model: Path) -> Iterator[None]:
    """Lock the model's folder; after an error remove folders that were made for it and stayed empty."""
    from phasezero.learner.folder import LOCK, locked

    made = [path for path in [model, *model.parents] if not path.exists()]
    try:
        with locked(model, say=lambda message: print(message, file=sys.stderr)):
            yield
    except BaseException:
        with contextlib.suppress(OSError):
            if made and [path.name for path in model.iterdir()] == [LOCK]:
                (model / LOCK).unlink()
                for path in made:
                    path.rmdir()
        raise


def open_model(model: Path, given: Mapping[str, Any], device: str, steps: Steps) -> Learner:
    """Return the model of a folder, or a new one if there is none; given options must fit an existing model."""
    from phasezero.learner import Learner
    from phasezero.learner.folder import check_folder

    chosen = {name: value for name, value in given.items() if value is not None}
    if not check_folder(model):
        return Learner(**chosen, device=device, progress=steps)
    learner = Learner.load(model, device=device)
    learner.progress = steps
    check_same(learner, chosen, model)
    return learner


def check_same(learner: Learner, given: Mapping[str, Any], model: Path) -> None:
    """Raise UserError for an option that would change an existing model."""
    from phasezero.memory import MemoryRule

    own = learner.get_params() | {"memory": learner.config_.protocol.memory, "initial": tuple(learner.initial)}
    for name, value in given.items():
        before = own[name]
        if name == "settings":
            settings = dict(before or {})
            differing = [key for key in value if settings.get(key) != value[key]]
            if not differing:
                continue
            name, value, before = (
                "set",
                f"{differing[0]}={value[differing[0]]}",
                settings.get(differing[0], "the usual"),
            )
        elif name == "memory":
            if MemoryRule.parse(value) == MemoryRule.parse(before):
                continue
        elif value == before or (name == "backbone" and _same_file(value, before)):
            continue
        words = [", ".join(one) or "none" if isinstance(one, tuple) else one for one in (value, before)]
        raise UserError(
            f"--{name} {words[0]}: {model} was made with {words[1]}, which cannot be changed later; leave the option "
            f"out, or choose another --model"
        )


def _same_file(one: str, other: str) -> bool:
    paths = [user_path(text) for text in (one, other)]
    return all(path.is_file() for path in paths) and paths[0].samefile(paths[1])


def report(learner: Learner, found: Comparison, photos: Path) -> dict[Any, Any]:
    """Print what is new, raise UserError for contradictions, and return the new photos of known classes to learn."""

    def line(title: str, by_class: Mapping[Any, Sequence[Any]], rest: str = "") -> None:
        counts = [printable(f"{name} {len(own)}") for name, own in by_class.items()]
        named = ", ".join(counts[:MOST_NAMED]) + (", ..." if len(counts) > MOST_NAMED else "")
        total = counted(sum(map(len, by_class.values())), "photo")
        text = f"  {title:<14}{counted(len(counts), 'class')}, {total}: {named}{rest}"
        print(in_lines(text, sys.stdout, " " * 16))

    print(f"{photos}:")
    if found.new:
        line("new", found.new)
    more, exact = found.more, not found.more or learner.can_add_examples
    if more:
        line("more photos", more, "" if exact else "; skipped")
    if found.known:
        line("known already", found.known)
    for name, before in found.renamed.items():
        print(printable(f"  {'renamed':<14}all photos of {name!r} were learned as {before!r}; skipped"))
    if found.duplicates:
        names = ", ".join(map(str, found.duplicates[:FEW])) + (", ..." if len(found.duplicates) > FEW else "")
        print(printable(f"  {'repeated':<14}{counted(len(found.duplicates), 'photo')}, used once: {names}"))
    if not exact:
        print(f"  method {learner.method} adds no photos to known classes; ncm, slda, fecam and ridge do")
    check_conflicts(found)
    return {} if not exact else dict(more)


def check_conflicts(found: Comparison) -> None:
    """Raise UserError for photos that are in two classes, or were learned as another class."""
    if not found.conflicts:
        return
    told = [
        f"{one.item!s} is given as {one.given!r} and {'was learned' if one.learned else 'also given'} as {one.other!r}"
        for one in found.conflicts[:FEW]
    ]
    more = f"; and {len(found.conflicts) - FEW} more" if len(found.conflicts) > FEW else ""
    hint = "; a class keeps the name that it was learned by" if any(one.learned for one in found.conflicts) else ""
    raise UserError(
        printable(f"photos in two classes: {'; '.join(told)}{more}; remove each from one of its folders{hint}")
    )


def teach(learner: Learner, new: Mapping[Any, Sequence[Any]], more: Mapping[Any, Sequence[Any]]) -> None:
    """Learn new classes, and add photos to known classes."""
    fitted = hasattr(learner, "classes_")
    for by_class, learn_them in ((new, learner.add_classes if fitted else learner.fit), (more, learner.add_examples)):
        pairs = [(item, name) for name, own in by_class.items() for item in own]
        if pairs:
            learn_them(pairs)


def summarise(learner: Learner, model: Path, learned: bool, seconds: float) -> None:
    """Print what the model knows now, how accurate it is, and what to do next."""
    from phasezero.learner.folder import read_model

    facts = read_model(model)
    images, kept = (
        sum(count) for count in zip(*((e["images"], len(e["exemplars"])) for e in facts["classes"]), strict=True)
    )
    print(f"{model}: {counted(len(facts['classes']), 'class')}, {counted(images, 'photo')} learned, {seconds:.1f} s")
    phase: dict[str, Any] = next((entry for entry in reversed(learner.history_) if "phase" in entry), {})
    if not learned:
        print("accuracy: not measured, because all added photos were learned")
    elif phase.get("held_out_accuracy") is None:
        print("accuracy: not measured, because no class has two photos, of which one would be held out")
    else:
        whose = " of the new classes, among all classes" if phase["phase"] else ""
        held_out = counted(phase["held_out"], "held-out photo")
        print(f"accuracy: {100 * phase['held_out_accuracy']:.1f} % on {held_out}{whose}")
    print(f"kept: {counted(kept, 'photo') if kept else 'no photos'}, and a hash of each photo")
    name = shlex.quote(str(model))
    undo = f"    (to take this back: phasezero undo --model {name})" if facts["version"] > 1 else ""
    print(f"next: phasezero predict --model {name} PHOTO...{undo}")
