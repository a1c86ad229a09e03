"""`--click`, `--not`, `--box`, `--mask` and `--prompts` -> prompts, one an object and frame."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from sam2track.errors import PromptError

if TYPE_CHECKING:
    from sam2track.prompt_file import PromptEntry

    _CoordinatesType = click.ParamType[tuple[str | None, tuple[float, ...]]]
    _MomentType = click.ParamType["Moment"]
    _RateType = click.ParamType[Fraction]
else:
    _CoordinatesType = _MomentType = _RateType = click.ParamType  # not generic in older versions

_LONGEST_ID = 100  # characters


@dataclass(frozen=True, slots=True)
class Moment:
    """A frame, by its index, by its time in seconds, or by its file's name in an image sequence."""

    frame_idx: int | None = None
    time_s: float | None = None
    file: str | None = None


@dataclass(slots=True)
class _ObjectPrompt:
    """What the options say of one object."""

    points: list[tuple[float, float]] = field(default_factory=list)
    labels: list[Literal[0, 1]] = field(default_factory=list)
    box: tuple[float, float, float, float] | None = None
    mask: str | None = None


class MomentType(_MomentType):
    """`40` is a frame; `1.6s`, `0:01.6` and `1:02:03` are times; `shot.1040.png` is the frame of this picture."""

    name = "FRAME|TIME|FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Moment:
        """Text to a moment."""
        text = str(value)
        if text.isascii() and text.isdecimal():
            return Moment(frame_idx=int(text))
        from sam2track.image_files import PICTURES

        if (path := Path(text)).suffix.lower() in PICTURES:
            return Moment(file=path.name)
        hours, minutes, seconds = ([0.0, 0.0, *_numbers(text.removesuffix("s").split(":"))])[-3:]
        if (text.endswith("s") == (":" in text)) or text.count(":") > 2 or not 0 <= seconds < float("inf"):
            self.fail(f"got {text!r}; expected a frame such as 40, or a time such as 1.6s or 0:01.6", param, ctx)
        return Moment(time_s=3600 * hours + 60 * minutes + seconds)


class RateType(_RateType):
    """`24`, `23.976` or `30000/1001`."""

    name = "RATE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Fraction:
        """Text to pictures a second."""
        from sam2track.open_source import parse_rate

        try:
            return parse_rate(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _numbers(parts: list[str]) -> list[float]:
    """Not a number where it is not one."""
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        return [float("nan")]
    return numbers if all(number >= 0 for number in numbers) else [float("nan")]


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
    masks: tuple[str, ...],
    *,
    default_id: str,
    moment: Moment | None,
) -> list[PromptEntry]:
    """Groups the options by object, in the order of their first mention.

    Raises:
        PromptError: An object has two boxes or two masks, a mask and anything else, or an id that cannot be one.
    """
    from sam2track.prompt_file import PromptEntry

    prompts: dict[int | str, _ObjectPrompt] = {}

    def of(object_id: str | None) -> _ObjectPrompt:
        return prompts.setdefault(parse_object_id(default_id if object_id is None else object_id), _ObjectPrompt())

    for object_id, box in boxes:
        if of(object_id).box is not None:
            raise PromptError(_twice("boxes", object_id or default_id))
        of(object_id).box = box
    for text in masks:
        object_id, path = _mask_of(text)
        if of(object_id).mask is not None:
            raise PromptError(_twice("masks", object_id or default_id))
        of(object_id).mask = path
    labelled: tuple[tuple[Literal[0, 1], Any], ...] = ((1, clicks), (0, nots))
    for label, points in labelled:
        for object_id, point in points:
            of(object_id).points.append(point)
            of(object_id).labels.append(label)
    return [_entry(PromptEntry, wanted, prompt, moment or Moment()) for wanted, prompt in prompts.items()]


def _entry(make: type[PromptEntry], object_id: int | str, prompt: _ObjectPrompt, moment: Moment) -> PromptEntry:
    if prompt.mask is not None and (prompt.points or prompt.box is not None):
        raise PromptError(
            f"got a mask together with points or a box for object {object_id}; a mask is the answer itself"
        )
    for name, rows in (("points", prompt.points), ("box", [prompt.box or ()])):
        if any(not abs(number) < float("inf") for row in rows for number in row):
            raise PromptError(f"got a number that is not finite in {name}; expected pixels of the frame")
    return make(
        frame_idx=moment.frame_idx,
        time_s=moment.time_s,
        object_id=object_id,
        points=tuple(prompt.points),
        labels=tuple(prompt.labels) or None,
        box=prompt.box,
        mask=prompt.mask,
    )


def _mask_of(text: str) -> tuple[str | None, str]:
    """A file, or an object's id, a colon and a file."""
    object_id, colon, path = text.partition(":")
    return (object_id, path) if colon and path and not os.path.lexists(text) else (None, text)


def _twice(what: str, object_id: str) -> str:
    return f"got two {what} for object {object_id}; give one, or put another object's id before it"
