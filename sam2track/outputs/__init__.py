"""Masks -> files: one module a format, all with the same few methods (`MaskWriter`).

Names are resolved on first use, so that importing this package loads neither av nor cv2.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sam2track.outputs.base import MaskWriter
    from sam2track.outputs.overlay import OverlayWriter
    from sam2track.outputs.png import PngWriter
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
    "MaskWriter",
    "OverlayWriter",
    "PngWriter",
    "Sidecar",
    "SidecarDamage",
    "SidecarFrame",
    "SidecarHeader",
    "SidecarModel",
    "SidecarObject",
    "SidecarPrompt",
    "SidecarSource",
    "SidecarWriter",
]

_MODULES = {"MaskWriter": "base", "OverlayWriter": "overlay", "PngWriter": "png"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES.get(name, 'sidecar')}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
