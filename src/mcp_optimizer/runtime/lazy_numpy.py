"""numpy, loaded on first use: a gateway without searches saves its 12 MB.

Until then vectors, masks and counts are bytes. Names imported from this module must not be used while a module is
imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
else:

    class _Numpy:
        """Stands for the numpy module."""

        def __getattr__(self, name: str) -> Any:
            import numpy

            found = self.__dict__[name] = getattr(numpy, name)
            return found

    np = _Numpy()

__all__ = ["np"]
