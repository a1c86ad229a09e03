"""The options that choose a model and what it remembers -> the model, and the library's options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

if TYPE_CHECKING:
    from sam2track.models import Model
    from sam2track.options import TrackingOptions

_Command = TypeVar("_Command", bound=Callable[..., Any])

_MODEL = (
    click.option("--model", default="nano", show_default=True, help="nano, or the folder of a bundle."),
    click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True),
    click.option("--threads", type=click.IntRange(0, 256), default=0,
                 help="CPU threads; 0 lets ONNX Runtime decide."),
)  # fmt: skip
_MEMORY = (
    click.option("--max-prompted", type=click.IntRange(0), default=4, show_default=True,
                 help="Prompted frames a frame attends to: the first and the nearest; 0 for all."),
    click.option("--memory-min-iou", type=click.FloatRange(0, 1),
                 help="Keep frames of lower predicted IoU out of memory."),
    click.option("--report-min-iou", type=click.FloatRange(0, 1), help="Empty masks where the predicted IoU is lower."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Which model is asked for, as `model_options` describes it."""

    model: str
    device: Literal["auto", "cpu", "cuda"]
    threads: int

    @classmethod
    def take_from(cls, given: dict[str, Any]) -> ModelRequest:
        """Takes its own out of all that a command was given."""
        return cls(**{field.name: given.pop(field.name) for field in fields(cls)})

    def load(self) -> Model:
        """Opens it."""
        from sam2track.models import load

        return load(self.model, device=self.device, num_threads=self.threads)


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """What is remembered and reported, as `memory_options` describes it."""

    max_prompted: int
    memory_min_iou: float | None
    report_min_iou: float | None

    @classmethod
    def take_from(cls, given: dict[str, Any]) -> MemoryRequest:
        """Takes its own out of all that a command was given."""
        return cls(**{field.name: given.pop(field.name) for field in fields(cls)})

    def options(self) -> TrackingOptions:
        """The same for the library."""
        from sam2track.options import TrackingOptions

        return TrackingOptions(
            max_conditioning_frames=self.max_prompted or None,
            memory_min_iou=self.memory_min_iou,
            report_min_iou=self.report_min_iou,
        )


MODEL_FIELDS, MEMORY_FIELDS = (tuple(field.name for field in fields(each)) for each in (ModelRequest, MemoryRequest))


def model_options(command: _Command) -> _Command:
    """Adds the model's options to a command; `ModelRequest` has a field for each."""
    return _added(command, _MODEL)


def memory_options(command: _Command) -> _Command:
    """Adds the memory's options to a command; `MemoryRequest` has a field for each."""
    return _added(command, _MEMORY)


def _added(command: _Command, options: tuple[Callable[[_Command], _Command], ...]) -> _Command:
    for option in reversed(options):
        command = option(command)
    return command
