"""The command group, its default command, and how errors become a line and an exit code."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn

import click

from sam2track.errors import GraphError, NonFiniteError, OutputError, Sam2TrackError, VideoDecodeError

DONE, FAILED, BAD_USAGE, INTERRUPTED = 0, 1, 2, 130
_OWN_OPTIONS = {"--help", "-h", "--version"}
# What another output would avoid. A full disk or a broken encoder is a failure on the way.
_ABOUT_THE_PATH = {
    errno.EACCES, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR, errno.EPERM, errno.EROFS
}  # fmt: skip


class _DefaultGroup(click.Group):
    """`sam2track VIDEO …` is short for `sam2track track VIDEO …`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            args = ["--help"]
        elif args[0] not in self.commands and args[0] not in _OWN_OPTIONS:
            args = ["track", *args]
        return super().parse_args(ctx, args)


def _show_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from sam2track.onnx_graph import runtime_version
    from sam2track.version import __version__

    runtime, providers = runtime_version()
    click.echo(f"sam2track {__version__}\nonnxruntime {runtime}\nproviders {', '.join(providers)}")
    ctx.exit()


@click.group(
    cls=_DefaultGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    subcommand_metavar="VIDEO --click X,Y [OPTIONS]  |  COMMAND [OPTIONS]",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show versions and exit."
)
def app() -> None:
    """Click an object in a video frame, get its mask through the whole video.

    \b
    Example:
      sam2track video.mp4 --click 412,230

    writes video.overlay.mp4, to look at, and video.overlay.json with the scores of every frame.
    `sam2track track --help` shows every option of this main job.
    """


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and exits: 0 done, 1 tracking failed, 2 bad usage, 128 + n ended by signal n."""
    from sam2track.cli.build import build
    from sam2track.cli.evaluate import evaluate
    from sam2track.cli.info import info
    from sam2track.cli.track import track

    for command in (track, build, info, evaluate):
        app.add_command(command)
    try:
        with _signals_interrupt():
            code = app.main(args=None if args is None else list(args), prog_name="sam2track", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else DONE)
    except click.ClickException as error:
        _fail(error.format_message(), BAD_USAGE)
    except Sam2TrackError as error:
        _fail(str(error), _exit_code(error))
    except (KeyboardInterrupt, click.Abort) as error:
        signalled = error.__cause__ if isinstance(error, click.Abort) else error
        code = 128 + signalled.number if isinstance(signalled, _Terminated) else INTERRUPTED
        _fail("interrupted; nothing was written", code)
    except OSError as error:  # everything else that can fail to be read or written has an error of its own
        # What is left in the buffer would fail once more when the interpreter ends.
        with suppress(OSError, ValueError, AttributeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _fail(f"cannot write to the standard output: {error.strerror or error}", FAILED)


class _Terminated(KeyboardInterrupt):
    """A signal asked for the end; like Ctrl-C, it leaves no temporary file behind."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Editors cancel a child process with SIGTERM, a closed terminal sends SIGHUP."""

    def interrupt(number: int, _frame: object) -> NoReturn:
        raise _Terminated(number)

    in_main_thread = threading.current_thread() is threading.main_thread()  # elsewhere Python sets no handlers
    names = ("SIGTERM", "SIGHUP") if in_main_thread else ()
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _exit_code(error: Sam2TrackError) -> int:
    """Failures on the way are 1; whatever better input would avoid is 2."""
    if isinstance(error, OutputError):
        # Without a cause it refuses what was asked for; else the system, or the encoder, said no.
        cause = error.__cause__
        return BAD_USAGE if cause is None or getattr(cause, "errno", None) in _ABOUT_THE_PATH else FAILED
    return FAILED if isinstance(error, (VideoDecodeError, GraphError, NonFiniteError)) else BAD_USAGE


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"sam2track: {' '.join(message.split())}", err=True)
    sys.exit(code)
