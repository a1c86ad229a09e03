"""`sam2track serve`: an editor's child process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from io import FileIO

_STDIN, _STDOUT, _STDERR = 0, 1, 2


@click.command()
def serve() -> None:
    """Answer an editor: a JSON request on each line of stdin, JSON answers on stdout, messages on stderr.

    docs/serve.md describes the requests, docs/serve.schema.json is their JSON schema. It ends with the request
    "shutdown", or when stdin ends.

    \b
    Example:
      echo '{"id": 1, "command": "hello"}' | sam2track serve
    """
    from sam2track.concealment import noticing
    from sam2track.serve import serve as answer

    for number in (_STDIN, _STDOUT):
        with suppress(OSError, AttributeError):  # closed: told below; not there on Windows before Python 3.12
            os.set_blocking(number, True)
    try:
        # Unbuffered: a buffer's lock, held while waiting for a line, would be in the way when the process ends.
        source = open(_STDIN, "rb", buffering=0, closefd=False)  # noqa: SIM115
    except OSError as error:
        raise click.UsageError(f"the standard input cannot be read: {error.strerror}") from error
    with _answers_only() as sink, noticing():
        answer(source, sink)


@contextmanager
def _answers_only() -> Iterator[FileIO]:
    """Standard output for answers alone; what else is printed, in whichever library, goes to standard error."""
    with open(os.dup(_STDOUT), "wb", buffering=0) as sink:  # noqa: PTH123
        elsewhere = os.open(os.devnull, os.O_WRONLY)
        try:
            try:
                os.dup2(_STDERR, _STDOUT)
            except OSError:  # closed
                os.dup2(elsewhere, _STDOUT)
            yield sink
        finally:
            os.dup2(sink.fileno(), _STDOUT)
            os.close(elsewhere)
