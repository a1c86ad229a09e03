"""What all writers of JSON documents have in common: they are written as frames come, a line each.

A clip of any length needs no more memory than one frame, and `grep` works on the file.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from sam2track.errors import OutputError
from sam2track.matte import MatteOptions
from sam2track.outputs.atomic import PendingOutput
from sam2track.outputs.base import AtomicWriter
from sam2track.types import ObjectId

if TYPE_CHECKING:
    from sam2track.video import VideoInfo


class DocumentWriter(AtomicWriter):
    """A JSON document that ends in one long list."""

    extension: ClassVar[str | None] = None  # that its name must have

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
            path: The output.
            info: The tracked video.
            matte: What is done to masks before they are described; by default nothing.
            overwrite: Whether an existing file may be replaced; the source never is.

        Raises:
            OptionsError: A soft edge is asked of a format that has none.
            OutputExistsError: The output exists and `overwrite` is False.
            OutputError: Another extension, the output is the source, or it cannot be written.
        """
        self._matte = self._checked(matte)
        if self.extension is not None and Path(path).suffix.lower() != self.extension:
            raise OutputError(
                f"cannot write {path}: got the extension {Path(path).suffix!r}, expected {self.extension}"
            )
        super().__init__(PendingOutput(path, overwrite=overwrite, sources=[info.path]))
        with self._guarded("starting it"):
            self._file = self._pending.temporary.open("w", encoding="utf-8", newline="\n")
            self._separator = "\n"

    def _write_head(self, text: str) -> None:
        self._file.write(text)

    def _write_lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._file.write(self._separator + line)
            self._separator = ",\n"

    def _tail(self) -> str:
        """What ends the document."""
        return "\n]}\n"

    def _finish(self) -> None:
        self._file.write(self._tail())
        self._file.close()

    def _release(self) -> None:
        # Never opened, or what was left to write does not fit on the disk.
        with suppress(AttributeError, OSError):
            self._file.close()


def json_id(object_id: ObjectId) -> int | str:
    """An object's id as JSON can hold it.

    Raises:
        OutputError: It is neither an integer nor a string.
    """
    if isinstance(object_id, str):
        return object_id
    try:
        return operator.index(object_id)  # type: ignore[arg-type]  # int, or NumPy's
    except TypeError:
        raise OutputError(f"object id {object_id!r}: JSON can hold an integer or a string only") from None
