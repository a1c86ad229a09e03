"""Everything the library raises on purpose, one class for each decision a caller can take.

Sam2TrackError
├── BundleError                     a model folder cannot be used
│   ├── BundleNotFoundError         (FileNotFoundError) a folder or file is missing
│   ├── BundleIntegrityError        (ValueError) a file is not the one its manifest describes
│   └── BundleContractError         (ValueError) a file does not follow the contract of the five graphs
├── CheckpointError                 (ValueError) a checkpoint cannot be built into a bundle
├── GraphError                      (RuntimeError) ONNX Runtime could not run a graph
├── DeviceError                     (RuntimeError) the asked-for execution provider cannot be had
├── PromptError                     (ValueError) a click, box or mask cannot be used
├── FrameError                      (ValueError) an array is not a video frame, or there is no frame with a number
├── UnknownObjectError              (KeyError) no object has this id
├── OptionsError                    (ValueError) an option has a value that cannot be
├── TrackerStateError               (RuntimeError) the call is not possible now
├── ClipStateError                  (ValueError) a saved clip cannot be restored
├── NonFiniteError                  (ArithmeticError) a graph returned NaN or infinity
├── VideoError                      (OSError) a video cannot be opened or read
│   └── VideoDecodeError            reading stopped at a damaged place; says where
└── OutputError                     (OSError) a result cannot be written
    └── OutputExistsError           (FileExistsError) the output is already there

Every class also inherits the builtin exception that fits it, so that code which knows nothing of
sam2track can catch it. Messages say what was got, what was expected and what to do about it.
"""

from __future__ import annotations

import functools


class Sam2TrackError(Exception):
    """Base of every error this package raises on purpose."""


class BundleError(Sam2TrackError):
    """A model bundle cannot be used."""


class BundleNotFoundError(BundleError, FileNotFoundError):
    """A bundle, or one of the files it must have, does not exist."""


class BundleIntegrityError(BundleError, ValueError):
    """A file of a bundle differs from the size or sha256 that its manifest gives."""


class BundleContractError(BundleError, ValueError):
    """A file of a bundle does not follow the contract: names, shapes, types or values."""


class CheckpointError(Sam2TrackError, ValueError):
    """A checkpoint cannot be read, or does not describe a SAM 2 video model."""


class GraphError(Sam2TrackError, RuntimeError):
    """ONNX Runtime could not run a graph, for instance for want of memory."""


class DeviceError(Sam2TrackError, RuntimeError):
    """The asked-for device or execution provider is not available."""


class PromptError(Sam2TrackError, ValueError):
    """A point, box or mask prompt cannot be used."""


class FrameError(Sam2TrackError, ValueError):
    """An array is not a usable video frame, or a video has no frame with this number or at this time."""


class OptionsError(Sam2TrackError, ValueError):
    """An option has a value that it cannot have."""


class UnknownObjectError(Sam2TrackError, KeyError):
    """No object with this id is being tracked."""

    def __str__(self) -> str:
        # KeyError would show the message in quotes.
        return str(self.args[0]) if self.args else ""


class TrackerStateError(Sam2TrackError, RuntimeError):
    """The tracker cannot do this in its present state."""


class ClipStateError(Sam2TrackError, ValueError):
    """A saved clip cannot be restored: damaged, or made with another model or other frames."""


class NonFiniteError(Sam2TrackError, ArithmeticError):
    """A graph returned NaN or infinity, which must never pass for "no object"; says which, on which frame."""


class VideoError(Sam2TrackError, OSError):
    """A video cannot be opened or read."""


class VideoDecodeError(VideoError):
    """Reading stopped at a damaged place.

    Attributes:
        frame_idx: The first frame that could not be read.
        time_s: When it would be shown, on the source's own clock (as `VideoFrame.time_s`); None if unknown.
        reason: What is wrong, without the place and the cure.
    """

    def __init__(self, message: str, *, frame_idx: int, time_s: float | None = None, reason: str = "") -> None:
        super().__init__(message)
        self.frame_idx = frame_idx
        self.time_s = time_s
        self.reason = reason or message

    def __reduce__(self) -> tuple[object, ...]:
        # Pickling calls the class with positional arguments only; an error has to come back from a worker.
        made = functools.partial(type(self), frame_idx=self.frame_idx, time_s=self.time_s, reason=self.reason)
        return made, self.args


class DatasetError(Sam2TrackError, ValueError):
    """A data set for evaluation cannot be read, or is laid out otherwise."""


class OutputError(Sam2TrackError, OSError):
    """A result cannot be written."""


class OutputExistsError(OutputError, FileExistsError):
    """The output exists already and overwriting was not asked for."""
