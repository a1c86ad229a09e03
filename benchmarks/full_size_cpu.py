"""SAM 2.1 Hiera-Tiny's dimensions at 512 on the CPU: ours in float32 against transformers on PyTorch.

    python benchmarks/full_size_cpu.py --frames 12 --rounds 3 --threads 2

Random weights (official ones change the numbers, not the work), one object, one click on frame 0. In each round
both variants run, each in a fresh process as its users run it: two runtimes in one process share an allocator and
fight over cores with their idle threads. A process tracks the clip twice and measures the second time; medians over
the frames that see a full memory, from the eighth on. Frames are decoded and preprocessed before the clock starts,
for both; writing is not part of it. Peak memory is that of the same processes after the first pass. Needs the extra
`test`.
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
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))  # the reference network lives with the parity tests

STAGES = ("vision encoder", "memory attention", "mask decoder", "memory encoder")
FULL_MEMORY = 7  # frames before the first one that sees a full memory: one prompted, six recent
CLICK = (180.0, 334.0)  # the koi of examples/clip.mp4
SIZE = 512


class Stopwatch:
    """Times of calls by stage, for methods wrapped while a variant runs."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = defaultdict(list)

    def wrap(self, owner: Any, method: str, stage: str) -> Any:
        """A patch that times `owner.method` as `stage`."""
        original = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            result = original(*args, **kwargs)
            self.times[stage].append(1e3 * (time.perf_counter() - start))
            return result

        return mock.patch.object(owner, method, timed)


class Ours:
    """The package's loop."""

    name = "sam2track"

    def __init__(self, threads: int, bundle: Path) -> None:
        import sam2track

        self.model = sam2track.load(bundle, device="cpu", num_threads=threads)
        methods = ("encode_image", "attend", "decode", "encode_memory")
        self.stages = [(self.model.graphs, method, stage) for method, stage in zip(methods, STAGES, strict=True)]

    def track(self, frames: list[Any], tick: Callable[[], None]) -> list[Any]:
        """Masks of all frames; `tick` after each."""
        import sam2track
        from sam2track.preprocess import frame_to_pixel_values

        prepared = {id(rgb): frame_to_pixel_values(rgb, self.model.constants) for rgb in frames}
        tracker = sam2track.Tracker(self.model, num_frames=len(frames))
        masks = []
        with mock.patch("sam2track.tracker.frame_to_pixel_values", lambda rgb, _constants: prepared[id(rgb)]):
            tracker.add_prompt(frames[0], points=[CLICK])
            for result in tracker.track(frames):
                masks.append(result.objects[1].mask)
                tick()
        return masks


class Torch:
    """transformers' own video inference."""

    name = "transformers"

    def __init__(self, threads: int, bundle: Path) -> None:
        import reference
        import torch

        from sam2track.models import read_bundle

        torch.set_num_threads(threads)
        self.constants = read_bundle(bundle).constants
        self.model = reference.full_size_model(SIZE)
        self.stages = [
            (self.model, "get_image_features", STAGES[0]),
            (self.model.memory_attention, "forward", STAGES[1]),
            (self.model, "_single_frame_forward", STAGES[2]),
            (self.model, "_encode_new_memory", STAGES[3]),
        ]

    def track(self, frames: list[Any], tick: Callable[[], None]) -> list[Any]:
        """Masks of all frames; `tick` after each."""
        import reference
        import torch

        from sam2track.preprocess import frame_to_pixel_values

        height, width = frames[0].shape[:2]
        video = [torch.from_numpy(frame_to_pixel_values(rgb, self.constants))[0] for rgb in frames]
        session = reference.Sam2VideoInferenceSession(
            video=torch.stack(video), video_height=height, video_width=width, dtype=torch.float32
        )
        scaled = [CLICK[0] * SIZE / width, CLICK[1] * SIZE / height]
        inputs = {"point_coords": torch.tensor([[[scaled]]]), "point_labels": torch.ones(1, 1, 1, dtype=torch.int32)}
        session.add_point_inputs(session.obj_id_to_idx(1), 0, inputs)
        session.obj_with_new_inputs = [1]
        masks = []
        with torch.inference_mode():
            for frame_idx in range(len(frames)):
                output = self.model(session, frame_idx=frame_idx)
                resized = torch.nn.functional.interpolate(output.pred_masks, (height, width), mode="bilinear")
                masks.append(resized[0, 0].numpy() > 0)
                tick()
        return masks


VARIANTS = {"ours": Ours, "torch": Torch}


def read_frames(count: int) -> list[Any]:
    """The first frames of the example clip."""
    import sam2track

    with sam2track.open_video(ROOT / "examples" / "clip.mp4") as video:
        return [frame.rgb for frame in itertools.islice(video, count)]


def build_full_size(folder: Path) -> Path:
    """The random full-size network as a float32 bundle."""
    import reference

    from sam2track.build.bundle import build_bundle
    from sam2track.build.checkpoint import Checkpoint
    from sam2track.build.writer import Precision

    config, weights = reference.network_of(reference.full_size_model(SIZE))
    build_bundle(Checkpoint(config, weights, "random weights", "0" * 64), folder / "full", Precision.FP32)
    return folder / "full"


def timed_run(variant: Any, frames: list[Any]) -> tuple[dict[str, list[float]], list[Any]]:
    """Times of frames with a full memory by stage and in all, and the masks of all frames."""
    watch, ticks = Stopwatch(), []
    patches = [watch.wrap(*stage) for stage in variant.stages]
    for patch in patches:
        patch.start()
    masks = variant.track(frames, lambda: ticks.append(time.perf_counter()))
    for patch in patches:
        patch.stop()
    measured = len(frames) - FULL_MEMORY
    times = {stage: watch.times[stage][-measured:] for stage in STAGES}
    times["whole frame"] = [1e3 * (after - before) for before, after in itertools.pairwise(ticks)][-measured:]
    return times, masks


def run_alone(name: str, bundle: Path, masks: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Times and peak memory of a process that runs one variant alone; its masks go to a file."""
    command = [sys.executable, __file__, "--alone", name, "--bundle", str(bundle), "--masks", str(masks)]
    command += ["--frames", str(arguments.frames), "--threads", str(arguments.threads)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    measured: dict[str, Any] = json.loads(output.splitlines()[-1])
    return measured


def alone(arguments: argparse.Namespace) -> dict[str, Any]:
    """What such a process does: a pass to warm up, then one that counts."""
    import numpy as np

    frames = read_frames(arguments.frames)
    variant = VARIANTS[arguments.alone](arguments.threads, arguments.bundle)
    timed_run(variant, frames)
    peak = own_peak_mb()
    times, masks = timed_run(variant, frames)
    np.save(arguments.masks, np.stack(masks))
    return {"times": times, "peak_mb": peak}


def own_peak_mb() -> float:
    """Peak resident memory of this process; getrusage would count the parent's at the fork."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024


def main() -> None:
    """Runs the benchmark, or with --alone one variant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=12, help=f"more than {FULL_MEMORY}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--alone", choices=list(VARIANTS), help=argparse.SUPPRESS)
    parser.add_argument("--bundle", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--masks", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        print(json.dumps(alone(arguments)))
        return
    with tempfile.TemporaryDirectory() as folder:
        report(arguments, build_full_size(Path(folder)), Path(folder))


def report(arguments: argparse.Namespace, bundle: Path, folder: Path) -> None:
    """Alternates the variants and prints medians, ratios, agreement and memory."""
    import numpy as np
    import onnxruntime
    import reference
    import torch

    import sam2track

    times: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in VARIANTS}
    memory: dict[str, float] = dict.fromkeys(VARIANTS, 0.0)
    for _ in range(arguments.rounds):
        for name in VARIANTS:
            measured = run_alone(name, bundle, folder / f"{name}.npy", arguments)
            memory[name] = max(memory[name], measured["peak_mb"])
            for stage, values in measured["times"].items():
                times[name][stage] += values
    masks = [np.load(folder / f"{name}.npy") for name in VARIANTS]
    agreement = [reference.intersection_over_union(*pair) for pair in zip(*masks, strict=True)]
    medians = {
        name: {stage: statistics.median(values) for stage, values in stages.items()} for name, stages in times.items()
    }
    result = {
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        "threads": arguments.threads,
        "onnxruntime": f"{onnxruntime.__version__}, {sam2track.load(bundle, device='cpu').provider}, float32",
        "torch": f"{torch.__version__}, float32",
        "input": SIZE,
        "frames": (arguments.frames - FULL_MEMORY) * arguments.rounds,
        "median_ms": medians,
        "peak_mb": memory,
        "mask_iou": {"min": min(agreement), "mean": float(np.mean(agreement))},
    }
    if arguments.json:
        print(json.dumps(result, indent=1))
        return
    for key in ("machine", "threads", "onnxruntime", "torch", "input", "frames"):
        print(f"{key:16} {result[key]}")
    print(f"\n{'ms a frame':18}{'sam2track':>12}{'transformers':>14}{'ratio':>8}")
    for stage in (*STAGES, "whole frame"):
        left, right = medians["ours"][stage], medians["torch"][stage]
        print(f"{stage:18}{left:12.1f}{right:14.1f}{left / right:8.2f}")
    left, right = memory["ours"], memory["torch"]
    print(f"{'peak memory, MB':18}{left:12.0f}{right:14.0f}{left / right:8.2f}")
    print(f"\nmasks agree: IoU min {min(agreement):.5f}, mean {np.mean(agreement):.5f} over {len(agreement)} frames")


if __name__ == "__main__":
    main()
