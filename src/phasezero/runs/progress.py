"""Live progress of runs: a table of active runs, or lines without a terminal, and a line for each finished phase."""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from phasezero.config import RunConfig
from phasezero.data.stream import Phase
from phasezero.engine.callbacks import Callback, PhaseResult
from phasezero.engine.setup import Setup
from phasezero.methods import classifier_of
from phasezero.records.run import PhaseRecord
from phasezero.runs.work import Speed, Work
from phasezero.validation import shorten

EVERY = 30.0
"""The longest time without a line where there is no terminal."""
BAR, LEAST_BAR, LEAST_NAME, GAP = 20, 5, 12, 2
"""Widths of the table: the bar's largest and smallest, the least of a name, and between columns."""
LONGEST_HOW = len("from the store")


def clock_time(seconds: float | None) -> str:
    """Return 3:05 or 1:02:03; `-` if unknown."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def run_labels(configs: Sequence[RunConfig]) -> list[str]:
    """Return a label of each run: its method and strategies, and what else distinguishes it from the other runs."""
    names = dict.fromkeys(config.name for config in configs)
    alike: dict[str, list[list[str]]] = defaultdict(list)
    for name in names:
        head, *rest = _parts(name)
        alike[head].append(rest)
    labels = {}
    for name in names:
        head, *rest = _parts(name)
        others = alike[head]
        labels[name] = "/".join([head, *(part for part in rest if not all(part in other for other in others))])
    if len(set(labels.values())) < len(labels):  # a name that only lacks a part of another
        labels = {name: name for name in names}
    several = len({config.seed for config in configs}) > 1
    return [labels[config.name] + f" seed {config.seed}" * several for config in configs]


def _parts(name: str) -> list[str]:
    """Split a name into its method, data, protocol and settings; lists stay whole."""
    return re.split(r"[/,](?![^\[]*\])", name)


class Display:
    """Show the progress of runs: a table in a terminal, and lines at least every 30 s without one."""

    def __init__(
        self,
        console: Console,
        configs: Sequence[RunConfig],
        setups: Sequence[Setup],
        *,
        waiting: Sequence[int] | None = None,
        reusing: Sequence[int] = (),
        at_once: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Plan the display of these runs; `waiting` are those to train, `reusing` those that share a phase 0."""
        self.console, self.at_once, self.clock = console, at_once, clock
        self.labels, self.configs = run_labels(configs), configs
        shared = Speed()
        self.works = {
            place: Work(configs[place], setups[place], shared, reuses=place in reusing, clock=clock)
            for place in (range(len(configs)) if waiting is None else waiting)
        }
        self.active: dict[int, RunProgress] = {}
        self.began = self.last_line = clock()
        self.widest = 0
        self.on_terminal = console.is_terminal and not console.is_dumb_terminal
        self.live = Live(get_renderable=self.render, console=console, transient=True) if self.on_terminal else None
        self.ended = threading.Event()

    def __enter__(self) -> Self:
        if self.live is not None:
            self.live.start()
        elif not self.console.quiet:
            threading.Thread(target=self._keep_talking, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ended.set()
        if self.live is not None:
            self.live.stop()

    def run(self, place: int) -> RunProgress:
        """Return the callback of a run that starts."""
        self.active[place] = RunProgress(self, place)
        return self.active[place]

    def say(self, text: str) -> None:
        """Print a line above the table."""
        self.last_line = self.clock()
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _keep_talking(self) -> None:
        while not self.ended.wait(1.0):
            self.speak()

    def speak(self) -> None:
        """Print where the active runs are, if nothing was printed for a while."""
        if self.clock() - self.last_line < EVERY:
            return
        for run in [*self.active.values()]:
            phase, loss = f"phase {run.where}, " if run.where else "", f", loss {run.loss}" if run.loss else ""
            spent, left = clock_time(self.clock() - run.began), clock_time(run.work.seconds_left())
            self.say(f"{run.label}: {phase}{run.now}, {run.work.share:.0%}{loss}, {spent} elapsed, {left} left")
        if len(self.works) > 1:
            now, share, spent, left = self._all()
            self.say(f"all: {now}, {share:.0%}, {spent} elapsed, {left} left")

    def _all(self) -> tuple[str, float, str, str]:
        """Return the finished runs, the share of all work, and the time elapsed and left."""
        works = self.works.values()
        share = sum(work.share * work.total for work in works) / (sum(work.total for work in works) or 1.0)
        lefts = [work.seconds_left() for work in works if not work.ended]
        known = [left for left in lefts if left is not None]
        left = max(sum(known) / max(min(self.at_once, len(known)), 1), *known, 0.0) if known == lefts else None
        finished = sum(work.ended for work in works)
        return f"{finished}/{len(works)} runs", share, clock_time(self.clock() - self.began), clock_time(left)

    def render(self) -> RenderableType:
        """Draw the table of the active runs in the width of the terminal."""
        rows: list[tuple[str, str, str, float, str, str, str]] = []
        for run in [*self.active.values()]:
            spent, left = clock_time(self.clock() - run.began), clock_time(run.work.seconds_left())
            rows.append((run.label, run.where, run.now, run.work.share, run.loss, spent, left))
        if len(self.works) > 1:
            now, share, spent, left = self._all()
            rows.append(("all", "", now, share, "", spent, left))
        header = ("run", "phase", "now", "done", "loss", "elapsed", "left")
        widths = [max(len(name), *(len(str(row[place])) for row in rows), 0) for place, name in enumerate(header)]
        widths[0] = max(len(self.labels[place]) for place in self.works)
        widths[3], widths[4] = len("100%"), max(widths[4], len("0.000"))
        widths[2] = self.widest = max(widths[2], self.widest)  # columns stay where they are
        shown = list(range(len(header)))
        for place in (4, 5):  # a very narrow terminal
            if self._room(widths, shown) < LEAST_NAME:
                shown.remove(place)
        room = self._room(widths, shown)
        widths[0] = min(widths[0], max(room - LEAST_BAR - GAP, LEAST_NAME))
        bar = min(room - widths[0] - GAP, BAR)
        table = Table.grid(padding=(0, GAP, 0, 0), pad_edge=False)
        for place in shown:
            if place == 3 and bar >= LEAST_BAR:
                table.add_column(width=bar)
            justify = "left" if place in (0, 2) else "right"
            table.add_column(width=widths[place], no_wrap=True, justify=justify)  # type: ignore[arg-type]
        for row in (header, *rows):
            style = "dim" if row is header else ""
            cells: list[RenderableType] = []
            for place in shown:
                value = row[place]
                if place == 3 and bar >= LEAST_BAR:
                    cells.append(ProgressBar(1.0, value, bar) if isinstance(value, float) else "")
                text = f"{value:.0%}" if isinstance(value, float) else str(value)
                cells.append(Text(shorten(text, widths[place]), style))
            table.add_row(*cells)
        return table

    def _room(self, widths: Sequence[int], shown: Sequence[int]) -> int:
        """Return the width for names and bars."""
        return self.console.width - sum(widths[place] + GAP for place in shown[1:])


class RunProgress(Callback):
    """Follow a run for the display."""

    def __init__(self, display: Display, place: int) -> None:
        config = display.configs[place]
        self.display, self.place, self.work = display, place, display.works[place]
        self.label, self.classifier = display.labels[place], classifier_of(config.method.name)
        self.last, self.began = len(self.work.planned) - 1, display.clock()
        self.where, self.now, self.loss = "", "starting", ""

    def on_phase_reused(self, record: PhaseRecord) -> None:
        self._end_phase(record, "from the store")

    def on_run_start(self, phases: int, images: int) -> None:
        self.work.start()

    def on_resume(self, phase: Phase, stage: str, epoch: int) -> None:
        self.display.say(f"{self.label}: continues in phase {phase.index}/{self.last}, {stage}, after {epoch} epochs")

    def on_note(self, text: str) -> None:
        self.display.say(f"note: {self.label}: {text}")

    def on_batch_end(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        self._train(phase, stage, epoch, epochs, loss, images, ends=False)

    def on_epoch_end(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        self._train(phase, stage, epoch, epochs, loss, images, ends=True)

    def _train(
        self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int, *, ends: bool
    ) -> None:
        self.work.train(phase.index, images, ends=ends)
        self._show(phase, f"{stage} {epoch + 1}/{epochs}", f"{loss:.3f}")

    def on_activity(self, phase: Phase, what: str, images: int) -> None:
        self.work.evaluate(phase.index, images)
        self._show(phase, what, "")

    def _show(self, phase: Phase, now: str, loss: str) -> None:
        self.where, self.now, self.loss = f"{phase.index}/{self.last}", now, loss

    def on_phase_end(self, result: PhaseResult) -> None:
        self._end_phase(result.record, f"{result.record['seconds']['total']:.1f} s")

    def _end_phase(self, record: PhaseRecord, how: str) -> None:
        self.work.finish(record["phase"])
        self._print(record, how)
        self.where, self.now, self.loss = f"{record['phase'] + 1}/{self.last}", "starting", ""
        if self.work.ended:
            self.display.active.pop(self.place, None)

    def _print(self, record: PhaseRecord, how: str) -> None:
        """Print the accuracy that the final table shows: by the method's own classifier where it was measured."""
        accuracies = record["accuracy"]
        own = accuracies.get(self.classifier)
        accuracy = accuracies["head"] if own is None else own
        phase, classes = f"phase {record['phase']}/{self.last}", f"{record['seen_classes']} classes"
        facts = f"{phase:>{len('phase /') + 2 * len(str(self.last))}}  {classes:>11}  accuracy {accuracy:5.2f} %  {how}"
        widest = max(map(len, self.display.labels))
        room = (
            self.display.console.width - len(facts) + len(how) - LONGEST_HOW - GAP
            if self.display.on_terminal
            else widest
        )
        label = shorten(self.label, max(room, LEAST_NAME))
        self.display.say(f"{label:<{max(min(widest, room), 0)}}  {facts}")
