"""Writing under a temporary name beside the output and renaming at the end: whole or not at all.

Only a killed process (or a power cut) leaves anything behind, and then under a name that starts
with `.sam2track-`, never under the output's own.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import weakref
from collections.abc import Iterable
from pathlib import Path

from sam2track.errors import OutputError, OutputExistsError


class PendingOutput:
    """A file or folder that is being written.

    Attributes:
        path: Where it will be.
        temporary: Where to write until then; it exists already and is empty.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        sources: Iterable[str | os.PathLike[str]] = (),
        folder_of: str | None = None,
    ) -> None:
        """Check that the output can be put in place, and make its temporary file or folder.

        Args:
            path: The output.
            overwrite: Whether it may replace an output that is there already.
            sources: Files being read, which must not be replaced whatever `overwrite` says.
            folder_of: For a folder, a regular expression for the names of the files it will hold: a
                folder that holds anything else is not ours and never replaced. None for a file.

        Raises:
            OutputExistsError: The output exists and `overwrite` is False.
            OutputError: The output is one of `sources`, its folder is missing or cannot be written, or
                a file is in the place of a folder or the other way round.
        """
        self.path = Path(path)
        self._overwrite = overwrite
        self._folder_of = folder_of
        try:
            _refuse_sources(self.path, sources)
            self._refuse_existing()
            parent = self.path.absolute().parent
            if not parent.is_dir():
                raise OutputError(f"cannot write {self.path}: there is no folder {parent}; create it first")
            self.temporary = parent / f".sam2track-{secrets.token_hex(8)}.part"
            # For a caller that neither commits nor discards: at the latest when the interpreter ends. Before the
            # file is made, because a signal may end everything between any two lines.
            self._remove = weakref.finalize(self, _remove_own, self.temporary, os.getpid())
            if folder_of is None:
                self.temporary.open("xb").close()
            else:
                self.temporary.mkdir()
        except OutputError:
            raise
        except (OSError, ValueError) as error:
            raise OutputError(
                f"cannot write {self.path}: {getattr(error, 'strerror', None) or error}; choose another place"
            ) from error

    def commit(self) -> None:
        """Give the finished output its name.

        Raises:
            OutputExistsError: Somebody else has put a file there meanwhile, and `overwrite` is False.
            OutputError: It cannot be renamed. The temporary file is removed in either case.
        """
        replaced: Path | None = None
        try:
            self._refuse_existing()
            if self._folder_of is not None and self.path.exists():
                # A folder cannot be replaced in one step as a file can: first out of the way, then away.
                replaced = self.temporary.with_suffix(".old")
                self.path.rename(replaced)
            self.temporary.replace(self.path)
        except OSError as error:
            if replaced is not None and not self.path.exists():
                replaced.rename(self.path)
            self.discard()
            if isinstance(error, OutputError):
                raise
            raise OutputError(f"cannot give {self.path} its name: {error.strerror or error}") from error
        self._remove.detach()
        if replaced is not None:
            _remove(replaced)

    def discard(self) -> None:
        """Remove what was written. Safe to call at any time, and more than once."""
        self._remove()

    def _refuse_existing(self) -> None:
        # A dangling link is something that is there too.
        if not (self.path.exists() or self.path.is_symlink()):
            return
        wants_folder = self._folder_of is not None
        if wants_folder != self.path.is_dir():
            got, expected = ("a file", "a folder") if wants_folder else ("a folder", "a file")
            raise OutputError(f"cannot write {self.path}: it is {got}, expected {expected}; give another name")
        entries = sorted(entry.name for entry in self.path.iterdir()) if wants_folder else None
        if entries == []:
            return  # made beforehand, holds nothing to lose
        if not self._overwrite:
            raise OutputExistsError(f"{self.path} exists already; give another name, or allow overwriting")
        if entries is not None and self._folder_of is not None:
            foreign = [name for name in entries if not re.fullmatch(self._folder_of, name)]
            if foreign:
                raise OutputError(f"will not replace {self.path}: it also holds {foreign[0]}; give another name")


def _refuse_sources(path: Path, sources: Iterable[str | os.PathLike[str]]) -> None:
    for source in sources:
        # samefile follows links of both kinds.
        if path.exists() and Path(source).exists() and path.samefile(source):
            raise OutputError(f"the output {path} is the input {source}: it would be lost; give another name")


def _remove_own(path: Path, owner: int) -> None:
    if os.getpid() == owner:  # not at the end of a forked child, which has the same finalisers
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
