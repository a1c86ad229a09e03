"""Track through frames that are in no file and have no end: a camera, a stream, or here a picture drawn on the fly.

    python examples/frames_from_a_generator.py

Frames are numpy arrays, (height, width, 3) uint8 RGB. Each result is computed when it is asked for: stopping is as
simple as leaving the loop, and memory does not grow however long it runs.
"""

import itertools
from collections.abc import Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

import sam2track

WIDTH, HEIGHT = 320, 240


def camera() -> Iterator[NDArray[np.uint8]]:
    """An orange ball rolling to the right over a green table, for ever."""
    table = np.random.default_rng(0).integers(60, 90, (HEIGHT, WIDTH, 3)).astype(np.uint8) + np.array([0, 40, 0], "u1")
    for tick in itertools.count():
        yield cv2.circle(table.copy(), (60 + 12 * tick, 130), 30, (230, 120, 30), thickness=-1, lineType=cv2.LINE_AA)


frames = camera()
tracker = sam2track.Tracker(sam2track.load("nano"))
first_frame = next(frames)
tracker.add_prompt(first_frame, points=[(60, 130)])

for result in tracker.track(itertools.chain([first_frame], frames)):
    mask = result.objects[1].mask
    y, x = np.nonzero(mask)
    print(f"frame {result.frame_idx}: the ball is at x = {x.mean():.0f}, y = {y.mean():.0f}, {mask.sum()} pixels")
    if not mask.any() or x.mean() > WIDTH / 2:
        break
print("stopped; the camera would have gone on")
