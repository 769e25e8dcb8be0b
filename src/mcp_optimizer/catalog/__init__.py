"""The tools that exist now: snapshots of all tools, updated as servers come and go, and the tool that a name means."""

from mcp_optimizer.catalog.live import LiveCatalog
from mcp_optimizer.catalog.snapshot import Snapshot
from mcp_optimizer.catalog.tools import CatalogTool

__all__ = ["CatalogTool", "LiveCatalog", "Snapshot"]
