"""A training step, run eagerly or captured once as a CUDA graph and replayed.

The whole step is a function of a batch plan: prepare the batch, forward, teacher, loss, backward, optimiser. A captured
step costs one launch and never waits for the host. Each batch size has its own graph (the last batch of an epoch is
smaller). The learning rate is a tensor, so it can change without a new capture.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from phasezero.data.loader import BatchPlan, ImageSource
from phasezero.engine.streams import CAPTURE_LOCK, current_streams
from phasezero.initial import Strategies
from phasezero.methods.stage import Batch, Stage
from phasezero.nets import Features, IncrementalModel, Output


@contextlib.contextmanager
def algorithm_search(wanted: bool) -> Iterator[None]:
    """Turn cuDNN's search for algorithms on or off; it takes a second or two for each new size."""
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark, cudnn.benchmark_limit
    cudnn.benchmark, cudnn.benchmark_limit = wanted, 0
    try:
        yield
    finally:
        cudnn.benchmark, cudnn.benchmark_limit = before


class LossScale:
    """Dynamic loss scaling for float16, in which small gradients would otherwise vanish.

    Unlike torch.amp.GradScaler it can be captured: the optimiser's kernel reads `overflow` without the host.
    """

    def __init__(self, device: torch.device) -> None:
        self.scale = torch.tensor(2.0**13, device=device)
        self.calm_steps = torch.zeros((), device=device, dtype=torch.int32)
        self.overflow = torch.zeros((), device=device)

    def unscale(self, gradients: list[Tensor]) -> None:
        self.overflow.zero_()
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, self.overflow, self.scale.reciprocal())

    def update(self) -> None:
        """Update the scale as GradScaler does: halve it after an overflow, double it after 2,000 steps without."""
        torch._amp_update_scale_(self.scale, self.calm_steps, self.overflow, 2.0, 0.5, 2000)


class StepProgram:
    """The computation of a step. It sums losses on the device, to be read once per epoch."""

    def __init__(
        self,
        model: IncrementalModel,
        teacher: IncrementalModel | None,
        stage: Stage,
        source: ImageSource,
        device: torch.device,
        strategies: Strategies | None = None,
    ) -> None:
        self.model, self.teacher, self.loss, self.source = model, teacher, stage.loss, source
        self.strategies = strategies
        self.clamp, self.device = stage.clamp_gradients, device
        self.teacher_stream: torch.cuda.Stream | None = None
        self.compiled_loss: Callable[..., Tensor] | None = None
        self.compiled_size = self.searched_size = 0
        self.capture_seconds = 0.0
        self.nothing = torch.empty(0, 0, device=device)
        self.learning_rate = torch.tensor(stage.schedule.lr, device=device)
        self.backbone_rate = self.learning_rate * model.backbone_lr
        momentum, decay = stage.schedule.momentum, stage.schedule.weight_decay
        inside = set(map(id, model.backbone.parameters())) if model.backbone_lr != 1 else set()
        slow, rest = ([one for one in stage.parameters if (id(one) in inside) == side] for side in (True, False))
        groups: list[Any] = [{"params": slow, "lr": self.backbone_rate}, {"params": rest}]
        groups = [group for group in groups if group["params"]]
        self.optimizer = torch.optim.SGD(groups, self.learning_rate, momentum, weight_decay=decay, fused=True)
        for parameter in stage.parameters:
            # Zero momentum gives the same first step as no momentum, without a first-step branch in the capture.
            self.optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        self.summed, self.gradient_sums = list(stage.accumulate), list[Tensor]()
        for parameter in self.summed:
            # Stored on the parameter, so that another program with the same gradients continues this sum.
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            self.gradient_sums.append(parameter.grad)
        accumulated = set(map(id, self.summed))
        self.fresh = [parameter for parameter in stage.parameters if id(parameter) not in accumulated]
        self.loss_sum = torch.zeros((), device=device, dtype=torch.float64)
        self.scaling = LossScale(device) if model.half_precision == torch.float16 else None
        if self.scaling is not None:
            self.optimizer.found_inf = self.scaling.overflow  # type: ignore[attr-defined]

    def set_learning_rate(self, rate: float) -> None:
        self.learning_rate.fill_(rate)
        self.backbone_rate.fill_(rate * self.model.backbone_lr)

    def compute_loss(
        self, images: Tensor, labels: Tensor, found: Features, teacher: Output | None, numbers: Tensor
    ) -> Tensor:
        """Return the loss, from the backbone's features on."""
        return self.loss(Batch(images, labels, self.model.classify(found), teacher, numbers))

    def prepare(self, plan: BatchPlan) -> tuple[Tensor, Tensor, Tensor]:
        """Return the images, the labels and the random numbers of strategies."""
        if self.strategies is None:
            return *self.source.prepare(plan), self.nothing
        *own, numbers = plan
        if not self.strategies.changes_images:
            return *self.source.prepare(tuple(own)), numbers
        pixels, labels = self.source.views(tuple(own))
        changed = self.strategies.transform(pixels.permute(0, 3, 1, 2).float(), numbers).permute(0, 2, 3, 1)
        # A copy with the strides of other batches, for which the backbone is compiled.
        return self.source.normalise(changed.clone(memory_format=torch.contiguous_format)), labels, numbers

    def run(self, plan: BatchPlan) -> None:
        """Train one step."""
        images, labels, numbers = self.prepare(plan)
        stream: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if self.teacher_stream is not None:
            self.teacher_stream.wait_stream(torch.cuda.current_stream())
            stream = torch.cuda.stream(self.teacher_stream)
        with torch.no_grad(), stream:
            teacher_output = self.teacher(images) if self.teacher is not None else None
        found = self.model.extract_features(images)
        if self.teacher_stream is not None:
            torch.cuda.current_stream().wait_stream(self.teacher_stream)
        compiled_loss = self.compiled_loss if len(labels) == self.compiled_size else None
        loss = (compiled_loss or self.compute_loss)(images, labels, found, teacher_output, numbers)
        for parameter in (*self.fresh, *self.summed):
            parameter.grad = None
        (loss if self.scaling is None else loss * self.scaling.scale).backward()
        gradients = [parameter.grad for parameter in self.fresh if parameter.grad is not None]
        if self.scaling is not None:
            self.scaling.unscale(gradients + [p.grad for p in self.summed if p.grad is not None])
        self._add_up()
        if self.clamp is not None:
            torch._foreach_clamp_min_(gradients, -self.clamp)
            torch._foreach_clamp_max_(gradients, self.clamp)
        self.optimizer.step()
        if self.scaling is not None:
            self.scaling.update()
        self.loss_sum += loss.detach() * len(labels)

    def _add_up(self) -> None:
        """Sum gradients that are never reset: the optimiser sees their sum over all steps without overflow."""
        for parameter, total in zip(self.summed, self.gradient_sums, strict=True):
            gradient = parameter.grad
            if gradient is not None:
                if self.scaling is not None:
                    gradient = torch.where(self.scaling.overflow > 0, 0.0, gradient)
                total += gradient
            parameter.grad = total

    def state(self) -> list[Tensor]:
        """Return every tensor that a step changes."""
        return [*self.model.parameters(), *self.model.buffers(), *self.own_state()]

    def own_state(self) -> list[Tensor]:
        """Return the tensors besides the model that a step changes."""
        momentum = [entry["momentum_buffer"] for entry in self.optimizer.state.values()]
        scaling = [self.scaling.scale, self.scaling.calm_steps] if self.scaling is not None else []
        strategies = self.strategies.parameters if self.strategies is not None else []
        return [*strategies, *momentum, *self.gradient_sums, *scaling, self.loss_sum]


class CapturedStep:
    """Replay a program as CUDA graphs, one for each batch shape."""

    WARM_UP = 3  # runs before a capture: cuDNN picks its algorithms, libraries allocate their workspaces

    def __init__(self, program: StepProgram) -> None:
        self.program = program
        if program.teacher is not None:
            # Neither network fills the device, so they share it. (Only in a graph: otherwise the teacher's
            # output would be freed on the wrong stream.)
            program.teacher_stream = current_streams(program.device).teacher
        self.graphs: dict[tuple[torch.Size, ...], tuple[torch.cuda.CUDAGraph, BatchPlan]] = {}

    def __call__(self, plan: BatchPlan) -> None:
        shape = tuple(part.shape for part in plan)
        if shape not in self.graphs:
            self.graphs[shape] = self._capture(plan)
        graph, inputs = self.graphs[shape]
        for own, given in zip(inputs, plan, strict=True):
            own.copy_(given)
        graph.replay()

    def _capture(self, plan: BatchPlan) -> tuple[torch.cuda.CUDAGraph, BatchPlan]:
        with CAPTURE_LOCK, algorithm_search(plan[-1].shape[-1] == self.program.searched_size):
            clock = time.perf_counter()
            inputs, stream = tuple(part.clone() for part in plan), current_streams(self.program.device).capture
            self._warm_up(inputs, stream)
            graph = torch.cuda.CUDAGraph()
            # Thread-local mode: other threads may use their own streams during this capture.
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                self.program.run(inputs)
            self.program.capture_seconds += time.perf_counter() - clock
        return graph, inputs

    def _warm_up(self, inputs: BatchPlan, stream: torch.cuda.Stream) -> None:
        """Run the program and restore what it changed, so that a captured run equals an eager run."""
        before = [tensor.detach().clone() for tensor in self.program.state()]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(self.WARM_UP):
                self.program.run(inputs)
        torch.cuda.current_stream().wait_stream(stream)
        with torch.no_grad():
            for tensor, saved in zip(self.program.state(), before, strict=True):
                tensor.copy_(saved)
