"""A clip's prompts and results <-> one file: a zip of NumPy arrays and a JSON header, without pickle."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)

from sam2track.clip_records import ObjectRecord, ObjectState
from sam2track.errors import ClipStateError, OutputError, Sam2TrackError
from sam2track.memory_bank import MemoryEntry
from sam2track.object_track import Answer, ObjectTrack
from sam2track.options import TrackingOptions
from sam2track.outputs.atomic import PendingOutput
from sam2track.spec import Constants
from sam2track.types import MaskOutcome, ObjectId, Prompt, RgbArray, VideoFrame

_HEADER = "header.json"
_Index = Annotated[int, Field(ge=0)]
_Arrays = dict[str, npt.NDArray[Any]]
_PUBLISHED_SIDE = 256  # of the logits of bundles by others, whatever their input's size
_SAME_GREY = 6  # levels of 255 by which decoders and colour conversions may differ
_NOT_TRACKED, _FORWARD, _BACKWARD = -1, 0, 1


class _Part(BaseModel):
    # Older releases of pydantic warn of fields whose names begin with model_.
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class ClipIdentity(_Part):
    """What a saved clip belongs to, and how it is tracked.

    Attributes:
        model_name: For messages only.
        model_sha256: Of the graphs.
        width: Of the frames, in pixels.
        height: Of the frames, in pixels.
        num_frames: Of the source.
        start: First frame of the range.
        stop: The frame after the range.
        options: Of the tracker.
    """

    model_name: str
    model_sha256: str
    width: Annotated[int, Field(gt=0)]
    height: Annotated[int, Field(gt=0)]
    num_frames: Annotated[int, Field(gt=0)]
    start: _Index
    stop: _Index
    options: TrackingOptions

    @model_validator(mode="after")
    def _is_a_range(self) -> ClipIdentity:
        if not self.start < self.stop <= self.num_frames:
            raise ValueError(f"{self.start} to {self.stop} is no range of {self.num_frames} frames")
        return self

    @property
    def frames(self) -> range:
        """The range."""
        return range(self.start, self.stop)

    def check_model(self, name: str, sha256: str, path: str | os.PathLike[str]) -> None:
        """Refuses another model: its memory means something else."""
        if sha256 != self.model_sha256:
            raise ClipStateError(
                f"{path} was made with the model {self.model_name} ({self.model_sha256[:12]}), got {name} "
                f"({sha256[:12]}); load that model, or track the clip anew"
            )

    def check_source(self, frame_size: tuple[int, int], num_frames: int, path: str | os.PathLike[str]) -> None:
        """Refuses frames that cannot be the same."""
        if (*frame_size, num_frames) != (self.height, self.width, self.num_frames):
            raise ClipStateError(
                f"{path} was made from {self.num_frames} frames of {self.width}x{self.height} pixels, got {num_frames} "
                f"of {frame_size[1]}x{frame_size[0]}; give the same source"
            )


class _SavedAnswer(_Part):
    frame_idx: _Index
    points: tuple[tuple[FiniteFloat, FiniteFloat], ...]
    labels: tuple[Literal[0, 1, 2, 3], ...]
    has_mask: bool
    is_correction: bool

    @model_validator(mode="after")
    def _one_label_a_point(self) -> _SavedAnswer:
        if len(self.points) != len(self.labels) or bool(self.points) == self.has_mask:
            raise ValueError("expected a mask, or points with one label each")
        return self


class _SavedTime(_Part):
    """When a frame is shown; `time_base` is a fraction."""

    frame_idx: _Index
    pts: int | None
    time_base: str | None


class _SavedObject(_Part):
    object_id: StrictInt | StrictStr
    forward_from: _Index | None
    backward_from: _Index | None
    answers: Annotated[tuple[_SavedAnswer, ...], Field(min_length=1)]


class _Header(_Part):
    schema_version: Literal[1] = 1
    identity: ClipIdentity
    times: tuple[_SavedTime, ...]
    objects: tuple[_SavedObject, ...]

    @model_validator(mode="after")
    def _is_consistent(self) -> _Header:
        frames = self.identity.frames
        for saved in self.objects:
            named = [answer.frame_idx for answer in saved.answers]
            named += [idx for idx in (saved.forward_from, saved.backward_from) if idx is not None]
            if any(idx not in frames for idx in named):
                raise ValueError(
                    f"object {saved.object_id!r} has frames outside of {frames.start} to {frames.stop - 1}"
                )
        if len({saved.object_id for saved in self.objects}) != len(self.objects):
            raise ValueError("two objects have one id")
        return self


@dataclass(frozen=True, slots=True)
class RestoredObject:
    """One object as it was saved.

    Attributes:
        answers: As in `ObjectTrack`.
        tracked_before: As in `ObjectTrack`.
        state: Its results.
        tracked: Frames that were tracked, and whether backwards.
    """

    answers: dict[int, list[Answer]]
    tracked_before: dict[int, MemoryEntry]
    state: ObjectState
    tracked: dict[int, bool]


@dataclass(frozen=True, slots=True)
class ClipState:
    """All that a file holds.

    Attributes:
        identity: What it belongs to.
        objects: By id.
        times: (pts, time base) by frame, of frames that were read.
        thumbnails: Small grey pictures of frames, by which other pictures are noticed.
    """

    identity: ClipIdentity
    objects: dict[ObjectId, RestoredObject]
    times: dict[int, tuple[int | None, Fraction | None]]
    thumbnails: dict[int, npt.NDArray[np.uint8]]

    def check_sizes(self, constants: Constants, path: str | os.PathLike[str]) -> None:
        """Refuses logits and pointers that the model cannot have made."""
        sides = {constants.image_size // 4, _PUBLISHED_SIDE}
        for saved in self.objects.values():
            for record in saved.state.records.values():
                height, width = record.mask_logits.shape
                if height != width or height not in sides or len(record.object_pointer) % constants.memory_size:
                    raise ClipStateError(f"{path} holds masks of another size than the model's; track the clip anew")

    def check_picture(self, frame: VideoFrame, path: str | os.PathLike[str]) -> None:
        """Refuses another picture than the one that was prompted; small differences of decoders pass."""
        saved = self.thumbnails.get(frame.frame_idx)
        if saved is None:
            return
        if np.abs(saved.astype(int) - thumbnail(frame.rgb)).max() > _SAME_GREY:
            raise ClipStateError(
                f"{path} was made from other pictures: frame {frame.frame_idx} looks different; give the same source"
            )


def thumbnail(rgb: RgbArray) -> npt.NDArray[np.uint8]:
    """(16, 16) uint8: a frame's grey levels, averaged."""
    import cv2

    grey = cv2.cvtColor(np.ascontiguousarray(rgb), cv2.COLOR_RGB2GRAY)
    return np.asarray(cv2.resize(grey, (16, 16), interpolation=cv2.INTER_AREA), np.uint8)


def write_state(
    path: str | os.PathLike[str],
    identity: ClipIdentity,
    tracks: Mapping[ObjectId, ObjectTrack],
    states: Mapping[ObjectId, ObjectState],
    *,
    times: Mapping[int, tuple[int | None, Fraction | None]],
    thumbnails: Mapping[int, npt.NDArray[np.uint8]],
    sources: Sequence[Path],
    overwrite: bool,
) -> None:
    """Writes a clip's state; the file appears whole or not at all, and never in place of one of `sources`.

    Raises:
        OutputExistsError: It exists and `overwrite` is False.
        OutputError: It cannot be written, or an object's id is neither a number nor a string.
    """
    arrays: _Arrays = {}
    objects = []
    for number, (object_id, track) in enumerate(tracks.items()):
        objects.append(_saved_object(object_id, track, states[object_id]))
        saved = {**_record_arrays(track, states[object_id]), **_answer_arrays(track), **_before_arrays(track)}
        arrays.update({f"{number}/{name}": array for name, array in saved.items()})
    shown = tuple(
        _SavedTime(frame_idx=idx, pts=pts, time_base=None if time_base is None else str(time_base))
        for idx, (pts, time_base) in times.items()
    )
    header = _Header(identity=identity, times=shown, objects=tuple(objects)).model_dump_json()
    arrays[_HEADER] = np.frombuffer(header.encode(), np.uint8)
    arrays["thumbnail_frames"] = np.array(list(thumbnails), np.int64)
    arrays["thumbnails"] = np.stack(list(thumbnails.values())) if thumbnails else np.zeros((0, 16, 16), np.uint8)
    pending = PendingOutput(path, overwrite=overwrite, sources=sources)
    try:
        with pending.temporary.open("wb") as file:
            save: Callable[..., None] = np.savez_compressed  # its own types take **arrays for other arguments
            save(file, **arrays)
        pending.commit()
    except Sam2TrackError:
        pending.discard()
        raise
    except OSError as error:
        pending.discard()
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def read_state(path: str | os.PathLike[str]) -> ClipState:
    """Reads what `write_state` wrote.

    Raises:
        ClipStateError: The file cannot be read, or is no saved clip.
    """
    try:
        with Path(path).open("rb") as raw:
            if not zipfile.is_zipfile(raw):
                raise ClipStateError("this is no saved clip, or cut short; expected a file that Clip.save wrote")
            raw.seek(0)
            with np.load(raw, allow_pickle=False) as file:
                return _read(file)
    except ClipStateError as error:
        raise ClipStateError(f"{path}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "header"
        raise ClipStateError(f"{path} is no saved clip of this version: {place}: {first['msg']}") from error
    except OSError as error:
        raise ClipStateError(f"cannot read {path}: {error.strerror or error}; check the path") from error
    except Exception as error:  # whatever zipfile, zlib and NumPy say of a damaged file
        raise ClipStateError(
            f"{path} is damaged, or no saved clip ({type(error).__name__}); track the clip anew"
        ) from error


def _read(file: Mapping[str, npt.NDArray[Any]]) -> ClipState:
    header = _Header.model_validate_json(file[_HEADER].tobytes())
    objects: dict[ObjectId, RestoredObject] = {
        saved.object_id: _restored(saved, header.identity, {name: file[f"{number}/{name}"] for name in _ARRAYS})
        for number, saved in enumerate(header.objects)
    }
    times = {
        time.frame_idx: (time.pts, None if time.time_base is None else Fraction(time.time_base))
        for time in header.times
    }
    small, frames = file["thumbnails"], file["thumbnail_frames"]
    if small.dtype != np.uint8 or small.shape != (len(frames), 16, 16) or not _all_in(frames, header.identity.frames):
        raise ClipStateError("its small pictures of frames are not as they were written; track the clip anew")
    thumbnails = dict(zip(frames.tolist(), small, strict=True))
    return ClipState(header.identity, objects, times, thumbnails)


def _saved_object(object_id: ObjectId, track: ObjectTrack, state: ObjectState) -> _SavedObject:
    if not isinstance(object_id, (int, str, np.integer)) or isinstance(object_id, bool):
        raise OutputError(f"object id {object_id!r}: a file can hold an integer or a string only")
    answers = [
        _SavedAnswer(
            frame_idx=idx,
            points=tuple((float(x), float(y)) for x, y in answer.prompt.points),
            labels=tuple(answer.prompt.labels.tolist()),
            has_mask=answer.prompt.mask is not None,
            is_correction=answer.is_correction,
        )
        for idx, answers_there in track.answers.items()
        for answer in answers_there
    ]
    return _SavedObject(
        object_id=object_id if isinstance(object_id, str) else int(object_id),
        forward_from=state.forward_from,
        backward_from=state.backward_from,
        answers=tuple(answers),
    )


def _record_arrays(track: ObjectTrack, state: ObjectState) -> _Arrays:
    indices, records = list(state.records), list(state.records.values())
    directions = {None: _NOT_TRACKED, False: _FORWARD, True: _BACKWARD}
    return {
        "frame_idx": np.array(indices, np.int64),
        "tracked": np.array([directions[track.tracked.reverse_at(idx)] for idx in indices], np.int8),
        "mask_logits": np.stack([record.mask_logits for record in records]),
        "predicted_iou": np.array([record.predicted_iou for record in records], np.float64),
        "object_score": np.array([record.object_score for record in records], np.float64),
        "object_pointer": np.stack([record.object_pointer for record in records]),
    }


def _answer_arrays(track: ObjectTrack) -> _Arrays:
    answers = [answer for answers_there in track.answers.values() for answer in answers_there]
    masks = [answer.prompt.mask for answer in answers if answer.prompt.mask is not None]
    return {
        "answer_mask_logits": np.stack([answer.outcome.mask_logits for answer in answers]),
        "answer_predicted_iou": np.array([answer.outcome.predicted_iou for answer in answers], np.float64),
        "answer_object_score": np.array([answer.outcome.object_score for answer in answers], np.float64),
        "answer_object_pointer": np.stack([answer.object_pointer for answer in answers]),
        "answer_masks": np.stack(masks) if masks else np.zeros((0, 1, 1), bool),
    }


def _before_arrays(track: ObjectTrack) -> _Arrays:
    """What was tracked on frames that were corrected: an undo goes back to it."""
    before = list(track.tracked_before.values())
    return {
        "before_frame_idx": np.array([entry.frame_idx for entry in before], np.int64),
        "before_mask_logits": _stack([entry.outcome.mask_logits for entry in before], (0, 1, 1)),
        "before_predicted_iou": np.array([entry.outcome.predicted_iou for entry in before], np.float64),
        "before_object_score": np.array([entry.outcome.object_score for entry in before], np.float64),
        "before_object_pointer": _stack([entry.object_pointer for entry in before], (0, 1)),
    }


def _stack(arrays: list[npt.NDArray[np.float32]], empty: tuple[int, ...]) -> npt.NDArray[np.float32]:
    return np.stack(arrays) if arrays else np.zeros(empty, np.float32)


_ARRAYS: dict[str, tuple[type, int]] = {
    "frame_idx": (np.int64, 1),
    "tracked": (np.int8, 1),
    "mask_logits": (np.float16, 3),
    "predicted_iou": (np.float64, 1),
    "object_score": (np.float64, 1),
    "object_pointer": (np.float32, 2),
    "answer_mask_logits": (np.float32, 3),
    "answer_predicted_iou": (np.float64, 1),
    "answer_object_score": (np.float64, 1),
    "answer_object_pointer": (np.float32, 2),
    "answer_masks": (np.bool_, 3),
    "before_frame_idx": (np.int64, 1),
    "before_mask_logits": (np.float32, 3),
    "before_predicted_iou": (np.float64, 1),
    "before_object_score": (np.float64, 1),
    "before_object_pointer": (np.float32, 2),
}
_SCORES = ("mask_logits", "predicted_iou", "object_score", "object_pointer")


def _restored(saved: _SavedObject, identity: ClipIdentity, arrays: _Arrays) -> RestoredObject:
    _check_arrays(saved, identity, arrays)
    records = {
        int(idx): ObjectRecord(logits, float(iou), float(score), pointer)
        for idx, logits, iou, score, pointer in zip(*(arrays[name] for name in ("frame_idx", *_SCORES)), strict=True)
    }
    before = {
        int(idx): MemoryEntry(int(idx), None, pointer, MaskOutcome(logits, float(iou), float(score)))
        for idx, logits, iou, score, pointer in zip(
            *(arrays[f"before_{name}"] for name in ("frame_idx", *_SCORES)), strict=True
        )
    }
    masks = iter(arrays["answer_masks"])
    answers: dict[int, list[Answer]] = {}
    for number, answer in enumerate(saved.answers):
        points = np.array(answer.points, np.float32).reshape(-1, 2)
        prompt = Prompt(points, np.array(answer.labels, np.int32), next(masks) if answer.has_mask else None)
        logits, iou, score, pointer = (arrays[f"answer_{name}"][number] for name in _SCORES)
        outcome = MaskOutcome(logits, float(iou), float(score))
        answers.setdefault(answer.frame_idx, []).append(Answer(prompt, outcome, pointer, answer.is_correction))
    tracked = {
        int(idx): bool(direction == _BACKWARD)
        for idx, direction in zip(arrays["frame_idx"], arrays["tracked"], strict=True)
        if direction != _NOT_TRACKED
    }
    state = ObjectState(records, saved.forward_from, saved.backward_from)
    return RestoredObject(answers, before, state, tracked)


def _check_arrays(saved: _SavedObject, identity: ClipIdentity, arrays: _Arrays) -> None:
    rows = {
        "answer": len(saved.answers),
        "before": len(arrays["before_frame_idx"]),
        "answer_masks": sum(answer.has_mask for answer in saved.answers),
    }
    for name, array in arrays.items():
        dtype, dims = _ARRAYS[name]
        expected = rows.get(name, rows.get(name.split("_")[0], len(arrays["frame_idx"])))
        if array.dtype != dtype or array.ndim != dims or len(array) != expected:
            raise ClipStateError(f"{name} of object {saved.object_id!r} is not as it was written; track the clip anew")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ClipStateError(f"{name} of object {saved.object_id!r} holds numbers that are not finite")
    for name in ("mask_logits", "object_pointer"):
        shapes = {
            arrays[f"{kind}{name}"].shape[1:] for kind in ("", "answer_", "before_") if len(arrays[f"{kind}{name}"])
        }
        if len(shapes) != 1:
            raise ClipStateError(f"{name} of object {saved.object_id!r} have different sizes; track the clip anew")
    for name in ("frame_idx", "before_frame_idx"):
        if not _all_in(arrays[name], identity.frames) or len(np.unique(arrays[name])) < len(arrays[name]):
            raise ClipStateError(
                f"object {saved.object_id!r} has results outside of the range, or twice; track the clip anew"
            )
    if not np.isin(arrays["tracked"], (_NOT_TRACKED, _FORWARD, _BACKWARD)).all():
        raise ClipStateError(f"tracked of object {saved.object_id!r} is not as it was written; track the clip anew")


def _all_in(indices: npt.NDArray[Any], frames: range) -> bool:
    return indices.ndim == 1 and indices.dtype.kind == "i" and all(int(idx) in frames for idx in indices)
