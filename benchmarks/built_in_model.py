"""The built-in model end to end: from the command to the finished video, and memory over a long stream.

    python benchmarks/built_in_model.py --repeats 3 --stream-frames 1000

The command is what a user types, in a process of its own: start of Python, loading, decoding, tracking,
drawing, encoding and writing are all in its time. "While running" leaves out start and loading. The stream
repeats the example clip's frames without end in this process and prints resident memory as it goes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
CLIP = ROOT / "examples" / "clip.mp4"
CLICK = (180, 334)


def run_command(clip: Path, extra: list[str]) -> tuple[float, int]:
    """Seconds and frames of one run of the command line."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "sam2track", str(clip), "--click", f"{CLICK[0]},{CLICK[1]}", "--json", *extra]
        start = time.perf_counter()
        output = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
        return time.perf_counter() - start, json.loads(output)["frames"]


def stream_memory(frames: int, threads: int) -> dict[int, float]:
    """Resident memory in MB after so many frames of an endless stream."""
    import sam2track

    with sam2track.open_video(CLIP) as video:
        pictures = [frame.rgb for frame in video]
    tracker = sam2track.Tracker(sam2track.load("nano", device="cpu", num_threads=threads))
    tracker.add_prompt(pictures[0], points=[CLICK])
    process, memory = psutil.Process(), {}
    marks = {100, *range(250, frames + 1, 250), frames}
    stream = itertools.islice(itertools.cycle(pictures), frames)
    for result in tqdm(tracker.track(stream), total=frames, unit="frame", disable=None):
        if result.frame_idx + 1 in marks:
            memory[result.frame_idx + 1] = process.memory_info().rss / 1e6
    return memory


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clip", type=Path, default=CLIP, help="another clip; the click stays the same")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="0 lets ONNX Runtime decide")
    parser.add_argument("--stream-frames", type=int, default=1000)
    arguments = parser.parse_args()
    import onnxruntime

    runs = [run_command(arguments.clip, ["--threads", str(arguments.threads)]) for _ in range(arguments.repeats)]
    seconds, frames = statistics.median(run[0] for run in runs), runs[0][1]
    print(f"machine          {platform.processor() or platform.machine()}, {os.cpu_count()} cores, {platform.system()}")
    print(f"onnxruntime      {onnxruntime.__version__}, CPUExecutionProvider, float32, threads {arguments.threads}")
    print(f"clip             {arguments.clip.name}, {frames} frames, one object, overlay video written")
    print(f"command          {seconds:.2f} s median of {arguments.repeats}: {frames / seconds:.1f} frames a second")
    print(f"                 {', '.join(f'{run[0]:.2f}' for run in runs)} s")
    if arguments.stream_frames:
        for count, megabytes in stream_memory(arguments.stream_frames, arguments.threads).items():
            print(f"memory           {megabytes:.1f} MB after {count} frames")


if __name__ == "__main__":
    main()
