"""The formats by name, as the command line and an editor's process know them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sam2track.errors import OptionsError

if TYPE_CHECKING:
    from sam2track.matte import MatteOptions
    from sam2track.outputs.base import MaskWriter
    from sam2track.types import ObjectId
    from sam2track.video import VideoInfo


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """What there is to know of a format without writing it.

    Attributes:
        writer: Module and class within `sam2track.outputs`.
        about: What it is, for the help.
        ending: What default names end with: an extension, or a folder's name without one.
        takes: Which settings of its own it has.
    """

    writer: str
    about: str
    ending: str
    takes: tuple[str, ...] = ()

    @property
    def is_folder(self) -> bool:
        """Whether the output is a folder of files."""
        return self.ending.count(".") == 1


FORMATS: dict[str, OutputFormat] = {
    "overlay": OutputFormat(
        "overlay.OverlayWriter", "The video with the masks drawn in: .mp4, .mov, .mkv (H.264).", ".overlay.mp4"
    ),
    "matte": OutputFormat("matte_video.MatteWriter", "White on black: .mp4, .mov, .mkv (H.264).", ".matte.mp4"),
    "ffv1": OutputFormat("matte_video.Ffv1MatteWriter", "White on black, lossless: .mkv (FFV1).", ".matte.mkv"),
    "prores4444": OutputFormat("alpha_video.Prores4444Writer", "ProRes 4444 with straight alpha: .mov.", ".alpha.mov"),
    "vp9alpha": OutputFormat("alpha_video.Vp9AlphaWriter", "VP9 with straight alpha: .webm.", ".alpha.webm"),
    "cutout": OutputFormat(
        "cutout.CutoutWriter", "On a plain colour: .mp4, .mov, .mkv (H.264).", ".cutout.mp4", ("background",)
    ),
    "png": OutputFormat("png.PngWriter", "A folder of masks; several objects by palette.", ".masks"),
    "png-soft": OutputFormat("png.SoftPngWriter", "A folder of alpha as grey, 8 bits.", ".alpha"),
    "png16": OutputFormat("png.SoftPng16Writer", "The same with 16 bits.", ".alpha16"),
    "png-cutout": OutputFormat("png.CutoutPngWriter", "A folder of RGBA pictures with straight alpha.", ".cutout"),
    "coco": OutputFormat("coco.CocoWriter", "COCO run lengths: .json.", ".coco.json"),
    "npz": OutputFormat("npz.NpzWriter", "NumPy arrays: .npz.", ".masks.npz"),
    "svg": OutputFormat("outlines.SvgWriter", "A folder of outlines.", ".outlines", ("tolerance",)),
    "polygons": OutputFormat(
        "outlines.PolygonsWriter", "Outlines for roto shapes: .json.", ".polygons.json", ("tolerance",)
    ),
}


def open_writer(
    name: str,
    path: str | os.PathLike[str],
    info: VideoInfo,
    *,
    object_ids: Sequence[ObjectId],
    matte: MatteOptions | None = None,
    background: tuple[int, int, int] | None = None,
    tolerance: float | None = None,
    object_files: bool = False,
    overwrite: bool = False,
) -> MaskWriter:
    """A writer by the format's name.

    Several objects in one output: mattes, alpha, cut-outs and soft PNGs hold all of them together (at each pixel the
    largest of their alphas); PNG masks hold them by palette; all other formats hold them apart.

    Args:
        name: One of `FORMATS`.
        path: The output.
        info: The video that the frames come from.
        object_ids: All that there will be.
        matte: What is done to masks before they are written.
        background: Of a cut-out, RGB; by default black.
        tolerance: Of outlines, in pixels.
        object_files: An output for each object, its id in the name: cut.1.mov, cut.2.mov.
        overwrite: Whether existing outputs may be replaced.

    Raises:
        OptionsError: There is no such format, or it has no such setting.
        OutputError: See the writers.
    """
    if name not in FORMATS:
        raise OptionsError(f"got the format {name!r}; expected one of {', '.join(FORMATS)}")
    settings: dict[str, Any] = {"background": background, "tolerance": tolerance}
    settings = {setting: value for setting, value in settings.items() if value is not None}
    for setting in settings:
        if setting not in FORMATS[name].takes:
            users = ", ".join(other for other, known in FORMATS.items() if setting in known.takes)
            raise OptionsError(f"got a {setting} for {name}, which has none; it is for {users}")
    if name == "png" and len(object_ids) > 1 and not object_files:
        settings["indexed"] = True
    module, _, kind = FORMATS[name].writer.rpartition(".")
    writer = getattr(import_module(f"sam2track.outputs.{module}"), kind)
    make = partial(writer, info=info, matte=matte, overwrite=overwrite, **settings)
    if not object_files:
        return make(path)  # type: ignore[no-any-return]
    from sam2track.outputs.object_files import ObjectFilesWriter

    return ObjectFilesWriter(object_paths(path, object_ids), make)


def object_paths(path: str | os.PathLike[str], object_ids: Sequence[ObjectId]) -> dict[ObjectId, Path]:
    """Where each object's own output goes; characters that file names cannot hold become underscores.

    Raises:
        OptionsError: Two ids give the same name.
    """
    base = Path(path)
    paths = {one: base.with_name(f"{base.stem}.{_in_a_name(one)}{base.suffix}") for one in object_ids}
    if len({str(path).lower() for path in paths.values()}) < len(paths):
        raise OptionsError(f"the objects {', '.join(map(repr, object_ids))} cannot be told apart in file names")
    return paths


def _in_a_name(object_id: ObjectId) -> str:
    return re.sub(r'[\s/\\:*?"<>|\x00-\x1f]', "_", str(object_id))
