"""Prompts for many frames and objects, as values and as a JSON file; and masks from pictures."""

from __future__ import annotations

import codecs
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from sam2track.errors import PromptError
from sam2track.types import BoolArray

LONGEST_ID = 100  # characters
_SCHEMA_TITLE = "sam2track prompts, version 1"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _no_text(value: object) -> object:
    """A number is a number, not its digits."""
    if isinstance(value, (str, bool)):
        raise ValueError(f"got {value!r}; expected a number")
    return value


def _object_id(value: object) -> object:
    """NumPy's integers are integers; a name can be shown in a line."""
    if isinstance(value, np.integer):
        return int(value)
    is_id = isinstance(value, int) and not isinstance(value, bool)
    if not is_id and not (isinstance(value, str) and value.isprintable() and 0 < len(value) <= LONGEST_ID):
        raise ValueError(f"got {value!r:.60}; expected a whole number, or 1 to {LONGEST_ID} printable characters")
    return value


_Number = Annotated[FiniteFloat, BeforeValidator(_no_text)]
_NameOrNumber = Annotated[int | Annotated[str, Field(min_length=1, max_length=LONGEST_ID)], BeforeValidator(_object_id)]


class PromptEntry(_Part):
    """What is said of one object on one frame, in pixels of the displayed frame.

    Attributes:
        frame_idx: The frame, by its index in display order from 0.
        time_s: Or by its time: seconds from the first frame. One of the two, or neither for the first frame.
        object_id: The object: a whole number or a short text. (`Clip.add_prompt` takes any hashable id.)
        points: (x, y) each.
        labels: One a point: 1 inside the object, 0 outside; all 1 by default.
        box: (x0, y0, x1, y1).
        mask: A picture of the mask: bright (or opaque) is the object. A path, in a file relative to it.
    """

    frame_idx: Annotated[int, Field(ge=0, strict=True)] | None = None
    time_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    object_id: _NameOrNumber = 1
    points: tuple[tuple[_Number, _Number], ...] = ()
    labels: tuple[Literal[0, 1], ...] | None = None
    box: tuple[_Number, _Number, _Number, _Number] | None = None
    mask: str | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> PromptEntry:
        if self.frame_idx is not None and self.time_s is not None:
            raise ValueError("got frame_idx and time_s; expected one of them")
        if not self.points and self.box is None and self.mask is None:
            raise ValueError("got no points, no box and no mask; expected at least one of them")
        if self.mask is not None and (self.points or self.box is not None):
            raise ValueError("got a mask together with points or a box; a mask is the answer itself")
        if self.labels is not None and len(self.labels) != len(self.points):
            raise ValueError(f"got {len(self.labels)} labels for {len(self.points)} points; expected one each")
        return self

    def arguments(self) -> dict[str, Any]:
        """The prompt as keyword arguments of `add_prompt`, without frame and object."""
        if self.mask is not None:
            return {"mask": read_mask(self.mask)}
        return {"points": self.points or None, "labels": self.labels, "box": self.box}


class PromptFile(_Part):
    """A file of prompts. They are given in order; several for one object and frame add up."""

    schema_version: Literal[1] = 1
    prompts: Annotated[tuple[PromptEntry, ...], Field(min_length=1)]


def read_prompts(path: str | os.PathLike[str]) -> tuple[PromptEntry, ...]:
    """Reads a JSON file of prompts; paths of masks are taken relative to it.

    Raises:
        PromptError: It cannot be read, or an entry of it cannot be used; says which one.
    """
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise PromptError(f"cannot read the prompts {path}: {error.strerror or error}; check the path") from error
    try:
        prompts = PromptFile.model_validate_json(text.removeprefix(codecs.BOM_UTF8)).prompts
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        got = repr(first["input"])
        shown = "" if len(got) > 60 or first["type"] in ("missing", "value_error") else f" (got {got})"
        raise PromptError(f"{path}: {place}: {first['msg'].removeprefix('Value error, ')}{shown}") from error
    folder = Path(path).parent
    return tuple(
        entry if entry.mask is None else entry.model_copy(update={"mask": str(folder / entry.mask)})
        for entry in prompts
    )


def read_mask(path: str | os.PathLike[str]) -> BoolArray:
    """Reads a picture of a mask: PNG, or another format that OpenCV reads.

    Returns:
        (height, width) bool: where the picture is opaque, if parts of it are transparent; else where its
        brightest channel is above half, or 1 in a picture of 0 and 1.

    Raises:
        PromptError: It cannot be read as a picture.
    """
    import cv2

    try:
        data = np.fromfile(path, np.uint8)
    except OSError as error:
        raise PromptError(f"cannot read the mask {path}: {error.strerror or error}; check the path") from error
    picture = cv2.imdecode(data, cv2.IMREAD_UNCHANGED) if len(data) else None
    if picture is None:
        raise PromptError(f"cannot read the mask {path} as a picture; expected a PNG, white where the object is")
    half = 0.5 if picture.dtype.kind == "f" or picture.max() <= 1 else float(np.iinfo(picture.dtype.name).max // 2)
    levels: BoolArray = np.asarray(picture > half)
    if not levels.any() and picture.any():
        raise PromptError(
            f"the mask {path} is no brighter than {picture.max()} anywhere; expected 255 (or 1) where the object is"
        )
    if levels.ndim == 3:
        is_transparent = levels.shape[2] == 4 and not levels[:, :, 3].all()
        levels = np.asarray(levels[:, :, 3] if is_transparent else levels[:, :, :3].any(axis=2))
    return levels


def prompts_schema() -> dict[str, Any]:
    """The JSON schema of `PromptFile`, as published in docs/."""
    schema = PromptFile.model_json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": _SCHEMA_TITLE}
