"""Put a tracked object on another background: a matte from sam2track, composited by the ffmpeg program.

    python examples/composite_with_ffmpeg.py                                  # the koi on blue
    python examples/composite_with_ffmpeg.py video.mp4 --click 412 230 --background black

Writes matte.mp4, white on black, and composite.mp4. Needs ffmpeg on the path. For a picture as the
background, replace the first input by: -loop 1 -i beach.jpg, and scale it to the video's size.
"""

import argparse
import subprocess
from pathlib import Path

import sam2track
from sam2track.outputs import MatteOptions, MatteWriter

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("video", nargs="?", type=Path, default=Path(__file__).parent / "clip.mp4")
parser.add_argument("--click", nargs=2, type=float, default=(180, 334), metavar=("X", "Y"))
parser.add_argument("--background", default="0x2040c0", help="a colour as ffmpeg knows it")
arguments = parser.parse_args()

tracker = sam2track.Tracker(sam2track.load("nano"))
with (
    sam2track.open_video(arguments.video) as video,
    MatteWriter("matte.mp4", video.info, matte=MatteOptions(soft=True), overwrite=True) as writer,
):
    tracker.add_prompt(next(iter(video)), points=[arguments.click])
    for frame in video:
        writer.write(frame, tracker.step(frame))

colour = f"color={arguments.background}:s={video.info.width}x{video.info.height}:r={video.info.average_rate}"
inputs = ["-f", "lavfi", "-i", colour, "-i", str(arguments.video), "-i", "matte.mp4"]
layers = "[1:v][2:v]alphamerge[cut]; [0:v][cut]overlay=format=rgb:shortest=1,scale=out_color_matrix=bt709[out]"
output = ["-map", "[out]", "-map", "1:a?", "-c:a", "copy", "-crf", "12", "-pix_fmt", "yuv420p", "-colorspace", "bt709"]
command = ["ffmpeg", "-y", "-v", "error", *inputs, "-filter_complex", layers, *output, "composite.mp4"]
subprocess.run(command, check=True)
print("wrote matte.mp4 and composite.mp4")
