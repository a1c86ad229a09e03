"""Order of the backbone's tokens.

All its layers but attention and pooling take each token alone, so the order of the tokens is free. They stay in
the order that attention in windows wants, and the map's own order is restored at the end of each stage.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sam2track.build.writer import GraphWriter, Value


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of one shape: those at the edges of the map may be smaller than the others."""

    count: int
    height: int
    width: int

    @property
    def tokens(self) -> int:
        """Of all these windows together."""
        return self.count * self.height * self.width


@dataclass(frozen=True, slots=True)
class TokenOrder:
    """A square map's tokens in the order of its windows.

    Windows of one shape stand together. Among them the place within the window comes first and the window
    second, so that (place, window and head, channel) is what a product batched by window and head reads,
    and the padding of a window is more rows.

    Attributes:
        side: Of the map.
        window: Side of a window; with one as large as the map this is the map's own order.
    """

    side: int
    window: int

    def windows(self) -> list[Windows]:
        """The windows by shape: whole ones, the right edge, the lower edge, the corner."""
        count, rest = divmod(self.side, self.window)
        extents = [(count, self.window), (1, rest)]  # number and length along one axis
        return [Windows(n * m, h, w) for n, h in extents for m, w in extents if n * m * h * w]

    def places(self) -> NDArray[np.int64]:
        """Where in the map each token is: row * side + column."""
        grid = np.arange(self.side**2).reshape(self.side, self.side)
        cut = self.side - self.side % self.window
        areas = [part for rows in (grid[:cut], grid[cut:]) for part in (rows[:, :cut], rows[:, cut:]) if part.size]
        parts = []
        for area, windows in zip(areas, self.windows(), strict=True):
            tiles = area.reshape(-1, windows.height, area.shape[1] // windows.width, windows.width)
            parts.append(tiles.transpose(1, 3, 0, 2).reshape(-1))
        return np.concatenate(parts)

    def halved(self) -> TokenOrder:
        """Of the map after 2x2 pooling."""
        return TokenOrder(self.side // 2, self.window // 2)


def reorder(g: GraphWriter, tokens: Value, source: TokenOrder, target: TokenOrder) -> Value:
    """Tokens (side * side, channels) from one order to another."""
    rows = np.argsort(source.places())[target.places()]
    if (rows == np.arange(len(rows))).all():
        return tokens
    return g.op("Gather", tokens, g.ints(*rows.tolist()), axis=0)
