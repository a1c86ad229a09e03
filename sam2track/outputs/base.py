"""What all writers of masks have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from sam2track.errors import OptionsError, OutputError, Sam2TrackError
from sam2track.matte import MatteOptions
from sam2track.types import FrameResult, VideoFrame

if TYPE_CHECKING:
    from typing_extensions import Self

    from sam2track.outputs.atomic import PendingOutput


class MaskWriter(Protocol):
    """Anything that takes frames with their masks and makes an output of them.

    As a context manager it closes at the end of the block, or aborts if the block raised.
    """

    def write(self, frame: VideoFrame, result: FrameResult) -> None:
        """Add one frame; frames come in increasing order of `frame_idx`."""

    def close(self) -> None:
        """Finish the output and give it its name."""

    def abort(self) -> None:
        """Leave nothing behind."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None: ...


class AtomicWriter(ABC):
    """A `MaskWriter` whose output appears whole when it is closed, or not at all.

    Whatever goes wrong, in whichever library, removes the temporary output and is raised as OutputError.
    """

    has_soft_edges: ClassVar[bool] = False  # whether the format can hold anything between inside and outside

    def __init__(self, pending: PendingOutput) -> None:
        self._pending = pending
        self._open = True
        self._last_idx: int | None = None

    def write(self, frame: VideoFrame, result: FrameResult) -> None:
        """Add one frame.

        Args:
            frame: The frame as displayed.
            result: Its masks, each (height, width) bool like the frame.

        Raises:
            OutputError: The two do not belong together, the frame is not later than the one before,
                the writer is closed, or it cannot be written. Nothing of the output is left then.
        """
        with self._guarded("writing a frame"):
            if not self._open:
                raise OutputError(f"{self._pending.path} is closed: no frame can be added any more")
            _check_pair(frame, result)
            if self._last_idx is not None and frame.frame_idx <= self._last_idx:
                raise OutputError(
                    f"got frame {frame.frame_idx} after frame {self._last_idx}, expected increasing frame_idx"
                )
            self._add(frame, result)
            self._last_idx = frame.frame_idx

    def close(self) -> None:
        """Finish the output and give it its name; does nothing the second time, or after `abort`.

        Raises:
            OutputError: It cannot be finished, or no frame was written. Nothing is left then.
        """
        if not self._open:
            return
        with self._guarded("finishing it"):
            if self._last_idx is None:
                raise OutputError(f"no frame was written to {self._pending.path}, so there is no output")
            self._finish()
            self._open = False
            self._pending.commit()

    def abort(self) -> None:
        """Stop and leave nothing behind, neither the output nor a temporary file."""
        if self._open:
            self._open = False
            self._release()
        self._pending.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        if getattr(self, "_open", False):  # neither closed nor aborted: nobody will finish it any more
            self.abort()

    @classmethod
    def _checked(cls, matte: MatteOptions | None) -> MatteOptions:
        matte = matte or MatteOptions()
        if matte.has_soft_edge and not cls.has_soft_edges:
            raise OptionsError(
                f"got soft {matte.soft} and feather {matte.feather:g}, but {cls.__name__} writes hard masks only; "
                f"leave them out, or write a matte, alpha, a cut-out or soft PNGs"
            )
        return matte

    @contextmanager
    def _guarded(self, doing: str) -> Iterator[None]:
        try:
            yield
        except Sam2TrackError:
            self.abort()
            raise
        except Exception as error:
            self.abort()
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise OutputError(f"cannot write {self._pending.path}, {doing}: {reason}") from error
        except BaseException:
            self.abort()
            raise

    @abstractmethod
    def _add(self, frame: VideoFrame, result: FrameResult) -> None:
        """Write one checked frame."""

    @abstractmethod
    def _finish(self) -> None:
        """Write what is outstanding and close the temporary output."""

    @abstractmethod
    def _release(self) -> None:
        """Close the temporary output without finishing it; raises nothing, whatever state it is in."""


def _check_pair(frame: VideoFrame, result: FrameResult) -> None:
    if frame.frame_idx != result.frame_idx:
        raise OutputError(f"got frame {frame.frame_idx} with the masks of frame {result.frame_idx}; pass its own")
    for object_id, found in result.objects.items():
        if found.mask.shape != frame.rgb.shape[:2] or found.mask.dtype != np.bool_:
            raise OutputError(
                f"mask of object {object_id!r} on frame {frame.frame_idx}: got {found.mask.dtype} of shape "
                f"{found.mask.shape}, expected bool of the frame's shape {frame.rgb.shape[:2]}"
            )
