"""Settings that know how they were read, so that they can be read again while the gateway runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

Again = Callable[[str], BaseModel]
"""Settings from what their file says now, and from whatever else they were read from at first."""


@dataclass(frozen=True)
class SettingsOrigin:
    """Where settings are from. Settings are the same wherever they are from, so two origins always are."""

    file: Path | None = field(default=None, compare=False)
    again: Again | None = field(default=None, compare=False)
    is_of_folder: bool = field(default=False, compare=False)
    """Whether it was found in the working folder, where nobody named it."""
    passed_over: str = field(default="", compare=False)
    """Why the settings file of the working folder was not used, if there is one."""


class ReloadSettings(BaseModel):
    """Whether files are watched, and which file these settings are from."""

    # Part of `Settings`, which builds what all of its parts need, when a command first reads them.
    model_config = ConfigDict(defer_build=True)

    reload: bool = Field(
        default=True,
        description="Apply changes of the server file and the settings file while the gateway runs; otherwise only "
        "at SIGHUP.",
    )
    _origin: SettingsOrigin = PrivateAttr(default_factory=SettingsOrigin)

    def read_from(self, origin: SettingsOrigin) -> Self:
        """These settings, which were read from a file, if there is one, and other sources."""
        self._origin = origin
        return self

    @property
    def origin(self) -> SettingsOrigin:
        return self._origin

    @property
    def settings_file(self) -> Path | None:
        """The file that some of the settings are from."""
        return self._origin.file

    def read_again(self, text: str) -> Self:
        """The settings, if their file says this."""
        assert self._origin.again is not None
        found = self._origin.again(text)
        assert isinstance(found, type(self))
        return found
