"""Writes a run's averaged weights as a checkpoint that transformers and `sam2track build` read.

python -m training.export RUN/best.pt training/nano-v1
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from training.checkpoint import load_averaged


def export(checkpoint: Path, folder: Path) -> None:
    """Writes `config.json` and `model.safetensors` in float16."""
    load_averaged(checkpoint).half().save_pretrained(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, help="best.pt or last.pt of a run")
    parser.add_argument("folder", type=Path, help="where config.json and model.safetensors go")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    export(arguments.checkpoint, arguments.folder)
