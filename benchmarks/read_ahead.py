"""What reading ahead gains: the built-in model through the example clip, three ways, alternated.

    python benchmarks/read_ahead.py --rounds 5 --threads 1

Milliseconds a frame, decoding included, writing not; the least and the median of the rounds. The masks must be equal.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import sam2track
from sam2track.preprocess import prepare_frame
from sam2track.read_ahead import read_ahead
from sam2track.types import VideoFrame

CLIP = Path(__file__).parent.parent / "examples" / "clip.mp4"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--video", default=CLIP, type=Path)
    parser.add_argument("--click", default="180,334")
    parser.add_argument("--model", default="nano")
    parser.add_argument("--frames", default=40, type=int)
    parser.add_argument("--rounds", default=5, type=int)
    parser.add_argument("--threads", default=0, type=int, help="of ONNX Runtime; 0 lets it decide")
    given = parser.parse_args()
    model = sam2track.load(given.model, num_threads=given.threads)
    point = [tuple(float(number) for number in given.click.split(","))]
    video = sam2track.open_video(given.video)

    def plain() -> Iterator[VideoFrame]:
        return video.frames(0, given.frames)

    def prepared() -> Iterator[VideoFrame]:
        return (prepare_frame(frame, model.constants) for frame in plain())

    ways: dict[str, Callable[[], Iterator[VideoFrame]]] = {
        "one after the other": plain,
        "decoding ahead": lambda: read_ahead(plain()),
        "decoding and preprocessing ahead": lambda: read_ahead(prepared()),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    areas: dict[str, list[int]] = {}
    for _ in range(given.rounds):
        for name, frames in ways.items():
            tracker = sam2track.Tracker(model)
            tracker.add_prompt(video.frame(0), point)
            started = time.perf_counter()
            areas[name] = [int(result.objects[1].mask.sum()) for result in tracker.track(frames())]
            times[name].append((time.perf_counter() - started) * 1000 / len(areas[name]))
    assert len(set(map(tuple, areas.values()))) == 1, "the masks differ"
    print(
        f"{model.provider}, {given.threads or 'default'} threads, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )
    first = min(times["one after the other"])
    for name, found in times.items():
        least = min(found)
        print(f"{name:34} min {least:7.2f}  median {statistics.median(found):7.2f}  {least / first:5.2f} of the first")


if __name__ == "__main__":
    main()
