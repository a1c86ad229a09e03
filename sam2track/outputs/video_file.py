"""What all writers of video files have in common: a picture a frame, encoded in the writer's codec."""

from __future__ import annotations

import os
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from sam2track.matte import MatteOptions
from sam2track.outputs.atomic import PendingOutput
from sam2track.outputs.base import AtomicWriter
from sam2track.outputs.encode import H264, VideoCodec, VideoEncoder, container_format
from sam2track.types import FrameResult, VideoFrame

if TYPE_CHECKING:
    from sam2track.video import VideoInfo


class VideoFileWriter(AtomicWriter):
    """A video file; time, audio, size and colours: see `sam2track.outputs.encode`."""

    codec: ClassVar[VideoCodec] = H264

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
            path: The output, with one of the extensions of the writer's `codec`.
            info: The video that the frames come from.
            matte: What is done to masks before they are written; by default nothing.
            overwrite: Whether an existing file may be replaced; the source never is.

        Raises:
            OptionsError: A soft edge is asked of a format that has none.
            OutputExistsError: The output exists and `overwrite` is False.
            OutputError: Another extension, the output is the source, or it cannot be written.
        """
        self._matte = self._checked(matte)
        container = container_format(Path(path), self.codec)
        super().__init__(PendingOutput(path, overwrite=overwrite, sources=[info.path]))
        self._encoder: VideoEncoder | None = None
        with self._guarded("starting it"):
            self._encoder = VideoEncoder(self._pending.temporary, info, container, self.codec)

    @abstractmethod
    def _picture(self, frame: VideoFrame, result: FrameResult) -> NDArray[np.uint8]:
        """What is shown, in the codec's `picture_format`; (height, width) or (height, width, channels)."""

    def _add(self, frame: VideoFrame, result: FrameResult) -> None:
        if self._encoder is not None:
            self._encoder.write(self._picture(frame, result), frame)

    def _finish(self) -> None:
        if self._encoder is not None:
            self._encoder.finish()

    def _release(self) -> None:
        if self._encoder is not None:
            self._encoder.abandon()
