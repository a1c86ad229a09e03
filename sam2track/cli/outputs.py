"""What the command line says of outputs -> where they go, and the writers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sam2track.cli.run import Job
from sam2track.errors import OutputError, OutputExistsError
from sam2track.outputs.formats import FORMATS, object_paths, open_writer

if TYPE_CHECKING:
    from sam2track.matte import MatteOptions
    from sam2track.outputs import MaskWriter
    from sam2track.types import VideoInfo

    _ColourType = click.ParamType[tuple[int, int, int]]
else:
    _ColourType = click.ParamType  # not generic in older versions

_Command = TypeVar("_Command", bound=Callable[..., Any])

SIDECAR_START = b'{"schema_version":1,"source"'
_COLOURS = {
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "grey": (128, 128, 128),
    "green": (0, 255, 0),
    "blue": (0, 0, 255),
}


class Colour(_ColourType):
    """A colour as RGB."""

    name = "colour"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int, int]:
        """A name or #rrggbb."""
        text = str(value).lower()
        if text in _COLOURS:
            return _COLOURS[text]
        if not re.fullmatch(r"#?[0-9a-f]{6}", text):
            self.fail(f"got {value!r}; expected {', '.join(_COLOURS)}, or a colour such as #00b140", param, ctx)
        red, green, blue = bytes.fromhex(text.removeprefix("#"))
        return red, green, blue


_PIXELS = click.IntRange(0, 256)
_OPTIONS = (
    click.option("-o", "--output", type=click.Path(path_type=Path),
                 help="File or folder. [default: VIDEO's name in the current folder]"),
    click.option("--format", "output_format", type=click.Choice(list(FORMATS)), default="overlay", show_default=True,
                 metavar="NAME", help="See below."),
    click.option("--object-files", is_flag=True,
                 help="An output for each object, its id in the name: cut.1.mov, cut.2.mov."),
    click.option("--background", type=Colour(), help="Of cutout: black (default), white, green, ... or #00b140."),
    click.option("--tolerance", type=click.FloatRange(0, 1000), metavar="PIXELS",
                 help="Of svg and polygons: how far outlines may be from exact ones. [default: 1]"),
    click.option("--overwrite", is_flag=True, help="Replace an output that exists."),
    click.option("--soft", is_flag=True, help="A soft edge, from the model's logits."),
    click.option("--feather", type=click.FloatRange(0, 256), default=0, metavar="PIXELS",
                 help="Blur the edge: sigma of a Gaussian."),
    click.option("--grow", type=_PIXELS, default=0, metavar="PIXELS", help="Move the edge outwards."),
    click.option("--shrink", type=_PIXELS, default=0, metavar="PIXELS", help="Move the edge inwards."),
    click.option("--fill-holes", type=click.IntRange(0), default=0, metavar="PIXELS",
                 help="Fill holes of at most so many pixels."),
    click.option("--min-area", type=click.IntRange(0), default=0, metavar="PIXELS",
                 help="Remove parts of fewer pixels."),
    click.option("--largest", is_flag=True, help="Keep the largest part only."),
)  # fmt: skip
HEADINGS = {
    "Output": ("output", "output_format", "object_files", "background", "tolerance", "overwrite"),
    "Masks, before they are written": ("soft", "feather", "grow", "shrink", "fill_holes", "min_area", "largest"),
}
TABLES = {"Output": ("Formats", [(name, known.about) for name, known in FORMATS.items()])}


def output_options(command: _Command) -> _Command:
    """Adds the options to a command; `OutputRequest` has a field for each."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class OutputRequest:
    """What is asked for, as the options above describe it."""

    output: Path | None
    output_format: str
    object_files: bool
    background: tuple[int, int, int] | None
    tolerance: float | None
    overwrite: bool
    soft: bool
    feather: float
    grow: int
    shrink: int
    fill_holes: int
    min_area: int
    largest: bool

    @classmethod
    def take_from(cls, given: dict[str, Any]) -> OutputRequest:
        """Takes its own out of all that a command was given."""
        return cls(**{field.name: given.pop(field.name) for field in fields(cls)})

    def matte(self) -> MatteOptions:
        """What is done to masks.

        Raises:
            OptionsError: They exclude each other.
        """
        from sam2track.matte import MatteOptions

        return MatteOptions(**{field.name: getattr(self, field.name) for field in fields(MatteOptions)})

    def paths(self, name: str) -> tuple[Path, Path]:
        """Where the masks and the sidecar go; by default they are called after the video.

        Raises:
            OutputError: The output has no name.
            OutputExistsError: The sidecar exists and may not be replaced.
        """
        output = self.output or Path(name + FORMATS[self.output_format].ending)
        if output.name in ("", ".."):
            raise OutputError(
                f"got the output {str(output)!r}, which is no name; expected one such as cut.mp4, or masks"
            )
        if FORMATS[self.output_format].is_folder:
            sidecar = output.with_name(f"{output.name}.json")
        else:
            sidecar = output.with_suffix(".scores.json" if output.suffix.lower() == ".json" else ".json")
        _refuse_existing(sidecar, self.overwrite)
        return output, sidecar

    def outputs(self, output: Path, job: Job) -> list[Path]:
        """What there will be beside the sidecar."""
        return list(object_paths(output, job.object_ids).values()) if self.object_files else [output]

    def mask_writer(self, output: Path, info: VideoInfo, job: Job) -> MaskWriter:
        """The writer of the masks."""
        return open_writer(
            self.output_format,
            output,
            info,
            object_ids=job.object_ids,
            matte=self.matte(),
            background=self.background,
            tolerance=self.tolerance,
            object_files=self.object_files,
            overwrite=self.overwrite,
        )

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
        return SidecarWriter(
            sidecar, info, model=described, prompts=given, matte=self.matte(), overwrite=self.overwrite
        )


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
