# Python, torch and what else engine and trainer share, in /opt/venv: one layer, stored and pulled once for both.
# Build context: the repository root.
ARG BASE_IMAGE=docker.io/library/python:3.13-slim-trixie

FROM ${BASE_IMAGE}
ENV PATH=/opt/venv/bin:$PATH PYTHONPATH=/app PYTHONUNBUFFERED=1
COPY requirements/uv.txt requirements/torch.txt /opt/requirements/
# Installed in place (a builder stage would copy 5 GB); the installer goes in the same layer it came with.
# The optional secrets `registry` (shell exports: index URLs, CA path) and `ca` carry a build machine's own registry
# settings; neither reaches a layer.
RUN --mount=type=secret,id=registry,target=/run/secrets/registry --mount=type=secret,id=ca,target=/run/secrets/ca \
    if [ -s /run/secrets/registry ]; then . /run/secrets/registry; fi; \
    export UV_PYTHON_DOWNLOADS=never UV_NO_CACHE=1 UV_LINK_MODE=copy; \
    python3 -m venv /tmp/tools && /tmp/tools/bin/pip install --quiet --no-cache-dir --no-deps --require-hashes -r /opt/requirements/uv.txt && \
    /tmp/tools/bin/uv venv --quiet --python "$(command -v python3)" /opt/venv && \
    /tmp/tools/bin/uv pip sync --quiet --require-hashes --compile-bytecode --python /opt/venv/bin/python \
      /opt/requirements/torch.txt && \
    rm -rf /tmp/tools
