"""What the command line says of outputs -> where they go, and the writers."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sam2track.cli.run import Job
from sam2track.errors import OutputError, OutputExistsError
from sam2track.outputs.formats import FORMATS, open_writer

if TYPE_CHECKING:
    from sam2track.outputs import MaskWriter
    from sam2track.types import VideoInfo

SIDECAR_START = b'{"schema_version"'


@dataclass(frozen=True, slots=True)
class OutputRequest:
    """What is asked for.

    Attributes:
        output: The file or folder; None for the default.
        output_format: One of `FORMATS`.
        overwrite: Whether an output that exists may be replaced.
    """

    output: Path | None
    output_format: str
    overwrite: bool

    def paths(self, name: str) -> tuple[Path, Path]:
        """Where the masks and the sidecar go.

        Args:
            name: What they are called after, without an ending.

        Raises:
            OutputError: The output has no name, or is the sidecar.
            OutputExistsError: The sidecar exists and may not be replaced.
        """
        ending = FORMATS[self.output_format].ending
        output = self.output or Path(name + ending)
        if output.name in ("", ".."):
            raise OutputError(
                f"got the output {str(output)!r}, which is no name; expected one such as cut.mp4, or masks"
            )
        is_folder = not Path(ending[1:]).suffix
        sidecar = output.with_name(f"{output.name}.json") if is_folder else output.with_suffix(".json")
        if sidecar == output:
            raise OutputError(f"got the output {output}; .json is the scores' file, expected .mp4, .mov or .mkv")
        _refuse_existing(sidecar, self.overwrite)
        return output, sidecar

    def mask_writer(self, output: Path, info: VideoInfo, job: Job) -> MaskWriter:
        """The writer of the masks."""
        return open_writer(self.output_format, output, info, object_ids=job.object_ids, overwrite=self.overwrite)

    def sidecar_writer(self, sidecar: Path, info: VideoInfo, job: Job) -> MaskWriter:
        """The writer of the scores."""
        from sam2track.outputs import SidecarModel, SidecarPrompt, SidecarWriter

        given = [
            SidecarPrompt(
                frame_idx=prompt.frame_idx or 0,
                object_id=prompt.object_id,
                points=prompt.points,
                labels=prompt.labels if prompt.labels is not None else (1,) * len(prompt.points),
                box=prompt.box,
                mask=prompt.mask,
            )
            for prompt in job.prompts
        ]
        described = SidecarModel(name=job.model.name, sha256=job.model.bundle.sha256)
        return SidecarWriter(sidecar, info, model=described, prompts=given, overwrite=self.overwrite)


def name_of(info: VideoInfo) -> str:
    """What outputs are called after: shot.1001.png and 0001.png in shot/ both give "shot"."""
    if not info.files:
        return info.path.stem
    return Path(info.files[0]).stem.rstrip("0123456789").rstrip(" ._-") or info.path.name or "images"


def _refuse_existing(sidecar: Path, overwrite: bool) -> None:
    if not os.path.lexists(sidecar):
        return
    if not overwrite:
        raise OutputExistsError(f"{sidecar} exists; choose another output with -o, or give --overwrite")
    start = SIDECAR_START
    with suppress(OSError), sidecar.open("rb") as file:
        start = file.read(len(SIDECAR_START))
    if start != SIDECAR_START:
        raise OutputExistsError(f"{sidecar} is no file of scores and will not be replaced; choose another output")
