#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# cross.sh FOLDER [CMAKE OPTION...]: the C parts for aarch64, compiled on a login node:
# emulator, core, benchmark kernels, and the plugin where UCX 1.22 is told.
#   UCT_TOFU_CC       the cross compiler: "fccpx -Nclang" if there is one, else
#                     aarch64-linux-gnu-gcc
#   UCX_INCLUDE_DIR   headers of UCX 1.22 for aarch64, with its lib beside them
set -eu
[ $# -ge 1 ] && [ -f env.sh ] || {
    echo "usage, in perf/fugaku: cross.sh FOLDER [CMAKE OPTION...]" >&2
    exit 2
}
if [ -z "${UCT_TOFU_CC:-}" ]; then
    UCT_TOFU_CC=aarch64-linux-gnu-gcc
    if command -v fccpx >/dev/null 2>&1; then
        UCT_TOFU_CC="fccpx -Nclang"
    fi
fi
flags=""
case $UCT_TOFU_CC in *" "*) flags=${UCT_TOFU_CC#* } ;; esac
folder=$1
shift
set -- "$@" -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
    "-DCMAKE_C_COMPILER=${UCT_TOFU_CC%% *}" "-DCMAKE_C_FLAGS=$flags"
if [ -n "${UCX_INCLUDE_DIR:-}" ]; then
    set -- "$@" -DUCT_TOFU_PLUGIN=ON "-DUCX_INCLUDE_DIR=$UCX_INCLUDE_DIR"
else
    set -- "$@" -DUCT_TOFU_PLUGIN=OFF
fi
cmake -S ../../cython -B "$folder" "$@"
exec cmake --build "$folder"
