"""A tool is found by its server and its own name, whoever else has a tool or a public name like it."""

from __future__ import annotations

from mcp_optimizer.catalog.tools import NameTable, ToolRecord, make_records
from mcp_optimizer.domain.naming import ServerNames
from mcp_optimizer.domain.tools import Definition, McpTool
from mcp_optimizer.search.lexical import Vocabulary


def records(server: str, *names: str) -> list[ToolRecord]:
    tools = [McpTool(name=name, inputSchema={"type": "object"}) for name in names]
    return make_records(server, [Definition.of(tool) for tool in tools], {}, Vocabulary())


def test_of_tools_with_one_name_each_server_has_its_own() -> None:
    servers = ("github", "gitlab", "jira")
    all_records = [record for server in servers for record in records(server, "create", "search")]
    # The first tool of jira is listed as "search_all", which is nobody's own name.
    table = NameTable.of(all_records, ServerNames(servers), [("search_all", 4)])
    assert [table.position(server, "search") for server in servers] == [1, 3, 5]
    assert [table.position(server, "create") for server in servers] == [0, 2, 4]
    assert table.position("jira", "search_all") is None
    assert table.position("nobody", "search") is None
    assert table.position("github", "unknown") is None
