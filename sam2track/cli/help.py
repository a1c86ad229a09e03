"""Help with the options under headings, for commands that have many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click


class GroupedCommand(click.Command):
    """A command whose help shows options under headings.

    Args:
        headings: The names of the options' parameters by heading, in the order shown; others come last.
        tables: Further sections, each after the heading that its name is given for: its own heading, and its rows.
    """

    def __init__(
        self,
        *args: Any,
        headings: Mapping[str, Sequence[str]],
        tables: Mapping[str, tuple[str, Sequence[tuple[str, str]]]],
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._headings = headings
        self._tables = tables

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes them, a section each."""
        options = [parameter for parameter in self.get_params(ctx) if isinstance(parameter, click.Option)]
        named = {name for names in self._headings.values() for name in names}
        others = [option.name for option in options if option.name not in named]
        for heading, names in {**self._headings, "Other": others}.items():
            chosen = [option for name in dict.fromkeys(names) for option in options if option.name == name]
            rows = [row for option in chosen if (row := option.get_help_record(ctx)) is not None]
            for title, lines in ((heading, rows), self._tables.get(heading, ("", ()))):
                if lines:
                    with formatter.section(title):
                        formatter.write_dl(lines)
