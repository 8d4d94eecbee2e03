#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Compute nodes have no way to a package index: this fetches what build.sh needs, on a
# login node, into ./wheels.
#   UCT_TOFU_PYTHON_VERSION   of the compute nodes' Python, as 3.11
#   PYTHON                    a Python of the login node that has pip; python3
set -eu
[ -f env.sh ] || {
    echo "start it from its own folder: cd perf/fugaku" >&2
    exit 1
}
: "${PYTHON:=python3}" "${UCT_TOFU_PYTHON_VERSION:=3.11}"
# pure programs of the build, and what is compiled, for the nodes' processor
exec "$PYTHON" -m pip download -d wheels --only-binary=:all: \
    --platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 \
    --platform manylinux2014_aarch64 --python-version "$UCT_TOFU_PYTHON_VERSION" \
    -r requirements.txt
