"""Clips, frames and objects -> what an editor is told of them."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from sam2track.clip import Clip
from sam2track.outputs.png import encode_png
from sam2track.outputs.sidecar import SidecarPrompt, mask_box
from sam2track.prompt_file import PNG_DATA
from sam2track.prompts import LABEL_BOX_BOTTOM_RIGHT, LABEL_BOX_TOP_LEFT
from sam2track.serve.protocol import ClipInfo, EventReport, FrameReport, ObjectInfo, ObjectReport
from sam2track.types import BoolArray, FrameResult, ObjectId, ObjectResult, Prompt
from sam2track.video import Video

if TYPE_CHECKING:
    from sam2track.image_sequence import ImageSequence

_DECIMALS = 3  # of coordinates that went through float32


def clip_info(number: int, clip: Clip, video: Video | ImageSequence) -> ClipInfo:
    """What a clip is, and what is known of it by now."""
    info = video.info
    damage = video.damage if isinstance(video, Video) else None
    return ClipInfo(
        clip=number,
        video=str(info.path),
        num_frames=clip.source.num_frames,
        damage=None if damage is None else str(damage),
        start=clip.frames.start,
        stop=clip.frames.stop,
        width=info.width,
        height=info.height,
        average_rate=None if info.average_rate is None else str(info.average_rate),
        time_base=str(info.time_base),
        has_audio=info.has_audio,
        model=clip.model.name,
        provider=clip.model.provider,
        objects=tuple(_object_info(clip, object_id) for object_id in clip.object_ids),
        due_forward=clip.due("forward"),
        due_backward=clip.due("backward"),
    )


def _object_info(clip: Clip, object_id: ObjectId) -> ObjectInfo:
    prompted = tuple(sorted(clip.tracker.track_of(object_id).answers))
    return ObjectInfo(object_id=_json_id(object_id), prompted=prompted, known=stretches(clip.states[object_id].records))


def stretches(indices: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Frame indices in any order -> (first, last) of each run of them."""
    found: list[tuple[int, int]] = []
    for idx in sorted(indices):
        if found and found[-1][1] == idx - 1:
            found[-1] = (found[-1][0], idx)
        else:
            found.append((idx, idx))
    return tuple(found)


def frame_report(result: FrameResult, *, masks: bool) -> FrameReport:
    """All objects on a frame."""
    has_time = result.pts is not None and result.time_base is not None
    return FrameReport(
        frame_idx=result.frame_idx,
        pts=result.pts,
        time_s=float(result.pts * result.time_base) if has_time else None,  # type: ignore[operator]
        objects=tuple(object_report(object_id, found, masks=masks) for object_id, found in result.objects.items()),
        events=tuple(EventReport(kind=event.kind, object_id=_json_id(event.object_id)) for event in result.events),
    )


def object_report(object_id: ObjectId, found: ObjectResult, *, masks: bool) -> ObjectReport:
    """One object on a frame."""
    return ObjectReport(
        object_id=_json_id(object_id),
        present=found.present,
        object_score=float(found.object_score),
        predicted_iou=float(found.predicted_iou),
        area=int(np.count_nonzero(found.mask)),
        box=mask_box(found.mask),
        mask=mask_text(found.mask) if masks else None,
    )


def mask_text(mask: BoolArray) -> str:
    """(height, width) bool -> a grey PNG, 255 inside and 0 outside, as a `data:` text."""
    picture = mask.astype(np.uint8) * np.uint8(255)
    return PNG_DATA + base64.b64encode(encode_png(picture)).decode("ascii")


def sidecar_prompts(clip: Clip) -> list[SidecarPrompt]:
    """Every prompt that holds, one an object and frame, in pixels of the frame.

    From the clip's state, so that they are there after undo and restoring too. Of a mask only that it was one.
    """
    return [
        _sidecar_prompt(clip, object_id, idx, answers[-1].prompt)
        for object_id in clip.object_ids
        for idx, answers in sorted(clip.tracker.track_of(object_id).answers.items())
    ]


def _sidecar_prompt(clip: Clip, object_id: ObjectId, frame_idx: int, prompt: Prompt) -> SidecarPrompt:
    height, width = clip.frame_size
    scale = np.array([width, height]) / clip.model.constants.image_size
    placed = [(round(float(x), _DECIMALS), round(float(y), _DECIMALS)) for x, y in prompt.points * scale]
    labels = prompt.labels.tolist()
    corners = {label: point for point, label in zip(placed, labels, strict=True) if label > 1}
    return SidecarPrompt(
        frame_idx=frame_idx,
        object_id=_json_id(object_id),
        points=tuple(point for point, label in zip(placed, labels, strict=True) if label <= 1),
        labels=tuple(label for label in labels if label <= 1),
        box=(*corners[LABEL_BOX_TOP_LEFT], *corners[LABEL_BOX_BOTTOM_RIGHT]) if corners else None,
        mask=None if prompt.mask is None else "a picture",
    )


def _json_id(object_id: ObjectId) -> int | str:
    """The ids here came from requests or saved clips, and are numbers or strings."""
    return object_id if isinstance(object_id, str) else int(object_id)  # type: ignore[call-overload]
