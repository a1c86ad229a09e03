"""Put a tracked object on another background with MLT, the engine of Kdenlive and Shotcut.

    python examples/composite_with_melt.py                                    # the koi on blue
    python examples/composite_with_melt.py video.mp4 --click 412 230

Writes cut.mov, ProRes with straight alpha, and composite.mp4. Needs melt (Debian's package melt). In Kdenlive and
Shotcut it is the same: cut.mov on a track above the background.
"""

import argparse
import subprocess
from pathlib import Path

import sam2track
from sam2track.outputs import MatteOptions, Prores4444Writer

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("video", nargs="?", type=Path, default=Path(__file__).parent / "clip.mp4")
parser.add_argument("--click", nargs=2, type=float, default=(180, 334), metavar=("X", "Y"))
arguments = parser.parse_args()

tracker = sam2track.Tracker(sam2track.load("nano"))
with (
    sam2track.open_video(arguments.video) as video,
    Prores4444Writer("cut.mov", video.info, matte=MatteOptions(soft=True), overwrite=True) as writer,
):
    tracker.add_prompt(next(iter(video)), points=[arguments.click])
    for frame in video:
        writer.write(frame, tracker.step(frame))

width, height, rate = video.info.width, video.info.height, video.info.average_rate or 25
profile = f"description=-\nwidth={width}\nheight={height}\nprogressive=1\ncolorspace=709\n"
profile += f"frame_rate_num={rate.numerator}\nframe_rate_den={rate.denominator}\n"
profile += f"sample_aspect_num=1\nsample_aspect_den=1\ndisplay_aspect_num={width}\ndisplay_aspect_den={height}\n"
Path("melt.profile").write_text(profile)
end = f"out={frame.frame_idx}"
layers = f"colour:#2040c0 {end} -track cut.mov -transition affine a_track=0 b_track=1 {end}"
command = f"melt -silent -profile melt.profile {layers} -consumer avformat:composite.mp4 crf=12 an=1 real_time=-1"
subprocess.run(command.split(), check=True, capture_output=True)
print(f"wrote cut.mov and composite.mp4, {frame.frame_idx + 1} frames")
