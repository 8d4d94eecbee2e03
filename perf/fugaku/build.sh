#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Builds on a compute node, where compiler and Python are those of the processor.
#   pjsub -g GROUP build.sh
#   UCT_TOFU_CC   the C compiler: "fcc -Nclang" if there is one, else gcc
#   PYTHON        3.10 or later, with headers; python3
#PJM -N uct-tofu-build
#PJM -L "node=1"
#PJM -L "rscgrp=small"
#PJM -L "elapse=01:00:00"
#PJM -j
set -eu
. ./env.sh

: "${PYTHON:=python3}"
if [ -z "${UCT_TOFU_CC:-}" ]; then
    UCT_TOFU_CC=gcc
    if command -v fcc >/dev/null 2>&1; then
        UCT_TOFU_CC="fcc -Nclang"
    fi
fi
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail "$PYTHON is older than 3.10: set PYTHON"
command -v "${UCT_TOFU_CC%% *}" >/dev/null || fail "no compiler ${UCT_TOFU_CC%% *}"

index=""
if [ -d wheels ]; then
    index="--no-index --find-links=$PWD/wheels"
fi
"$PYTHON" -m venv "$UCT_TOFU_VENV"
echo "building with $UCT_TOFU_CC, for $("$PYTHON" -c 'import platform
print(platform.python_version(), platform.machine())')"
# the wheels have the programs of the build, which pip then need not look for
# shellcheck disable=SC2086 # words
"$UCT_TOFU_VENV/bin/pip" install -q $index -r requirements.txt
# shellcheck disable=SC2086
CC="$UCT_TOFU_CC" "$UCT_TOFU_VENV/bin/pip" install -q $index --no-build-isolation \
    --no-deps --force-reinstall ../..
"$UCT_TOFU_VENV/bin/uct-tofu" info
