"""Track two objects at once and write their masks as PNG files, for an editor or an annotation tool.

    python examples/two_objects.py                # the koi and the duck in the example clip
    python examples/two_objects.py -o FOLDER

Writes one PNG a frame into the folder two_objects: 0 where there is neither, 1 on the koi, 2 on the duck. The
files have a palette, so that they look red and green in any viewer.
"""

import argparse
from pathlib import Path

import sam2track
from sam2track.outputs import PngWriter

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("video", nargs="?", type=Path, default=Path(__file__).parent / "clip.mp4")
parser.add_argument("-o", "--output", type=Path, default=Path("two_objects"))
arguments = parser.parse_args()

model = sam2track.load("nano")
tracker = sam2track.Tracker(model)

with (
    sam2track.open_video(arguments.video) as video,
    PngWriter(arguments.output, indexed=True, overwrite=True) as writer,
):
    first_frame = next(iter(video))
    tracker.add_prompt(first_frame, points=[(180, 334)], object_id="koi")
    tracker.add_prompt(first_frame, points=[(726, 118)], object_id="duck")
    for frame in video:  # from the first one again
        writer.write(frame, tracker.step(frame))

print(f"wrote {len(list(arguments.output.iterdir()))} masks into {arguments.output}:")
for value, name in enumerate(tracker.object_ids, start=1):
    print(f"  {value} is the {name}")
