"""What the training pictures are, where they come from and under which licence.

Everything is fetched by package name from the Debian archive with `apt-get download` and unpacked into a cache
folder; nothing is installed. Each package's own copyright file is kept beside its pictures.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["drawings", "emoji", "doom", "stamps", "photos"]


@dataclass(frozen=True, slots=True)
class Source:
    """A Debian package with pictures.

    Attributes:
        package: Debian package name.
        kind: How `sprites.py` reads it.
        licence: As its copyright file states; all of them allow commercial use.
        folders: Folders inside the package that hold the pictures.
    """

    package: str
    kind: Kind
    licence: str
    folders: tuple[str, ...]


# Order matters: the held-out part is "the first so many" of a seeded order.
SOURCES = (
    Source("openclipart-png", "drawings", "public domain (CC0)", ("usr/share/openclipart/png",)),
    Source("fonts-noto-color-emoji", "emoji", "SIL OFL 1.1 (font), Apache-2.0 (pictures)", ("usr/share/fonts",)),
    Source("freedoom", "doom", "BSD-3-Clause (freedoom-license)", ("usr/share/games/doom",)),
    Source("tuxpaint-stamps-default", "stamps", "GPL-2+", ("usr/share/tuxpaint/stamps",)),
    Source("gnome-backgrounds", "photos", "CC-BY-2.0, CC-BY-SA-2.0/3.0, GPL-2+", ("usr/share/backgrounds",)),
    Source("mate-backgrounds", "photos", "GPL-2+, CC-BY-SA-4.0", ("usr/share/backgrounds",)),
    Source("plasma-workspace-wallpapers", "photos", "GPL-2+", ("usr/share/wallpapers",)),
    Source("ukui-wallpapers", "photos", "CC-BY-SA-3.0", ("usr/share/backgrounds",)),
    Source("lomiri-wallpapers-20.04", "photos", "CC-BY-4.0, CC-BY-SA-3.0 and 4.0, CC0", ("usr/share/backgrounds",)),
    Source("lomiri-wallpapers-16.04", "photos", "CC-BY-4.0, CC-BY-SA-3.0 and 4.0, CC0", ("usr/share/backgrounds",)),
)


def fetch(source: Source, cache: Path) -> Path:
    """Downloads and unpacks one package, once.

    Returns:
        The folder that stands for the package's root.
    """
    root = cache / "packages" / source.package
    if (root / "complete").exists():
        return root
    root.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", source.package], cwd=root, check=True, stdout=subprocess.DEVNULL)
    archive = next(root.glob("*.deb"))
    subprocess.run(["dpkg", "-x", archive.name, "."], cwd=root, check=True)
    archive.unlink()
    (root / "complete").touch()
    return root


def files(source: Source, cache: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    """The package's files with one of the suffixes, in a fixed order; links are left out."""
    root = fetch(source, cache)
    for folder in source.folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix.lower() in suffixes and path.is_file() and not path.is_symlink():
                yield path
