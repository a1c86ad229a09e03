"""Many clips with their prompts, as values and as a JSON file."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sam2track.clip import Direction
from sam2track.errors import BatchError, PromptError
from sam2track.image_files import PICTURES
from sam2track.matte import MatteOptions
from sam2track.open_source import Rate, StreamNumber
from sam2track.outputs.formats import FORMATS
from sam2track.prompt_file import PromptEntry, masks_beside, read_prompts

_SCHEMA_ID = "sam2track batch, version 1"
_LONGEST_SHOWN = 60
_Text = Annotated[str, Field(min_length=1)]
_Index = Annotated[int, Field(ge=0, strict=True)]
_Level = Annotated[int, Field(ge=0, le=255)]
_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BatchEntry(_Part):
    """One clip of a batch. All paths are relative to the file.

    Attributes:
        video: The video; or pictures: a folder, the first one, or a pattern such as shot.%04d.png.
        stream: Which of a file's video streams.
        rate: Pictures a second, such as "30000/1001"; 24 by default.
        prompts: As in a file of prompts.
        prompt_file: Or the path of such a file.
        output: The output; by default the video's name with another ending, beside the file.
        format: As for `--format`.
        matte: What is done to masks before they are written.
        background: Of a cut-out, RGB.
        tolerance: Of outlines, in pixels.
        object_files: An output for each object.
        direction: From the prompts: "forward", "backward" or "both".
        start: In point: the first frame to track.
        start_s: Or its time, in seconds from the first frame of the video.
        stop: Out point: the frame to stop before.
        stop_s: Or its time.
    """

    video: _Text
    stream: StreamNumber = 0
    rate: Rate | None = None
    prompts: Annotated[tuple[PromptEntry, ...], Field(min_length=1)] | None = None
    prompt_file: _Text | None = None
    output: _Text | None = None
    format: str = "overlay"
    matte: MatteOptions = MatteOptions()
    background: tuple[_Level, _Level, _Level] | None = None
    tolerance: Annotated[float, Field(ge=0, le=1000)] | None = None
    object_files: bool = False
    direction: Direction = "forward"
    start: _Index | None = None
    start_s: _Seconds | None = None
    stop: _Index | None = None
    stop_s: _Seconds | None = None

    @model_validator(mode="after")
    def _is_possible(self) -> BatchEntry:
        if (self.prompts is None) == (self.prompt_file is None):
            raise ValueError("got both or neither of prompts and prompt_file; expected one of them")
        if self.format not in FORMATS:
            raise ValueError(f"got the format {self.format!r:.80}; expected one of {', '.join(FORMATS)}")
        for name in ("start", "stop"):
            if getattr(self, name) is not None and getattr(self, f"{name}_s") is not None:
                raise ValueError(f"got {name} and {name}_s; expected one of them")
        return self


class BatchFile(_Part):
    """A file of clips, done in order."""

    schema_version: Literal[1] = 1
    clips: Annotated[tuple[BatchEntry, ...], Field(min_length=1)]


def read_batch(path: str | os.PathLike[str]) -> tuple[BatchEntry, ...]:
    """Reads a JSON file of clips and the files of prompts that it names.

    Returns:
        The entries with paths that hold from here, and with their prompts.

    Raises:
        BatchError: The file cannot be read, or an entry of it cannot be used; says which one.
    """
    try:
        text = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BatchError(f"cannot read the list {path}: {reason}; check the path") from error
    try:
        entries = BatchFile.model_validate_json(text).clips
    except ValidationError as error:
        raise BatchError(f"{path}: {_told(error)}") from error
    return tuple(_from_here(Path(path), number, entry) for number, entry in enumerate(entries))


def _told(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"])) or "the file"
    got = repr(first["input"])
    is_clear = len(got) > _LONGEST_SHOWN or first["type"] in ("missing", "value_error")
    return f"{place}: {first['msg'].removeprefix('Value error, ')}{'' if is_clear else f' (got {got})'}"


def _from_here(path: Path, number: int, entry: BatchEntry) -> BatchEntry:
    folder = path.parent
    prompts = masks_beside(folder, entry.prompts or ())
    prompt_file = None if entry.prompt_file is None else str(folder / entry.prompt_file)
    if prompt_file is not None:
        try:
            prompts = read_prompts(prompt_file)
        except PromptError as error:
            raise BatchError(f"{path}: clips.{number}.prompt_file: {error}") from error
    video = folder / entry.video
    output = folder / (_name_of(video) + FORMATS[entry.format].ending if entry.output is None else entry.output)
    places = {"video": str(video), "prompt_file": prompt_file, "output": str(output)}
    return entry.model_copy(update={**places, "prompts": prompts})


def _name_of(video: Path) -> str:
    """What outputs are called after: of pictures, shot.1001.png or shot.%04d.png, what comes before the number."""
    if video.suffix.lower() not in PICTURES:
        return video.stem
    return re.split("[%#*?]", video.stem)[0].rstrip("0123456789").rstrip(" ._-") or video.absolute().parent.name


def batch_schema() -> dict[str, Any]:
    """The JSON schema of `BatchFile`, as published in docs/."""
    return {**BatchFile.model_json_schema(mode="validation"), "title": _SCHEMA_ID}
