# The gateway over HTTP, as a user that is not root. Build: docker build -t mcp-optimizer .
# scripts/image_steps.py runs these very steps where there is no builder.
FROM python:3.12-slim AS build
WORKDIR /source
RUN python -m venv --without-pip /app
COPY pyproject.toml hatch_build.py constraints.txt README.md LICENSE NOTICE ./
COPY src ./src
RUN pip --python /app/bin/python install --constraint constraints.txt ".[postgres]"

FROM python:3.12-slim
# Whose this is, for the MCP registry.
LABEL io.modelcontextprotocol.server.name="io.github.OWNER/mcp-optimizer-gateway"
COPY --from=build /app /app
ENV PATH=/app/bin:$PATH \
    HOME=/data \
    XDG_DATA_HOME=/data \
    XDG_CONFIG_HOME=/config \
    PYTHONUNBUFFERED=1 \
    MCP_OPTIMIZER_HTTP=0.0.0.0:8080 \
    MCP_OPTIMIZER_ALLOWED_HOSTS=localhost:8080,127.0.0.1:8080
RUN mkdir -p /config /data && chown 10001:10001 /data && chmod 700 /data
USER 10001:10001
WORKDIR /data
# The catalog, keys and history. The server file is /config/mcp-optimizer/mcp.json.
VOLUME ["/data"]
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --retries=3 CMD ["mcp-optimizer", "health"]
ENTRYPOINT ["mcp-optimizer"]
CMD ["serve"]
