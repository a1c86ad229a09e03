"""Masks -> one compressed NumPy archive, one array a frame, so that neither side needs more memory than a frame.

    with np.load("clip.npz") as clip:
        for row, frame_idx in enumerate(clip["frame_idx"]):
            masks = clip[f"mask_{frame_idx:05d}"]  # (objects, height, width) bool, in the order of object_ids
            clip["time_s"][row], clip["object_score"][row], clip["predicted_iou"][row]  # (objects,) each

On a frame before an object is first known its row is missing at the end of the masks, and its scores are NaN.
Object ids are strings if any of them is one. A missing time is NaN.
"""

from __future__ import annotations

import os
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sam2track.errors import OutputError
from sam2track.matte import MatteOptions, written_mask
from sam2track.outputs.atomic import PendingOutput
from sam2track.outputs.base import AtomicWriter
from sam2track.outputs.document import json_id
from sam2track.types import FrameResult, ObjectId, ObjectResult, VideoFrame

if TYPE_CHECKING:
    from sam2track.video import VideoInfo

_LEVEL = 3  # as for PNG: a third of the time of zlib's usual 6
_Score = tuple[float, float]


class NpzWriter(AtomicWriter):
    """Hard masks, times and scores; see the module for the arrays."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        info: VideoInfo,
        *,
        matte: MatteOptions | None = None,
        overwrite: bool = False,
    ) -> None:
        """Prepare the file; it appears under its name when the writer is closed.

        Args:
            path: The output: .npz.
            info: The video that the frames come from.
            matte: What is done to masks before they are written; by default nothing.
            overwrite: Whether an existing file may be replaced; the source never is.

        Raises:
            OptionsError: A soft edge is asked for.
            OutputExistsError: The output exists and `overwrite` is False.
            OutputError: Another extension, the output is the source, or it cannot be written.
        """
        self._matte = self._checked(matte)
        if Path(path).suffix.lower() != ".npz":
            raise OutputError(f"cannot write {path}: got the extension {Path(path).suffix!r}, expected .npz")
        super().__init__(PendingOutput(path, overwrite=overwrite, sources=[info.path]))
        self._info = info
        self._ids: list[ObjectId] = []
        self._times: list[tuple[int, float]] = []
        self._scores: list[dict[ObjectId, _Score]] = []
        with self._guarded("starting it"):
            self._archive = zipfile.ZipFile(self._pending.temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL)

    def _add(self, frame: VideoFrame, result: FrameResult) -> None:
        self._ids += [object_id for object_id in result.objects if object_id not in self._ids]
        masks = np.zeros((len(self._ids), *frame.rgb.shape[:2]), bool)
        for object_id, found in result.objects.items():
            masks[self._ids.index(object_id)] = written_mask(found, self._matte)
        self._save(f"mask_{frame.frame_idx:05d}", masks)
        self._times.append((frame.frame_idx, np.nan if frame.time_s is None else frame.time_s))
        self._scores.append({object_id: _score(found) for object_id, found in result.objects.items()})

    def _finish(self) -> None:
        ids = [json_id(object_id) for object_id in self._ids]
        has_names = any(isinstance(one, str) for one in ids)
        self._save("object_ids", np.array(ids, np.str_ if has_names else np.int64))
        self._save("frame_idx", np.array([idx for idx, _ in self._times], np.int64))
        self._save("time_s", np.array([time for _, time in self._times], np.float64))
        unknown = (np.nan, np.nan)
        scores = np.array([[row.get(one, unknown) for one in self._ids] for row in self._scores], np.float32)
        scores = scores.reshape(len(self._scores), len(self._ids), 2)
        self._save("object_score", scores[..., 0])
        self._save("predicted_iou", scores[..., 1])
        self._archive.close()

    def _release(self) -> None:
        with suppress(Exception):  # never opened, or its end does not fit on the disk
            self._archive.close()

    def _save(self, name: str, array: NDArray[Any]) -> None:
        # A fixed date, so that the same masks give the same bytes.
        entry = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
        entry.compress_type = zipfile.ZIP_DEFLATED
        with self._archive.open(entry, "w", force_zip64=True) as file:
            np.lib.format.write_array(file, array, allow_pickle=False)


def _score(found: ObjectResult) -> _Score:
    return found.object_score, found.predicted_iou
