"""The command line: the only part of the package that prints or exits."""

from __future__ import annotations

from sam2track.cli.app import main

__all__ = ["main"]
