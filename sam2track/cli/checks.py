"""What cannot be done is refused before any work, not when its frame is reached."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sam2track.cli.run import Asked, Job
from sam2track.errors import PromptError

if TYPE_CHECKING:
    from sam2track.cli.run import Source
    from sam2track.image_sequence import ImageSequence
    from sam2track.models import Model
    from sam2track.types import VideoInfo
    from sam2track.video import Video


def check(job: Job, source: Source, prompts: Sequence[Asked]) -> None:
    """Refuses what cannot be done before any work.

    Args:
        job: What is to be done.
        source: With what.
        prompts: The job's, with where they stand.

    Raises:
        PromptError: A prompt or the range cannot be used with this source.
    """
    from sam2track.stream import VideoStream

    if job.stop is not None and job.stop <= job.start:
        raise PromptError(f"the range ends before frame {job.stop} and begins at {job.start}; expected it to end later")
    if not isinstance(source, VideoStream):
        _check_range(job, prompts, source)
    elif job.direction != "forward" or job.start or len(job.prompted) > 1:
        raise PromptError(
            "a live source goes forward from its first frame, with the prompts on one frame; leave out --start, "
            "--backward and --both"
        )
    _check_prompts(prompts, source.info, job.model)


def _check_range(job: Job, prompts: Sequence[Asked], source: Video | ImageSequence) -> None:
    """Frame 0 is always there; the others are only looked for if they are asked for."""
    from sam2track.video import Video

    ends = (job.stop or 1) - 1
    count = source.num_frames if max(job.start, ends, *job.prompted) > 0 else 1
    is_damaged = isinstance(source, Video) and count > 1 and source.damage is not None  # an end behind it is fine
    for name, idx in (("starts", job.start), ("ends", job.start if is_damaged else ends)):
        if idx >= count:
            raise PromptError(f"the range {name} at frame {idx}, but the video has {count} frames, numbered from 0")
    for asked in prompts:
        idx = asked.prompt.frame_idx or 0
        with asked.named():
            if idx >= count:
                raise PromptError(f"got a prompt on frame {idx}, but the video has {count} frames, numbered from 0")
            if not job.start <= idx < (job.stop or sys.maxsize):
                end = "the end" if job.stop is None else f"before frame {job.stop}"
                raise PromptError(f"got a prompt on frame {idx}, outside the range from frame {job.start} to {end}")


def _check_prompts(prompts: Sequence[Asked], info: VideoInfo, model: Model) -> None:
    """Refuses bad prompts before any work, not when their frame is reached."""
    from sam2track.prompts import make_prompt, merge_prompts
    from sam2track.types import Prompt

    so_far: dict[tuple[int | str, int | None], Prompt] = {}
    for asked in prompts:
        place = (asked.prompt.object_id, asked.prompt.frame_idx)
        with asked.named():
            made = make_prompt((info.height, info.width), model.constants.image_size, **asked.prompt.arguments())
            so_far[place] = merge_prompts(so_far.get(place), made, refines=place in so_far)
