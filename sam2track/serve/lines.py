"""Bytes <-> lines: what comes in is cut into requests, whatever it is; what goes out is one answer a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from pydantic import ValidationError
from pydantic_core import from_json

from sam2track.errors import RequestError, Sam2TrackError
from sam2track.serve.protocol import MAX_LINE_BYTES, REQUEST, Answer, Error, Request, RequestId

_CHUNK_BYTES = 65536
_LONGEST_SHOWN = 60
_LONGEST_MESSAGE = 2000  # a message may quote what was sent
_IDS = ("id", "target", "object_id")


class Source(Protocol):
    """Where lines come from; an unbuffered file gives what is there, and waits only if there is nothing."""

    def read(self, size: int, /) -> bytes | None:
        """Up to so many bytes; none at the end."""


def lines(source: Source) -> Iterator[bytes | None]:
    """Cuts into lines, without their ends; blank ones are left out.

    Yields:
        A line, or None for one longer than `MAX_LINE_BYTES`. No more than that is ever held.
    """
    held, too_long = bytearray(), False
    while chunk := source.read(_CHUNK_BYTES):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            too_long = too_long or len(held) + len(end) > MAX_LINE_BYTES
            if too_long or (held + end).strip():
                yield None if too_long else bytes(held + end)
            held, too_long = bytearray(), False
        held += rest
        if too_long := too_long or len(held) > MAX_LINE_BYTES:
            held.clear()
    if too_long or held.strip():
        yield None if too_long else bytes(held)


def read_request(line: bytes | None) -> Request:
    """A line to a request.

    Raises:
        RequestError: Says what is wrong with it, and with which part.
    """
    if line is None:
        raise RequestError(f"got a line of more than {MAX_LINE_BYTES} bytes; give large masks as PNG files")
    try:
        return REQUEST.validate_json(line)
    except ValidationError as error:
        raise _refusal(error) from error


def _refusal(error: ValidationError) -> RequestError:
    first = error.errors(include_url=False)[0]
    field = _field(first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "json_invalid":
        return RequestError(f"got a line that is no JSON: {message.removeprefix('Invalid JSON: ')}")
    if first["type"] in ("union_tag_invalid", "union_tag_not_found"):
        return RequestError(f"{message}; ask hello for the commands", field="command")
    if first["type"] in ("missing", "value_error"):
        return RequestError(f"{field or 'the request'}: {message}", field=field)
    got = _shown(first["input"])
    return RequestError(f"{field or 'the line'}: {message}{got}", field=field)


def _field(place: tuple[int | str, ...]) -> str | None:
    """The part of a line; pydantic puts the command before it, and after an id which kind of id was tried."""
    parts = [str(part) for part in place[1:]]
    ids = [number for number, part in enumerate(parts, 1) if part in _IDS]
    return ".".join(parts[: ids[0]] if ids else parts) or None


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        return ""
    return f" (got {text})" if len(text) <= _LONGEST_SHOWN else ""


def request_id(line: bytes | None) -> RequestId | None:
    """The id of a line that is no request, so that its sender can tell which one it was; None if there is none."""
    try:
        found = from_json(line or b"")
    except ValueError:
        return None
    given = found.get("id") if isinstance(found, dict) else None
    try:
        return Error(id=given, code="", message="").id
    except ValidationError:
        return None


def error_answer(request_id: RequestId | None, error: Exception) -> Error:
    """What is said of an exception."""
    text = str(error) if isinstance(error, Sam2TrackError) else f"unexpected: {error}; please report it"
    text = " ".join(text.encode("utf-8", "replace").decode().split())  # file names may be no Unicode
    field = error.field if isinstance(error, RequestError) else None
    return Error(
        id=request_id,
        code=type(error).__name__,
        message=text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}...",
        field=None if field is None else field[:_LONGEST_MESSAGE],
        frame_idx=getattr(error, "frame_idx", None),
    )


def answer_line(answer: Answer) -> bytes:
    """An answer to its line, end included."""
    return answer.model_dump_json().encode() + b"\n"
