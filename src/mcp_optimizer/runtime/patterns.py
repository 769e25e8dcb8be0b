"""Regular expressions that are compiled when they are first used: there are three hundred, and a command uses a few.

They are declared at the top of the modules that use them, as if they were compiled there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from re import compile as regex
else:

    class _Declared:
        """Stands for a compiled pattern."""

        def __init__(self, expression: str | bytes, flags: int) -> None:
            self._declared = expression, flags

        def __getattr__(self, name: str) -> Any:
            # A bound method is kept, so later calls find it at once.
            found = self.__dict__[name] = getattr(re.compile(*self._declared), name)
            return found

    def regex(expression: str | bytes, flags: int = 0) -> _Declared:
        """Declare a pattern. Where matches are asked for their pattern (`match.re`), use `re.compile`."""
        return _Declared(expression, flags)


__all__ = ["regex"]
