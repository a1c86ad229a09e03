"""What a user may set about tracking; the defaults are those of the README."""

from __future__ import annotations

from dataclasses import dataclass

from sam2track.errors import OptionsError


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingOptions:
    """Options of a tracker; all objects of it share them.

    Attributes:
        fill_holes: Fill holes of at most so many logit pixels in the masks that are returned (the official
            predictor's default is 8). 0 returns exactly what logits > 0 says. Memory never sees it.
        max_conditioning_frames: How many prompted frames of an object a frame attends to: the earliest one
            and the nearest others. None is all of them, as in the references.
        keep_corrections: Whether a prompt on a frame that was tracked already makes it a prompted frame, so
            that it stays and carries on. False is the official default: the next pass over it forgets it.
        memory_min_iou: Keep frames without the object, or whose predicted IoU is lower, out of the memory;
            the six nearest others take their place. None remembers every frame, as the references do.
        report_min_iou: Report an empty mask where the predicted IoU is lower. None reports every mask.
    """

    fill_holes: int = 0
    max_conditioning_frames: int | None = 4
    keep_corrections: bool = True
    memory_min_iou: float | None = None
    report_min_iou: float | None = None

    def __post_init__(self) -> None:
        if not _is_whole(self.fill_holes) or self.fill_holes < 0:
            raise OptionsError(f"got fill_holes {self.fill_holes!r}; expected 0 (off) or more logit pixels")
        limit = self.max_conditioning_frames
        if limit is not None and (not _is_whole(limit) or limit < 1):
            raise OptionsError(f"got max_conditioning_frames {limit!r}; expected 1 or more, or None for all")
        if not isinstance(self.keep_corrections, bool):
            raise OptionsError(f"got keep_corrections {self.keep_corrections!r}; expected True or False")
        for name in ("memory_min_iou", "report_min_iou"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, (int, float)) or not 0 <= value <= 1):
                raise OptionsError(f"got {name} {value!r}; expected an IoU from 0 to 1, or None")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
