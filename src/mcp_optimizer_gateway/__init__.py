"""Starts the program under the name of its distribution, also where another package has overwritten parts of it.

`mcp-optimizer` on the package index is another project, with a command and an import package of our names. Installed
into one environment, the later of the two replaces the other's `mcp_optimizer/__init__.py` and `__main__.py`, and
removing either takes them away. This package has a name that no other has: both scripts start here, and child
processes with `python -m mcp_optimizer_gateway`. It knows one file of `mcp_optimizer`: the wheel keeps a copy of its
`__init__.py` here.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from types import CodeType

_HERE = Path(__file__).absolute().parent
_PACKAGE = _HERE.parent / "mcp_optimizer"


def _is_ours() -> bool:
    """Whether `import mcp_optimizer` gives our package: only ours names `Optimizer` among its exports."""
    try:
        found = import_module(_PACKAGE.name)
    except ImportError:
        return False
    return "Optimizer" in getattr(found, "__all__", ())


class _Kept(SourceFileLoader):
    """Loads our package at its place; from the copy, except in a checkout, where no package replaces a file."""

    def get_code(self, fullname: str) -> CodeType | None:
        kept = _HERE / "_package.py"
        return compile(kept.read_bytes(), kept, "exec") if kept.is_file() else super().get_code(fullname)


def _claim() -> None:
    """Put our package in the place of the other one, for this process."""
    for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE.name]:
        del sys.modules[name]
    loader = _Kept(_PACKAGE.name, str(_PACKAGE / "__init__.py"))
    spec = ModuleSpec(_PACKAGE.name, loader, origin=loader.path, is_package=True)
    spec.submodule_search_locations = [str(_PACKAGE)]
    module = module_from_spec(spec)
    sys.modules[_PACKAGE.name] = module
    loader.exec_module(module)


# At import, not in `main`: child processes of `multiprocessing` import this module and never call it.
if not _is_ours():
    _claim()


def main() -> None:
    """The command line; but a client that shares a gateway gets only a process that waits, which loads nothing else."""
    from mcp_optimizer.runtime.sharing.client_process import share, wants_to_share

    if wants_to_share(sys.argv[1:], os.environ) and (code := share(sys.argv[1:], os.environ)) is not None:
        sys.stdout.flush()
        os._exit(code)
    from mcp_optimizer.cli import main as command_line

    command_line()
