"""An output for each object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sam2track.outputs.base import MaskWriter
from sam2track.types import FrameResult, ObjectId, VideoFrame

if TYPE_CHECKING:
    from typing_extensions import Self


class ObjectFilesWriter:
    """A `MaskWriter` that gives each object's masks to a writer of its own; every output has every frame."""

    def __init__(self, paths: Mapping[ObjectId, Path], make: Callable[[Path], MaskWriter]) -> None:
        """Prepare all outputs.

        Args:
            paths: Where each object goes; masks of other objects are left out.
            make: Makes a writer.
        """
        self._writers: dict[ObjectId, MaskWriter] = {}
        try:
            for object_id, path in paths.items():
                self._writers[object_id] = make(path)
        except BaseException:
            self.abort()
            raise

    def write(self, frame: VideoFrame, result: FrameResult) -> None:
        """Add one frame to each output; see `AtomicWriter.write`. If one fails, none is left."""
        try:
            for object_id, writer in self._writers.items():
                own = {one: found for one, found in result.objects.items() if one == object_id}
                writer.write(frame, replace(result, objects=own))
        except BaseException:
            self.abort()
            raise

    def close(self) -> None:
        """Finish one output after the other. If one cannot be finished, those before it are there already."""
        try:
            for writer in self._writers.values():
                writer.close()
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Leave nothing behind of what is not finished yet."""
        for writer in self._writers.values():
            writer.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()
