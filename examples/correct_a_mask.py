"""Prompt in the middle of a clip, track both ways, correct a frame, and save the state to go on with later.

    python examples/correct_a_mask.py                # the koi in the example clip
    python examples/correct_a_mask.py -o FILE

The correction is seen at once. Then only what it can change is tracked again: the frames from it to the end.
"""

import argparse
from pathlib import Path

import sam2track

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("video", nargs="?", type=Path, default=Path(__file__).parent / "clip.mp4")
parser.add_argument("-o", "--output", type=Path, default=Path("koi.sam2clip"))
arguments = parser.parse_args()

model = sam2track.load("nano")
clip = sam2track.Clip(model, arguments.video)
middle = len(clip.frames) // 2

clip.add_prompt([(180, 334)], frame_idx=0)
print(f"tracked {sum(1 for _ in clip.track())} frames")

before = clip.result(middle).objects[1].mask
y, x = (int(values.mean()) for values in before.nonzero())
preview = clip.add_prompt([(x, y), (5, 5)], labels=[1, 0], frame_idx=middle)  # on the koi, not in the corner
print(f"frame {middle}: {before.sum()} pixels before, {preview.mask.sum()} after the correction")
print(f"tracked {sum(1 for _ in clip.track())} frames again")

clip.undo(frame_idx=middle)
clip.save(arguments.output, overwrite=True)
restored = sam2track.Clip.restore(arguments.output, model, arguments.video)
print(f"wrote {arguments.output}, with masks of {sum(1 for _ in restored.results())} frames")
