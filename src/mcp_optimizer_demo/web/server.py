"""The web server: its twelve tools, on the bundled pages. Started by `python -m mcp_optimizer_demo.web`."""

from typing import Any

from mcp.server.lowlevel import Server

from mcp_optimizer_demo.toolserver import build_server
from mcp_optimizer_demo.web.comparing_tools import COMPARING_TOOLS
from mcp_optimizer_demo.web.finding_tools import FINDING_TOOLS
from mcp_optimizer_demo.web.reading_tools import READING_TOOLS
from mcp_optimizer_demo.web.site import Site, load_site

WEB_TOOLS = (*FINDING_TOOLS, *READING_TOOLS, *COMPARING_TOOLS)

INSTRUCTIONS = (
    "A small web of articles that link to each other. Find pages with web_search or list_pages, read them with "
    "fetch_page or summarize_page."
)


def web_server(site: Site | None = None) -> Server[dict[str, Any]]:
    """The server on the given pages, or on the bundled ones."""
    return build_server("web", "Web Pages", INSTRUCTIONS, WEB_TOOLS, load_site() if site is None else site)
