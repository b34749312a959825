# The image of the template standard_dev, for sandboxes on an engine (docker, gVisor). Needs nothing but Debian's packages:
#   DOCKER_BUILDKIT=0 docker build -t longhaul/standard-dev --build-arg BASE=debian:trixie-slim - < infra/docker/standard-dev.Dockerfile
ARG BASE=debian:trixie-slim
FROM ${BASE}
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        build-essential ca-certificates ccache clang cmake curl gdb git jq less meson ninja-build nodejs npm pkg-config \
        procps python3 python3-dev python3-pip python3-pytest python3-venv ripgrep strace unzip valgrind xz-utils zip \
    && rm -rf /var/lib/apt/lists/*
# as in every sandbox `python` is there
RUN ln -sf /usr/bin/python3 /usr/local/bin/python
ENV CMAKE_GENERATOR=Ninja LANG=C.UTF-8
WORKDIR /workspace
