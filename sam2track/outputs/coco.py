"""Masks -> one COCO JSON file, as pycocotools reads and writes it.

One image a frame; one annotation for each object on a frame, as compressed run lengths, none where the mask is
empty; one category an object, named by its id. Beyond COCO's own fields images have `frame_idx`, `pts` and `time_s`,
annotations `object_id`, `object_score`, `predicted_iou` and `score` (the predicted IoU again, under the name that
COCO's tools look for).
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from sam2track.errors import OutputError
from sam2track.matte import MatteOptions, written_mask
from sam2track.outputs.document import DocumentWriter, json_id
from sam2track.types import BoolArray, FrameResult, ObjectId, VideoFrame

if TYPE_CHECKING:
    from sam2track.video import VideoInfo


class CocoWriter(DocumentWriter):
    """Needs pycocotools: `pip install "sam2track[coco]"`."""

    extension = ".json"

    def __init__(
        self,
        path: str | os.PathLike[str],
        info: VideoInfo,
        *,
        matte: MatteOptions | None = None,
        overwrite: bool = False,
    ) -> None:
        try:
            import pycocotools.mask  # noqa: F401  # before any work, not at the first frame
        except ImportError as error:
            raise OutputError('COCO run lengths need pycocotools: pip install "sam2track[coco]"') from error
        super().__init__(path, info, matte=matte, overwrite=overwrite)
        self._name = os.fsencode(info.path.name).decode("utf-8", "replace")
        self._images: list[str] = []
        self._categories: dict[ObjectId, int] = {}
        self._annotations = 0
        with self._guarded("starting it"):
            self._write_head('{"annotations":[')

    def _add(self, frame: VideoFrame, result: FrameResult) -> None:
        height, width = frame.rgb.shape[:2]
        image = {
            "id": frame.frame_idx,
            "file_name": f"{self._name}#{frame.frame_idx}",
            "height": height,
            "width": width,
            "frame_idx": frame.frame_idx,
            "pts": frame.pts,
            "time_s": frame.time_s,
        }
        self._images.append(json.dumps(image))
        for object_id, found in result.objects.items():
            category = self._categories.setdefault(object_id, len(self._categories) + 1)
            mask = written_mask(found, self._matte)
            if not mask.any():
                continue
            self._annotations += 1
            annotation = {
                "id": self._annotations,
                "image_id": frame.frame_idx,
                "category_id": category,
                "iscrowd": 0,
                **_run_lengths(mask),
                "object_id": json_id(object_id),
                "object_score": float(found.object_score),
                "predicted_iou": float(found.predicted_iou),
                "score": float(found.predicted_iou),
            }
            self._write_lines([json.dumps(annotation, allow_nan=False)])

    def _tail(self) -> str:
        categories = [{"id": number, "name": str(object_id)} for object_id, number in self._categories.items()]
        return "".join(
            ['\n],"images":[\n', ",\n".join(self._images), '\n],"categories":', json.dumps(categories), "}\n"]
        )


def _run_lengths(mask: BoolArray) -> dict[str, Any]:
    import pycocotools.mask

    encoded = pycocotools.mask.encode(np.asfortranarray(mask.view(np.uint8)))
    return {
        "segmentation": {"size": [int(side) for side in encoded["size"]], "counts": encoded["counts"].decode("ascii")},
        "area": int(pycocotools.mask.area(encoded)),
        "bbox": [float(side) for side in pycocotools.mask.toBbox(encoded)],  # x, y, width, height
    }
