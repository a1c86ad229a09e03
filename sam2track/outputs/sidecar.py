"""Scores, boxes and areas -> one JSON document beside the masks.

The document is written as frames come, one line a frame, so that a clip of any length needs no more
memory than one frame, and `grep` works on it; as a whole it is one JSON value, described by `Sidecar`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StrictStr, ValidationError, model_validator

from sam2track.errors import OutputError, VideoDecodeError
from sam2track.matte import MatteOptions, written_mask
from sam2track.outputs.document import DocumentWriter, json_id
from sam2track.types import BoolArray, FrameResult, ObjectId, ObjectResult, VideoFrame

if TYPE_CHECKING:
    from sam2track.video import VideoInfo

_Index = Annotated[int, Field(ge=0)]
_JsonId = Annotated[int, Field(strict=True)] | StrictStr
_Point = tuple[FiniteFloat, FiniteFloat]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SidecarSource(_Part):
    """The video that was tracked.

    Attributes:
        name: Its file name, without the folder; of an image sequence the folder's name.
        width: Pixels, as displayed.
        height: Pixels, as displayed.
        average_rate: Frames a second as a fraction, such as "30000/1001", or None if unknown.
        time_base: Seconds per unit of `pts` as a fraction, such as "1/30000".
    """

    name: str
    width: Annotated[int, Field(gt=0)]
    height: Annotated[int, Field(gt=0)]
    average_rate: str | None
    time_base: str


class SidecarModel(_Part):
    """The model that made the masks: its name, and the sha256 that identifies it."""

    name: str
    sha256: str


class SidecarPrompt(_Part):
    """A prompt as the user gave it, in pixels of the displayed frame.

    Attributes:
        frame_idx: The prompted frame.
        object_id: The object it is about.
        points: (x, y) each.
        labels: One a point: 1 inside, 0 outside.
        box: (x0, y0, x1, y1), or None.
        mask: Where a mask prompt came from, such as its file name, or None.
    """

    frame_idx: _Index
    object_id: _JsonId
    points: tuple[_Point, ...] = ()
    labels: tuple[Literal[0, 1], ...] = ()
    box: tuple[FiniteFloat, FiniteFloat, FiniteFloat, FiniteFloat] | None = None
    mask: str | None = None

    @model_validator(mode="after")
    def _one_label_a_point(self) -> SidecarPrompt:
        if len(self.points) != len(self.labels):
            raise ValueError(f"got {len(self.labels)} labels for {len(self.points)} points, expected one each")
        return self


class SidecarObject(_Part):
    """One object on one frame.

    Attributes:
        object_id: The user's id.
        object_score: A logit; <= 0 means absent.
        predicted_iou: The model's own estimate of the mask's IoU, in [0, 1].
        area: Pixels of the mask, hard and as it is written.
        box: (x0, y0, x1, y1) of the mask in pixels, x1 and y1 exclusive; None if the mask is empty.
    """

    object_id: _JsonId
    object_score: FiniteFloat
    predicted_iou: FiniteFloat
    area: _Index
    box: tuple[_Index, _Index, _Index, _Index] | None


class SidecarFrame(_Part):
    """All objects on one frame.

    Attributes:
        frame_idx: Position in the source, from 0.
        file: The picture's file name in an image sequence, else None.
        pts: The source's own, None if it has none.
        time_s: The same in seconds.
        objects: What was found.
    """

    frame_idx: _Index
    file: str | None = None
    pts: int | None
    time_s: FiniteFloat | None
    objects: tuple[SidecarObject, ...]


class SidecarDamage(_Part):
    """Where a source could not be read further: the frames end there, though the source may not.

    Attributes:
        frame_idx: The first frame that could not be read.
        time_s: When it would be shown, or None if unknown.
        reason: What is wrong.
    """

    frame_idx: _Index
    time_s: FiniteFloat | None
    reason: str


class SidecarHeader(_Part):
    """Everything but the frames; `matte` is what was done to the tracker's masks before they were written."""

    schema_version: Literal[1] = 1
    source: SidecarSource
    model: SidecarModel
    prompts: tuple[SidecarPrompt, ...] = ()
    matte: MatteOptions = MatteOptions()


class Sidecar(SidecarHeader):
    """The whole document; read one with `Sidecar.model_validate_json(text)`."""

    frames: tuple[SidecarFrame, ...]
    incomplete: SidecarDamage | None = None


class SidecarWriter(DocumentWriter):
    """Writes a `Sidecar` line by line."""

    has_soft_edges = True  # they change neither areas nor boxes, which are those of the hard masks

    def __init__(
        self,
        path: str | os.PathLike[str],
        info: VideoInfo,
        *,
        model: SidecarModel,
        prompts: Sequence[SidecarPrompt] = (),
        matte: MatteOptions | None = None,
        overwrite: bool = False,
    ) -> None:
        """Prepare the file; it appears under its name when the writer is closed.

        Args:
            path: The output.
            info: The tracked video.
            model: What made the masks.
            prompts: As the user gave them.
            matte: What is done to the masks that this describes.
            overwrite: Whether an existing file may be replaced.

        Raises:
            OutputExistsError: The output exists and `overwrite` is False.
            OutputError: It cannot be written.
        """
        super().__init__(path, info, matte=matte, overwrite=overwrite)
        with self._guarded("starting it"):
            source = SidecarSource(
                name=_text(info.path.name),
                width=info.width,
                height=info.height,
                average_rate=None if info.average_rate is None else str(info.average_rate),
                time_base=str(info.time_base),
            )
            header = SidecarHeader(source=source, model=model, prompts=tuple(prompts), matte=self._matte)
            self._write_head(header.model_dump_json()[:-1] + ',"frames":[')
            self._files = [_text(name) for name in info.files]
        self._damage: SidecarDamage | None = None

    def note_damage(self, error: VideoDecodeError) -> None:
        """Say that the source could not be read to its end; to be called before `close`."""
        self._damage = SidecarDamage(frame_idx=error.frame_idx, time_s=error.time_s, reason=_text(error.reason))

    def _add(self, frame: VideoFrame, result: FrameResult) -> None:
        try:
            line = SidecarFrame(
                frame_idx=frame.frame_idx,
                file=self._files[frame.frame_idx] if self._files else None,
                pts=frame.pts,
                time_s=frame.time_s,
                objects=tuple(self._describe(object_id, found) for object_id, found in result.objects.items()),
            )
        except ValidationError as error:
            first = error.errors()[0]
            raise OutputError(
                f"frame {frame.frame_idx} cannot be described: {'.'.join(map(str, first['loc']))}: "
                f"got {first['input']!r}; {first['msg']}"
            ) from error
        self._write_lines([line.model_dump_json(exclude=None if self._files else {"file"})])

    def _tail(self) -> str:
        incomplete = "" if self._damage is None else f',\n"incomplete":{self._damage.model_dump_json()}'
        return f"\n]{incomplete}}}\n"

    def _describe(self, object_id: ObjectId, found: ObjectResult) -> SidecarObject:
        mask = written_mask(found, self._matte)
        return SidecarObject(
            object_id=json_id(object_id),
            object_score=float(found.object_score),
            predicted_iou=float(found.predicted_iou),
            area=int(np.count_nonzero(mask)),
            box=mask_box(mask),
        )


def _text(name: str) -> str:
    """A file's name as JSON can hold it."""
    return os.fsencode(name).decode("utf-8", "replace")


def sidecar_schema() -> dict[str, object]:
    """The JSON schema of the document, as published in docs/sidecar.schema.json."""
    return Sidecar.model_json_schema(mode="serialization")


def mask_box(mask: BoolArray) -> tuple[int, int, int, int] | None:
    """(h, w) bool -> the smallest box around it, (x0, y0, x1, y1) with x1, y1 exclusive; None if empty."""
    rows = np.flatnonzero(mask.any(axis=1))
    if rows.size == 0:
        return None
    columns = np.flatnonzero(mask.any(axis=0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1
