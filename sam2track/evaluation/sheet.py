"""A contact sheet: some frames of some sequences, with what was found and what was wanted."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from sam2track.evaluation.datasets import VideoSequence
from sam2track.evaluation.protocol import Masks
from sam2track.outputs.atomic import PendingOutput
from sam2track.outputs.overlay import PALETTE, draw_mask
from sam2track.types import RgbArray

_WIDTH, _FRAMES = 320, 5
_WHITE = (255, 255, 255)


def contact_sheet(entries: Sequence[tuple[VideoSequence, str, list[Masks]]]) -> RgbArray:
    """One row a sequence: frames evenly spaced, masks tinted, the true contour in white.

    Args:
        entries: The sequence, a caption, and the masks by object of every frame.

    Returns:
        (height, width, 3) uint8 RGB.
    """
    rows = []
    for sequence, caption, masks in entries:
        indices = np.linspace(0, len(masks) - 1, _FRAMES).round().astype(int).tolist()
        rows.append(np.concatenate([_tile(sequence, idx, masks[idx], caption) for idx in indices], axis=1))
    width = max(row.shape[1] for row in rows)
    return np.concatenate([np.pad(row, ((0, 0), (0, width - row.shape[1]), (0, 0))) for row in rows])


def _tile(sequence: VideoSequence, frame_idx: int, masks: Masks, caption: str) -> RgbArray:
    import cv2

    picture = sequence.frame(frame_idx)
    for position, mask in enumerate(masks.values()):
        draw_mask(picture, mask, PALETTE[position % len(PALETTE)])
    for mask in (sequence.truth(frame_idx) or {}).values():
        contours, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
        cv2.drawContours(picture, contours, -1, _WHITE, 2)
    height = round(picture.shape[0] * _WIDTH / picture.shape[1])
    tile = np.ascontiguousarray(cv2.resize(picture, (_WIDTH, height), interpolation=cv2.INTER_AREA))
    cv2.putText(tile, f"{caption} #{frame_idx}", (6, 16), cv2.FONT_HERSHEY_SIMPLEX, 0.45, (0, 0, 0), 3, cv2.LINE_AA)
    cv2.putText(tile, f"{caption} #{frame_idx}", (6, 16), cv2.FONT_HERSHEY_SIMPLEX, 0.45, _WHITE, 1, cv2.LINE_AA)
    return np.asarray(tile, np.uint8)


def write_sheet(sheet: RgbArray, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Writes a sheet as JPEG or PNG, whole or not at all.

    Raises:
        OutputError: It cannot be written.
    """
    import cv2

    pending = PendingOutput(path, overwrite=overwrite)
    try:
        suffix = ".png" if str(path).lower().endswith(".png") else ".jpg"
        pending.temporary.write_bytes(cv2.imencode(suffix, sheet[:, :, ::-1])[1].tobytes())
        pending.commit()
    except BaseException:
        pending.discard()
        raise
