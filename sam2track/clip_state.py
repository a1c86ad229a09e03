"""A clip's prompts and results <-> one file: a zip of NumPy arrays and a JSON header, without pickle."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StrictInt, StrictStr, ValidationError

from sam2track.clip_records import ObjectRecord, ObjectState
from sam2track.errors import ClipStateError, OutputError, Sam2TrackError
from sam2track.object_track import Answer, ObjectTrack
from sam2track.options import TrackingOptions
from sam2track.outputs.atomic import PendingOutput
from sam2track.types import MaskOutcome, ObjectId, Prompt

_HEADER = "header.json"
_Index = Annotated[int, Field(ge=0)]
_Arrays = dict[str, npt.NDArray[Any]]
_NOT_TRACKED, _FORWARD, _BACKWARD = -1, 0, 1


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


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


class _SavedObject(_Part):
    object_id: StrictInt | StrictStr
    forward_from: _Index | None
    backward_from: _Index | None
    answers: Annotated[tuple[_SavedAnswer, ...], Field(min_length=1)]


class _Header(_Part):
    schema_version: Literal[1] = 1
    identity: ClipIdentity
    objects: tuple[_SavedObject, ...]


@dataclass(frozen=True, slots=True)
class RestoredObject:
    """One object as it was saved.

    Attributes:
        answers: As in `ObjectTrack`.
        state: Its results.
        tracked: Frames that were tracked, and whether backwards.
    """

    answers: dict[int, list[Answer]]
    state: ObjectState
    tracked: dict[int, bool]


def write_state(
    path: str | os.PathLike[str],
    identity: ClipIdentity,
    tracks: Mapping[ObjectId, ObjectTrack],
    states: Mapping[ObjectId, ObjectState],
    *,
    overwrite: bool,
) -> None:
    """Writes a clip's state; the file appears whole or not at all.

    Raises:
        OutputExistsError: It exists and `overwrite` is False.
        OutputError: It cannot be written, or an object's id is neither a number nor a string.
    """
    arrays: _Arrays = {}
    objects = []
    for number, (object_id, track) in enumerate(tracks.items()):
        objects.append(_saved_object(object_id, track, states[object_id]))
        saved = {**_record_arrays(track, states[object_id]), **_answer_arrays(track)}
        arrays.update({f"{number}/{name}": array for name, array in saved.items()})
    header = _Header(identity=identity, objects=tuple(objects)).model_dump_json()
    arrays[_HEADER] = np.frombuffer(header.encode(), np.uint8)
    pending = PendingOutput(path, overwrite=overwrite)
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


def read_state(path: str | os.PathLike[str]) -> tuple[ClipIdentity, dict[ObjectId, RestoredObject]]:
    """Reads what `write_state` wrote.

    Raises:
        ClipStateError: The file cannot be read, or is no saved clip.
    """
    try:
        with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            header = _Header.model_validate_json(file[_HEADER].tobytes())
            objects: dict[ObjectId, RestoredObject] = {
                saved.object_id: _restored(saved, {name: file[f"{number}/{name}"] for name in _ARRAYS})
                for number, saved in enumerate(header.objects)
            }
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ClipStateError(f"{path} is no saved clip of this version: {place}: {first['msg']}") from error
    except OSError as error:
        raise ClipStateError(f"cannot read {path}: {error.strerror or error}; check the path") from error
    except Exception as error:  # whatever zipfile, zlib and NumPy say of a damaged file
        raise ClipStateError(f"{path} is damaged, or no saved clip: {error}; track the clip anew") from error
    return header.identity, objects


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
}


def _restored(saved: _SavedObject, arrays: _Arrays) -> RestoredObject:
    _check_arrays(saved, arrays)
    records = {
        int(idx): ObjectRecord(logits, float(iou), float(score), pointer)
        for idx, logits, iou, score, pointer in zip(
            *(arrays[n] for n in ("frame_idx", "mask_logits", "predicted_iou", "object_score", "object_pointer")),
            strict=True,
        )
    }
    masks = iter(arrays["answer_masks"])
    answers: dict[int, list[Answer]] = {}
    for number, answer in enumerate(saved.answers):
        points = np.array(answer.points, np.float32).reshape(-1, 2)
        prompt = Prompt(points, np.array(answer.labels, np.int32), next(masks) if answer.has_mask else None)
        logits, iou, score, pointer = (
            arrays[f"answer_{name}"][number]
            for name in ("mask_logits", "predicted_iou", "object_score", "object_pointer")
        )
        outcome = MaskOutcome(logits, float(iou), float(score))
        answers.setdefault(answer.frame_idx, []).append(Answer(prompt, outcome, pointer, answer.is_correction))
    tracked = {
        int(idx): bool(direction == _BACKWARD)
        for idx, direction in zip(arrays["frame_idx"], arrays["tracked"], strict=True)
        if direction != _NOT_TRACKED
    }
    return RestoredObject(answers, ObjectState(records, saved.forward_from, saved.backward_from), tracked)


def _check_arrays(saved: _SavedObject, arrays: _Arrays) -> None:
    lengths = {"answer_masks": sum(answer.has_mask for answer in saved.answers)}
    for name, array in arrays.items():
        dtype, dims = _ARRAYS[name]
        rows = len(saved.answers) if name.startswith("answer_") else len(arrays["frame_idx"])
        expected = lengths.get(name, rows)
        if array.dtype != dtype or array.ndim != dims or len(array) != expected:
            raise ValueError(f"{name} is {array.dtype} of shape {array.shape}, expected {expected} rows of {dtype}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"{name} holds numbers that are not finite")
