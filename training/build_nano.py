"""Builds the built-in model's bundles from its checkpoint.

    python training/build_nano.py

Reads `training/nano-v0/`, writes `graphs/nano-fp16/`, `graphs/nano-fp32/` and `constants/nano.json`. The
constants are the same for both precisions and stand once, outside the bundles' folders. The same checkpoint
gives the same bytes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sam2track.build.bundle import build_bundle
from sam2track.build.checkpoint import read_checkpoint
from sam2track.build.writer import Precision

ROOT = Path(__file__).resolve().parent.parent
CHECKPOINT = ROOT / "training" / "nano-v0"


def build_nano(root: Path) -> None:
    """Writes the bundles and the constants below `root`."""
    checkpoint = read_checkpoint(CHECKPOINT)
    for folder in ("graphs", "constants"):
        (root / folder).mkdir(exist_ok=True)
    for precision in Precision:
        bundle = root / "graphs" / f"nano-{precision.value}"
        build_bundle(checkpoint, bundle, precision, name="nano", overwrite=True)
        (bundle / "constants.json").replace(root / "constants" / "nano.json")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="where graphs/ and constants/ go (the checkout)")
    build_nano(parser.parse_args().root)
