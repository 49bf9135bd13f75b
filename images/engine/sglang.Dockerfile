# SGLang for the CPU: its wheel and requirements from the lock, on the torch image. In an image of its own, so that a
# change of the agent's code never makes these layers again. Build context: the repository root.
ARG TORCH_IMAGE=openclaw-torch

FROM ${TORCH_IMAGE}
COPY requirements/engine.txt requirements/sglang.txt /opt/requirements/
# The optional secrets `registry` (shell exports: index URLs, CA path) and `ca` carry a build machine's own registry
# settings; neither reaches a layer.
RUN --mount=type=secret,id=registry,target=/run/secrets/registry --mount=type=secret,id=ca,target=/run/secrets/ca \
    if [ -s /run/secrets/registry ]; then . /run/secrets/registry; fi; \
    export UV_PYTHON_DOWNLOADS=never UV_NO_CACHE=1 UV_LINK_MODE=copy; \
    python3 -m venv /tmp/tools && /tmp/tools/bin/pip install --quiet --no-cache-dir --no-deps --require-hashes -r /opt/requirements/uv.txt && \
    /tmp/tools/bin/uv pip install --quiet --no-deps --require-hashes --compile-bytecode --python /opt/venv/bin/python \
      -r /opt/requirements/engine.txt -r /opt/requirements/sglang.txt && \
    rm -rf /tmp/tools
