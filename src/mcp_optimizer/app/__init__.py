"""The composition root: settings in, a running `Optimizer` out. The only room that knows concrete parts.

`parts` builds, `life` starts and stops, `endpoints` and `dashboard` serve, `servers` and `options` read the settings.
"""

from __future__ import annotations

from mcp_optimizer.app.ending import end_all
from mcp_optimizer.app.optimizer import Optimizer
from mcp_optimizer.app.options import price_of_results, result_options
from mcp_optimizer.app.servers import server_specs

__all__ = ["Optimizer", "end_all", "price_of_results", "result_options", "server_specs"]
