# whet in a container, on the CPU:       docker build -t whet . && docker run --rm -it -v "$PWD/runs:/whet/runs" whet
# On NVIDIA GPUs (needs their toolkit):  docker build --build-arg TORCH=cu130 -t whet . && docker run --gpus all ...
# `make docker-check` runs the RUN lines below without Docker. docs/install.md says what has been tried.
ARG PYTHON=3.11
FROM python:${PYTHON}-slim

# uv's name of torch's build: cpu, cu130, rocm7.2, ... Empty: what the index has. CUDA's libraries come with torch.
ARG TORCH=cpu
# Extras of pyproject.toml, by commas.
ARG EXTRAS=serve,envs

WORKDIR /whet
# bubblewrap: for scorers that evaluate what a model wrote; without it whet refuses them.
RUN apt-get update && apt-get install -y --no-install-recommends bubblewrap && rm -rf /var/lib/apt/lists/*
COPY . .
RUN pip install --no-cache-dir 'uv>=0.8'
RUN if [ -n "$TORCH" ]; then export UV_TORCH_BACKEND="$TORCH"; fi; \
    uv pip install --no-cache --compile-bytecode --python "$(command -v python)" -c constraints.txt ".[$EXTRAS]"
RUN whet --version && whet train grpo --dry-run

ENTRYPOINT ["whet"]
CMD ["train", "critique_rl", "--out", "runs/first"]
