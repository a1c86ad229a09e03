"""Checkpoint -> bundle, without PyTorch. Needs the extra `sam2track[build]`."""
