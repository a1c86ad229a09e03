"""Click an object in a video frame, get its mask through the whole video.

import sam2track

model = sam2track.load("nano")
tracker = sam2track.Tracker(model)
preview = tracker.add_prompt(frame, points=[(412, 230)])
for result in tracker.track(frames):
    result.objects[1].mask
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sam2track.version import __version__

if TYPE_CHECKING:
    from sam2track.clip import Clip
    from sam2track.errors import Sam2TrackError
    from sam2track.image_sequence import open_images
    from sam2track.models import Model, load
    from sam2track.options import TrackingOptions
    from sam2track.prompt_file import PromptEntry
    from sam2track.stream import open_stream
    from sam2track.track_video import track_video
    from sam2track.tracker import Tracker
    from sam2track.types import FrameResult, ObjectResult, TrackEvent, VideoFrame
    from sam2track.video import open_video

__all__ = [
    "Clip",
    "FrameResult",
    "Model",
    "ObjectResult",
    "PromptEntry",
    "Sam2TrackError",
    "TrackEvent",
    "Tracker",
    "TrackingOptions",
    "VideoFrame",
    "__version__",
    "load",
    "open_images",
    "open_stream",
    "open_video",
    "track_video",
]

_HOME = {
    "Clip": "clip",
    "FrameResult": "types",
    "Model": "models",
    "ObjectResult": "types",
    "PromptEntry": "prompt_file",
    "Sam2TrackError": "errors",
    "TrackEvent": "types",
    "Tracker": "tracker",
    "TrackingOptions": "options",
    "VideoFrame": "types",
    "load": "models",
    "open_images": "image_sequence",
    "open_stream": "stream",
    "open_video": "video",
    "track_video": "track_video",
}


def __getattr__(name: str) -> object:
    # Importing the package costs nothing: numpy, pydantic and the rest come with the first use.
    if name not in _HOME:
        raise AttributeError(f"module 'sam2track' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"sam2track.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
