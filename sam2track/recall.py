"""Records of a clip -> the memory that a frame looks at, where the bank does not hold it any more (or not yet)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sam2track.clip_records import ObjectRecord
from sam2track.frame_source import FrameSource
from sam2track.memory_bank import MemoryBank, MemoryEntry
from sam2track.object_track import Answer, EncodedFrame, ObjectTrack
from sam2track.prompts import NO_PROMPT
from sam2track.spec import MAX_OBJECT_POINTERS
from sam2track.types import VideoFrame

Encode = Callable[[VideoFrame], EncodedFrame]


def recall(
    track: ObjectTrack,
    records: Mapping[int, ObjectRecord],
    frame_idx: int,
    *,
    reverse: bool | None,
    source: FrameSource,
    encode: Encode,
) -> None:
    """Fills an object's bank with what a frame is about to look at.

    Spatial memory is encoded anew from the frame's picture and its recorded logits; pointers are recorded.

    Args:
        track: The object.
        records: Its results.
        frame_idx: The frame that is going to be tracked or prompted.
        reverse: The direction of tracking; None for a prompt: if the frame was tracked already the prompt
            corrects it, and looks where it was tracked from.
        source: Where the pictures are.
        encode: A picture to its features.
    """
    for idx in track.unremembered():
        track.remember_again(encode(source.frame(idx)))
    if reverse is not None:
        _recall_recent(track, records, frame_idx, reverse=reverse, source=source, encode=encode)
    elif (tracked := track.tracked.reverse_at(frame_idx)) is not None:
        if track.known(frame_idx) is None:  # to be corrected, and what an undo of that goes back to
            _put_pointer(track, records, frame_idx)
        _recall_recent(track, records, frame_idx, reverse=tracked, source=source, encode=encode)


def _recall_recent(
    track: ObjectTrack,
    records: Mapping[int, ObjectRecord],
    frame_idx: int,
    *,
    reverse: bool,
    source: FrameSource,
    encode: Encode,
) -> None:
    step = 1 if reverse else -1
    behind = [frame_idx + step * k for k in range(MAX_OBJECT_POINTERS - 1, 0, -1)]  # the bank forgets what is far
    recorded = [idx for idx in behind if idx in records and idx not in track.answers]
    seen = _seen_as_spatial(track.bank, records, recorded, frame_idx)
    wanted = {idx for idx in seen if (entry := track.bank.entry(idx)) is None or entry.spatial is None}
    for idx in recorded:
        if idx not in seen and track.bank.entry(idx) is None:
            _put_pointer(track, records, idx)
    if not wanted:
        return
    for frame in source.frames(min(wanted), max(wanted) + 1, reverse=reverse):
        if (idx := frame.frame_idx) in wanted:
            answer = Answer(NO_PROMPT, records[idx].outcome, records[idx].object_pointer)
            track.remember_again(encode(frame), answer)


def _seen_as_spatial(
    bank: MemoryBank, records: Mapping[int, ObjectRecord], recorded: list[int], frame_idx: int
) -> set[int]:
    """Which recorded frames the bank will show with their spatial memory; see `MemoryBank.visible`."""
    if bank.min_iou is None:
        return {idx for idx in recorded if abs(idx - frame_idx) < bank.memory_frames}
    scores = {idx: (records[idx].object_score, records[idx].predicted_iou) for idx in recorded}
    return set([idx for idx in recorded if bank.is_reliable(*scores[idx])][-(bank.memory_frames - 1) :])


def _put_pointer(track: ObjectTrack, records: Mapping[int, ObjectRecord], frame_idx: int) -> None:
    record = records[frame_idx]
    track.bank.put_back(MemoryEntry(frame_idx, None, record.object_pointer, record.outcome))
