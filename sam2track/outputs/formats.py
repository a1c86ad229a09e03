"""The formats by name, as the command line and an editor's process know them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sam2track.errors import OptionsError

if TYPE_CHECKING:
    from sam2track.outputs.base import MaskWriter
    from sam2track.types import ObjectId
    from sam2track.video import VideoInfo


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """What there is to know of a format without writing it.

    Attributes:
        about: What it is, for the help.
        ending: What default names end with: an extension, or a folder's name without one.
    """

    about: str
    ending: str


FORMATS: dict[str, OutputFormat] = {
    "overlay": OutputFormat("The video with the masks drawn in: .mp4, .mov, .mkv (H.264).", ".overlay.mp4"),
    "png": OutputFormat("A folder of masks; several objects by palette.", ".masks"),
}


def open_writer(
    name: str,
    path: str | os.PathLike[str],
    info: VideoInfo,
    *,
    object_ids: Sequence[ObjectId],
    overwrite: bool = False,
) -> MaskWriter:
    """A writer by the format's name.

    Args:
        name: One of `FORMATS`.
        path: The output.
        info: The video that the frames come from.
        object_ids: All that there will be.
        overwrite: Whether existing outputs may be replaced.

    Raises:
        OptionsError: There is no such format.
        OutputError: See the writers.
    """
    if name not in FORMATS:
        raise OptionsError(f"got the format {name!r:.80}; expected one of {', '.join(FORMATS)}")
    outputs: Any = import_module("sam2track.outputs")
    writer: MaskWriter
    if name == "png":
        writer = outputs.PngWriter(path, info, indexed=len(object_ids) > 1, overwrite=overwrite)
    else:
        writer = outputs.OverlayWriter(path, info, overwrite=overwrite)
    return writer
