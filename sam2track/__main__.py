"""`python -m sam2track` is the command `sam2track`."""

from sam2track.cli import main

main()
