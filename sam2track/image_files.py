"""Names of pictures -> the files of one sequence, in natural order, and when each is shown."""

from __future__ import annotations

import fnmatch
import itertools
import logging
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from sam2track.decoding import checked, reason_of
from sam2track.errors import VideoError

logger = logging.getLogger("sam2track")

PICTURES = frozenset({".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp", ".exr", ".dpx", ".tga"})
_NUMBER = re.compile(r"(?s)(.*?)(\d+)(\D*)")  # the last number of a name
_PLACEHOLDER = re.compile(r"%(?:0(\d+))?d|(#+)")


def files_of(source: Path) -> list[Path]:
    """The files of a sequence, in natural order.

    Raises:
        VideoError: There are none, or it is not clear which.
    """
    if source.is_dir():
        return _one_sequence(_pictures_in(source), source)
    if not source.is_file() and is_pattern(source.name):
        matches = _matcher(source.name)
        found = [file for file in _pictures_in(source.parent) if matches.fullmatch(file.name)]
        if not found:
            raise VideoError(f"no picture matches {source}; check the folder and the pattern")
        return _one_sequence(found, source)
    checked(source)
    number = _NUMBER.fullmatch(source.stem)
    if number is None:
        return [source]
    kind = _kind(source)
    alike = [file for file in _pictures_in(source.parent) if _kind(file) == kind]
    files = sorted((file for file in alike if _number(file) >= int(number[2])), key=_number)
    _refuse_twice(files, source)
    _warn_of_gaps(files)
    return files


def is_pattern(name: str) -> bool:
    """Whether a name stands for others: with `%04d`, `####`, `*`, `?` or `[`."""
    return _PLACEHOLDER.search(name) is not None or any(letter in name for letter in "*?[")


def _matcher(name: str) -> re.Pattern[str]:
    """A pattern as a regular expression; `%04d` and `####` stand for numbers of at least so many digits."""
    holder = _PLACEHOLDER.search(name)
    if holder is None:
        return re.compile(fnmatch.translate(name))
    digits = int(holder[1] or 1) if holder[2] is None else len(holder[2])
    # A number that is longer than the pattern asks for is not filled up with zeros.
    number = rf"(?:\d{{{digits}}}|[1-9]\d{{{digits},}})"
    return re.compile(re.escape(name[: holder.start()]) + number + re.escape(name[holder.end() :]))


def _pictures_in(folder: Path) -> list[Path]:
    """The pictures in a folder in natural order, without hidden files."""
    try:
        files = [file for file in folder.iterdir() if file.suffix.lower() in PICTURES and file.name[0] != "."]
    except OSError as error:
        raise VideoError(f"cannot read {folder}: {reason_of(error)}; check the path") from error
    return sorted((file for file in files if file.is_file()), key=lambda file: _natural(file.name))


def _natural(name: str) -> tuple[list[tuple[str, int]], str]:
    """Sorts numbers in a name by value: 2 before 10."""
    parts = re.split(r"(\d+)", name)
    return [(text, int(number or 0)) for text, number in itertools.zip_longest(parts[::2], parts[1::2])], name


def _kind(file: Path) -> tuple[str, str, str] | None:
    """What the names of one sequence share: all around the last number. None without a number."""
    number = _NUMBER.fullmatch(file.stem)
    return None if number is None else (number[1], number[3], file.suffix)


def _number(file: Path) -> int:
    number = _NUMBER.fullmatch(file.stem)
    return -1 if number is None else int(number[2])


def _one_sequence(files: list[Path], source: Path) -> list[Path]:
    """Refuses what is more than one sequence, or none."""
    if not files:
        raise VideoError(f"{source} holds no pictures ({', '.join(sorted(PICTURES))}); name a video in it, or another")
    kinds = Counter(_kind(file) for file in files)
    several = [kind for kind, count in kinds.items() if kind is not None and count > 1]
    if len(several) > 1:
        names = ", ".join(next(file.name for file in files if _kind(file) == kind) for kind in several[:4])
        raise VideoError(f"{source} holds {len(several)} numbered sequences ({names}, ...); name the first file of one")
    _refuse_twice(files, source)
    if len(kinds) == 1 and None not in kinds:
        _warn_of_gaps(files)
    return files


def _refuse_twice(files: list[Path], source: Path) -> None:
    """Masks are named after their pictures, and times follow the numbers."""
    seen: dict[object, Path] = {}
    for file in files:
        kind = _kind(file)
        for key in (file.stem, (kind, _number(file))) if kind else (file.stem,):
            other = seen.setdefault(key, file)
            if other != file:
                raise VideoError(f"{source}: {other.name} and {file.name} are the same frame; take one of them away")


def _warn_of_gaps(files: list[Path]) -> None:
    """Frames are numbered on over a gap; their times are not."""
    gaps = [(a, b) for a, b in itertools.pairwise(map(_number, files)) if b - a > 1]
    missing = sum(b - a - 1 for a, b in gaps)
    if missing:
        shown = ", ".join(f"{a + 1}" if b - a == 2 else f"{a + 1}-{b - 1}" for a, b in gaps[:5])
        more = ", ..." if len(gaps) > 5 else ""
        logger.warning(
            "%s: %d numbers are missing after %s (%s%s); times leave a gap there",
            files[0].parent, missing, files[0].name, shown, more,
        )  # fmt: skip


def ticks_of(names: Sequence[str]) -> list[int]:
    """When each picture is shown, in units of 1 / rate: by its number if all are of one numbered sequence."""
    files = [Path(name) for name in names]
    kinds = {_kind(file) for file in files}
    if len(kinds) == 1 and None not in kinds:
        first = _number(files[0])
        return [_number(file) - first for file in files]
    return list(range(len(files)))
