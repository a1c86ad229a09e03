"""`--click`, `--not` and `--box` -> prompts, one an object."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from sam2track.errors import PromptError

_LONGEST_ID = 100  # characters

if TYPE_CHECKING:
    _CoordinatesType = click.ParamType[tuple[str | None, tuple[float, ...]]]
else:
    _CoordinatesType = click.ParamType  # not generic in older versions


@dataclass(slots=True)
class ObjectPrompt:
    """What the command line says of one object, in pixels of the displayed frame."""

    points: list[tuple[float, float]] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    box: tuple[float, float, float, float] | None = None

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of `Tracker.add_prompt`."""
        return {"points": self.points or None, "labels": self.labels or None, "box": self.box}


class Coordinates(_CoordinatesType):
    """`x,y` or `x0,y0,x1,y1`, with an object's id before a colon if need be: `2:300,80`."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.name = "X,Y" if count == 2 else "X0,Y0,X1,Y1"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str | None, tuple[float, ...]]:
        """(object id or None, numbers)."""
        object_id, colon, numbers = str(value).rpartition(":")
        try:
            parsed = tuple(float(number) for number in numbers.split(","))
        except ValueError:
            parsed = ()
        if len(parsed) != self.count or (colon and not object_id):
            self.fail(f"got {value!r}; expected {self.name} in pixels, such as {self._example()}", param, ctx)
        return (object_id if colon else None), parsed

    def _example(self) -> str:
        return "412,230, or 2:412,230 for object 2" if self.count == 2 else "100,80,300,400"


def parse_object_id(text: str) -> int | str:
    """An id of digits is a number, so that it equals the library's default ids.

    Raises:
        PromptError: It is empty, far too long, or nothing that a terminal and a JSON file can show.
    """
    if not text.isprintable() or not 0 < len(text) <= _LONGEST_ID:
        raise PromptError(f"got the object id {text!r:.40}; expected 1 to {_LONGEST_ID} printable characters")
    return int(text) if text.isascii() and text.isdecimal() else text


def collect_prompts(
    clicks: tuple[tuple[str | None, tuple[float, float]], ...],
    nots: tuple[tuple[str | None, tuple[float, float]], ...],
    boxes: tuple[tuple[str | None, tuple[float, float, float, float]], ...],
    default_id: str,
) -> dict[int | str, ObjectPrompt]:
    """Groups the options by object, in the order of their first mention.

    Raises:
        PromptError: An object has two boxes, or an id that cannot be one.
    """
    prompts: dict[int | str, ObjectPrompt] = {}

    def of(object_id: str | None) -> ObjectPrompt:
        return prompts.setdefault(parse_object_id(default_id if object_id is None else object_id), ObjectPrompt())

    for object_id, box in boxes:
        if of(object_id).box is not None:
            wanted = object_id or default_id
            raise PromptError(f"got two boxes for object {wanted}; give one, or put another object's id before it")
        of(object_id).box = box
    for label, points in ((1, clicks), (0, nots)):
        for object_id, point in points:
            of(object_id).points.append(point)
            of(object_id).labels.append(label)
    return prompts
