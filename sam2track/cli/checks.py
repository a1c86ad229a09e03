"""What cannot be done is refused before any work, not when its frame is reached."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sam2track.cli.run import Job
from sam2track.errors import PromptError

if TYPE_CHECKING:
    from sam2track.cli.run import Source
    from sam2track.image_sequence import ImageSequence
    from sam2track.models import Model
    from sam2track.prompt_file import PromptEntry
    from sam2track.types import VideoInfo
    from sam2track.video import Video


def check(job: Job, source: Source) -> None:
    """Refuses what cannot be done before any work.

    Raises:
        PromptError: A prompt or the range cannot be used with this source.
    """
    from sam2track.stream import VideoStream

    if job.stop is not None and job.stop <= job.start:
        raise PromptError(
            f"got --stop at frame {job.stop} and --start at frame {job.start}; expected it after the start"
        )
    if not isinstance(source, VideoStream):
        _check_range(job, source)
    elif job.direction != "forward" or job.start or len(job.prompted) > 1:
        raise PromptError("a live source goes forward from its first frame, with the prompts on one frame")
    _check_prompts(job.prompts, source.info, job.model)


def _check_range(job: Job, source: Video | ImageSequence) -> None:
    """Frame 0 is always there; the others are only looked for if they are asked for."""
    named = [job.start, *job.prompted, (job.stop or 1) - 1]
    if max(named) > 0 and max(named) >= (count := source.num_frames):
        raise PromptError(f"got frame {max(named)}, but the video has {count} frames, numbered from 0")
    for idx in job.prompted:
        if not job.start <= idx < (job.stop or sys.maxsize):
            raise PromptError(
                f"got a prompt on frame {idx}, outside the range from --start {job.start} to --stop {job.stop}"
            )


def _check_prompts(prompts: list[PromptEntry], info: VideoInfo, model: Model) -> None:
    """Refuses bad prompts before any work, not when their frame is reached."""
    from sam2track.prompts import make_prompt, merge_prompts
    from sam2track.types import Prompt

    so_far: dict[tuple[int | str, int | None], Prompt] = {}
    for prompt in prompts:
        place = (prompt.object_id, prompt.frame_idx)
        made = make_prompt((info.height, info.width), model.constants.image_size, **prompt.arguments())
        so_far[place] = merge_prompts(so_far.get(place), made, refines=place in so_far)
