"""What all writers of folders have in common: one file a frame, named by the frame's index."""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from sam2track.errors import OutputError
from sam2track.matte import MatteOptions
from sam2track.outputs.atomic import PendingOutput
from sam2track.outputs.base import AtomicWriter
from sam2track.types import FrameResult, VideoFrame

if TYPE_CHECKING:
    from sam2track.video import VideoInfo

_FILES = {".mp4", ".mov", ".mkv", ".webm", ".avi", ".json", ".npz", ".png", ".svg"}  # no folder is called like that


class FolderWriter(AtomicWriter):
    """One file a frame, named by its index: `00000.png`; for an image sequence, like the frame's own picture.

    From frame 100000 on names have six digits and no longer sort by name.
    """

    extension: ClassVar[str] = ".png"

    def __init__(
        self,
        folder: str | os.PathLike[str],
        info: VideoInfo | None = None,
        *,
        matte: MatteOptions | None = None,
        overwrite: bool = False,
    ) -> None:
        r"""Prepare the folder; it appears under its name when the writer is closed.

        Args:
            folder: The output. It may exist if it is empty. Never the folder of the sequence that is read.
            info: What the frames come from: `shot.1001.jpg` gives `shot.1001.png`. None for frames from anywhere.
            matte: What is done to masks before they are written; by default nothing.
            overwrite: Whether a folder of earlier files of the same kind, and nothing else, may be replaced.

        Raises:
            OptionsError: A soft edge is asked of a format that has none.
            OutputExistsError: The folder holds something and `overwrite` is False.
            OutputError: Its name is one of a file, or it cannot be written.
        """
        self._matte = self._checked(matte)
        if Path(folder).suffix.lower() in _FILES:
            raise OutputError(
                f"cannot write {folder}: it will be a folder of {self.extension} files, so its name cannot end in "
                f"{Path(folder).suffix}; give one such as {Path(folder).stem}"
            )
        self._names = [f"{Path(file).stem}{self.extension}" for file in (info.files if info is not None else ())]
        ours = "|".join(map(re.escape, self._names)) or rf"\d{{5,}}\{self.extension}"
        sources = [info.path] if info is not None else []
        super().__init__(PendingOutput(folder, overwrite=overwrite, folder_of=ours, sources=sources))

    @abstractmethod
    def _data(self, frame: VideoFrame, result: FrameResult) -> bytes:
        """The content of one frame's file."""

    def _add(self, frame: VideoFrame, result: FrameResult) -> None:
        name = self._names[frame.frame_idx] if self._names else f"{frame.frame_idx:05d}{self.extension}"
        (self._pending.temporary / name).write_bytes(self._data(frame, result))

    def _finish(self) -> None:
        pass  # each file is complete when it is written

    def _release(self) -> None:
        pass
