"""Masks -> files: one module a format, all with the same few methods (`MaskWriter`).

`open_writer` makes a writer by the format's name, as the command line does. Names are resolved on first
use, so that importing this package loads neither av nor cv2.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sam2track.matte import MatteOptions
    from sam2track.outputs.alpha_video import Prores4444Writer, Vp9AlphaWriter
    from sam2track.outputs.base import MaskWriter
    from sam2track.outputs.coco import CocoWriter
    from sam2track.outputs.cutout import CutoutWriter
    from sam2track.outputs.formats import open_writer
    from sam2track.outputs.matte_video import Ffv1MatteWriter, MatteWriter
    from sam2track.outputs.npz import NpzWriter
    from sam2track.outputs.outlines import PolygonDocument, PolygonsWriter, SvgWriter
    from sam2track.outputs.overlay import OverlayWriter
    from sam2track.outputs.png import (
        CutoutPngWriter,
        PngWriter,
        SoftPng16Writer,
        SoftPngWriter,
    )
    from sam2track.outputs.sidecar import (
        Sidecar,
        SidecarDamage,
        SidecarFrame,
        SidecarHeader,
        SidecarModel,
        SidecarObject,
        SidecarPrompt,
        SidecarSource,
        SidecarWriter,
    )

__all__ = [
    "CocoWriter",
    "CutoutPngWriter",
    "CutoutWriter",
    "Ffv1MatteWriter",
    "MaskWriter",
    "MatteOptions",
    "MatteWriter",
    "NpzWriter",
    "OverlayWriter",
    "PngWriter",
    "PolygonDocument",
    "PolygonsWriter",
    "Prores4444Writer",
    "Sidecar",
    "SidecarDamage",
    "SidecarFrame",
    "SidecarHeader",
    "SidecarModel",
    "SidecarObject",
    "SidecarPrompt",
    "SidecarSource",
    "SidecarWriter",
    "SoftPng16Writer",
    "SoftPngWriter",
    "SvgWriter",
    "Vp9AlphaWriter",
    "open_writer",
]

_MODULES = {
    "MatteOptions": "sam2track.matte",
    "Prores4444Writer": "sam2track.outputs.alpha_video",
    "Vp9AlphaWriter": "sam2track.outputs.alpha_video",
    "MaskWriter": "sam2track.outputs.base",
    "CocoWriter": "sam2track.outputs.coco",
    "CutoutWriter": "sam2track.outputs.cutout",
    "open_writer": "sam2track.outputs.formats",
    "Ffv1MatteWriter": "sam2track.outputs.matte_video",
    "MatteWriter": "sam2track.outputs.matte_video",
    "NpzWriter": "sam2track.outputs.npz",
    "PolygonDocument": "sam2track.outputs.outlines",
    "PolygonsWriter": "sam2track.outputs.outlines",
    "SvgWriter": "sam2track.outputs.outlines",
    "OverlayWriter": "sam2track.outputs.overlay",
    "CutoutPngWriter": "sam2track.outputs.png",
    "PngWriter": "sam2track.outputs.png",
    "SoftPng16Writer": "sam2track.outputs.png",
    "SoftPngWriter": "sam2track.outputs.png",
    "Sidecar": "sam2track.outputs.sidecar",
    "SidecarDamage": "sam2track.outputs.sidecar",
    "SidecarFrame": "sam2track.outputs.sidecar",
    "SidecarHeader": "sam2track.outputs.sidecar",
    "SidecarModel": "sam2track.outputs.sidecar",
    "SidecarObject": "sam2track.outputs.sidecar",
    "SidecarPrompt": "sam2track.outputs.sidecar",
    "SidecarSource": "sam2track.outputs.sidecar",
    "SidecarWriter": "sam2track.outputs.sidecar",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
