"""Mattes: white where an object is, black where none is -> a grey video file, all objects together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sam2track.matte import union_alpha
from sam2track.outputs.encode import H264, VideoCodec
from sam2track.outputs.video_file import VideoFileWriter
from sam2track.types import FrameResult, VideoFrame


class MatteWriter(VideoFileWriter):
    """H.264 video, 4:2:0 with grey chroma: many players and editors do not know H.264 without chroma."""

    has_soft_edges = True
    codec = replace(H264, picture_format="gray")

    def _picture(self, frame: VideoFrame, result: FrameResult) -> NDArray[np.uint8]:
        return union_alpha(frame, result, self._matte, np.uint8)


class Ffv1MatteWriter(MatteWriter):
    """FFV1, 8-bit grey, full range: lossless."""

    # Version 3, every frame for itself and in slices with checksums: fast to step through, and damage is noticed.
    codec = VideoCodec(
        encoder="ffv1",
        picture_format="gray",
        pixel_format="gray",
        extensions=(".mkv",),
        options={"level": "3", "g": "1", "slicecrc": "1"},
    )
