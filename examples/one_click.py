"""Click an object once, get its mask on every frame.

    python examples/one_click.py                                  # the koi in the example clip
    python examples/one_click.py video.mp4 --click 412 230        # x and y, in pixels of the first frame

Draws the mask into a copy of the video, one_click.mp4 in the current folder, and prints how sure the model is.
"""

import argparse
from pathlib import Path

import sam2track
from sam2track.outputs import OverlayWriter

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("video", nargs="?", type=Path, default=Path(__file__).parent / "clip.mp4")
parser.add_argument("--click", nargs=2, type=float, default=[180, 334], metavar=("X", "Y"))
parser.add_argument("-o", "--output", type=Path, default=Path("one_click.mp4"))
arguments = parser.parse_args()

model = sam2track.load("nano")
tracker = sam2track.Tracker(model)

with (
    sam2track.open_video(arguments.video) as video,
    OverlayWriter(arguments.output, video.info, overwrite=True) as writer,
):
    for frame in video:
        if frame.frame_idx == 0:
            tracker.add_prompt(frame, points=[arguments.click])
        result = tracker.step(frame)
        writer.write(frame, result)

        found = result.objects[1]  # objects are numbered from 1, unless you give them an id
        presence = "in sight" if found.object_score > 0 else "not in sight"
        print(f"frame {frame.frame_idx}: {presence}, score {found.object_score:.1f}, {found.mask.sum()} pixels")

print(f"wrote {arguments.output}")
