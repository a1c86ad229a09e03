"""One call for a whole clip with all its prompts known beforehand."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from sam2track.clip import Clip, ClipSource, Direction
from sam2track.models import Model, load
from sam2track.options import TrackingOptions
from sam2track.prompt_file import PromptEntry
from sam2track.types import FrameResult


def track_video(
    source: ClipSource,
    prompts: Iterable[PromptEntry],
    *,
    model: Model | str | os.PathLike[str] = "nano",
    direction: Direction = "forward",
    start: int = 0,
    stop: int | None = None,
    options: TrackingOptions | None = None,
) -> Iterator[FrameResult]:
    """Tracks objects through a clip. The prompts are answered at once; **tracking is lazy.**

    Args:
        source: As for `Clip`.
        prompts: On any frames; without a frame they are about frame `start`.
        model: From `load`, or what `load` takes.
        direction: "forward", "backward" or "both" from the prompts; see `Clip.track`.
        start: The first frame to track (in point).
        stop: The frame to stop before (out point); None for the end.
        options: What may be set about tracking.

    Yields:
        One result a frame in the order of tracking; going both ways a frame may come twice, its last result
        being the one that counts.

    Raises:
        PromptError: A prompt cannot be used; nothing was tracked.
        VideoError: The source cannot be read.

    Example:
        prompts = [PromptEntry(frame_idx=40, points=[(412, 230)])]
        masks = {result.frame_idx: result.objects[1].mask for result in track_video("video.mp4", prompts)}
    """
    opened = model if isinstance(model, Model) else load(model)
    clip = Clip(opened, source, options, start=start, stop=stop)
    for prompt in prompts:
        clip.add_prompt(
            object_id=prompt.object_id, frame_idx=prompt.frame_idx, time_s=prompt.time_s, **prompt.arguments()
        )
    return clip.track(direction)
