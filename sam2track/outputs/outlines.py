"""Outlines of masks -> what editors make roto shapes of: an SVG file a frame, or one JSON document."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Literal
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StrictStr

from sam2track.errors import OptionsError
from sam2track.matte import MatteOptions, written_mask
from sam2track.outputs.contours import mask_polygons
from sam2track.outputs.document import DocumentWriter, json_id
from sam2track.outputs.folder import FolderWriter
from sam2track.outputs.overlay import PALETTE
from sam2track.types import FrameResult, ObjectId, VideoFrame

if TYPE_CHECKING:
    from sam2track.video import VideoInfo

TOLERANCE = 1.0  # pixels: stairs become lines, and an outline has some dozens of points


class SvgWriter(FolderWriter):
    """One SVG a frame, one path an object, filled by the even-odd rule; the id in `data-object-id`."""

    extension = ".svg"

    def __init__(
        self,
        folder: str | os.PathLike[str],
        info: VideoInfo | None = None,
        *,
        tolerance: float = TOLERANCE,
        matte: MatteOptions | None = None,
        overwrite: bool = False,
    ) -> None:
        """Prepare the folder; see `FolderWriter`. `tolerance`: see `mask_polygons`."""
        self._tolerance = _checked_tolerance(tolerance)
        super().__init__(folder, info, matte=matte, overwrite=overwrite)
        self._positions: dict[ObjectId, int] = {}

    def _data(self, frame: VideoFrame, result: FrameResult) -> bytes:
        height, width = frame.rgb.shape[:2]
        time = "" if frame.time_s is None else f' data-time-s="{frame.time_s:.6f}"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
            f' data-frame-idx="{frame.frame_idx}"{time}>'
        ]
        for object_id, found in result.objects.items():
            position = self._positions.setdefault(object_id, len(self._positions))
            polygons = mask_polygons(written_mask(found, self._matte), self._tolerance)
            colour = "#{:02x}{:02x}{:02x}".format(*PALETTE[position % len(PALETTE)])
            path = " ".join(_svg_path(points) for points in polygons)
            lines.append(
                f'<path data-object-id={quoteattr(str(object_id))} fill="{colour}" fill-rule="evenodd" d="{path}"/>'
            )
        return "\n".join([*lines, "</svg>\n"]).encode("utf-8")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PolygonObject(_Part):
    """One object on one frame.

    Attributes:
        object_id: The user's id.
        polygons: Closed outlines of the mask and of its holes, to be filled by the even-odd rule: (x, y) each, in
            pixels of the displayed frame from its top left corner. Empty if the mask is.
    """

    object_id: Annotated[int, Field(strict=True)] | StrictStr
    polygons: tuple[tuple[tuple[FiniteFloat, FiniteFloat], ...], ...]


class PolygonFrame(_Part):
    """All objects on one frame; `pts` and `time_s` are the source's own, None if it has none."""

    frame_idx: Annotated[int, Field(ge=0)]
    pts: int | None
    time_s: FiniteFloat | None
    objects: tuple[PolygonObject, ...]


class PolygonHeader(_Part):
    """Everything but the frames.

    Attributes:
        schema_version: Of this document.
        width: Of the displayed frame, in pixels.
        height: Of the displayed frame, in pixels.
        time_base: Seconds per unit of `pts` as a fraction, such as "1/30000".
        average_rate: Frames a second as a fraction, or None if unknown.
        tolerance: How far simplified outlines may lie from the exact ones, in pixels.
    """

    schema_version: Literal[1] = 1
    width: Annotated[int, Field(gt=0)]
    height: Annotated[int, Field(gt=0)]
    time_base: str
    average_rate: str | None
    tolerance: Annotated[FiniteFloat, Field(ge=0)]


class PolygonDocument(PolygonHeader):
    """The whole document; read one with `PolygonDocument.model_validate_json(text)`."""

    frames: tuple[PolygonFrame, ...]


def polygons_schema() -> dict[str, object]:
    """The JSON schema of the document, as published in docs/polygons.schema.json."""
    return PolygonDocument.model_json_schema(mode="serialization")


class PolygonsWriter(DocumentWriter):
    """Writes a `PolygonDocument`, a line a frame."""

    extension = ".json"

    def __init__(
        self,
        path: str | os.PathLike[str],
        info: VideoInfo,
        *,
        tolerance: float = TOLERANCE,
        matte: MatteOptions | None = None,
        overwrite: bool = False,
    ) -> None:
        """Prepare the file; see `DocumentWriter`. `tolerance`: see `mask_polygons`."""
        self._tolerance = _checked_tolerance(tolerance)
        super().__init__(path, info, matte=matte, overwrite=overwrite)
        with self._guarded("starting it"):
            header = PolygonHeader(
                width=info.width,
                height=info.height,
                time_base=str(info.time_base),
                average_rate=None if info.average_rate is None else str(info.average_rate),
                tolerance=tolerance,
            )
            self._write_head(header.model_dump_json()[:-1] + ',"frames":[')

    def _add(self, frame: VideoFrame, result: FrameResult) -> None:
        objects = []
        for object_id, found in result.objects.items():
            polygons = mask_polygons(written_mask(found, self._matte), self._tolerance)
            objects.append(PolygonObject(object_id=json_id(object_id), polygons=[p.tolist() for p in polygons]))
        line = PolygonFrame(frame_idx=frame.frame_idx, pts=frame.pts, time_s=frame.time_s, objects=tuple(objects))
        self._write_lines([line.model_dump_json()])


def _checked_tolerance(tolerance: float) -> float:
    if not 0 <= tolerance <= 1000:
        raise OptionsError(f"got the tolerance {tolerance}; expected 0 (exact outlines) or more pixels, up to 1000")
    return tolerance


def _svg_path(points: NDArray[np.float32]) -> str:
    return "M" + "L".join(f"{x:g},{y:g}" for x, y in points.tolist()) + "Z"
