# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Sourced by the scripts of this folder, which is the working folder: paths and
# environment of a job.  What is set already stays.
#
#   UCT_TOFU_VENV      the virtual environment that build.sh makes; ../../.venv-tofu
#   UCT_TOFU_BACKEND   tofu; "emulator" to try the scripts elsewhere
#   UCT_TOFU_LIB_DIR   folder of libtofucom.so, where it is not found by itself
#   UCT_TOFU_MODULE    the module of compiler and MPI; lang
#   RESULTS            file that records are added to; results-JOBID.jsonl

fail() {
    echo "$*" >&2
    exit 1
}

[ -f env.sh ] && [ -f launch.sh ] ||
    fail "start the scripts from their own folder: cd perf/fugaku"

: "${UCT_TOFU_BACKEND:=tofu}"
: "${UCT_TOFU_VENV:=$(cd ../.. && pwd)/.venv-tofu}"
: "${RESULTS:=$PWD/results-${PJM_JOBID:-by-hand}.jsonl}"
export UCT_TOFU_BACKEND UCT_TOFU_VENV RESULTS

# The compiler environment also has mpiexec and libtofucom.  Jobs often have it.
if ! command -v mpiexec >/dev/null 2>&1 && command -v module >/dev/null 2>&1; then
    module load "${UCT_TOFU_MODULE:-lang}"
fi

# Folders that may hold libtofucom.so, one a line.
tofu_folders() {
    [ -z "${UCT_TOFU_LIB_DIR:-}" ] || echo "$UCT_TOFU_LIB_DIR"
    echo "${LD_LIBRARY_PATH:-}" | tr ':' '\n'
    for tofu_tool in mpiexec mpifcc fcc; do
        tofu_path=$(command -v "$tofu_tool") || continue
        tofu_path=$(readlink -f "$tofu_path")
        tofu_path=${tofu_path%/*/*}
        echo "$tofu_path/lib64"
        echo "$tofu_path/lib"
    done
}

find_tofu() {
    tofu_folders | while IFS= read -r tofu_folder; do
        if [ -n "$tofu_folder" ] && [ -e "$tofu_folder/libtofucom.so" ]; then
            echo "$tofu_folder"
            break
        fi
    done
}

if [ "$UCT_TOFU_BACKEND" = tofu ]; then
    tofu_dir=$(find_tofu)
    if [ -n "$tofu_dir" ]; then
        case ":${LD_LIBRARY_PATH:-}:" in
        *":$tofu_dir:"*) ;;
        *) export LD_LIBRARY_PATH="$tofu_dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" ;;
        esac
    elif ! /sbin/ldconfig -p 2>/dev/null | grep -q 'libtofucom\.so'; then
        fail "no libtofucom.so: load the compiler environment (module avail lang)," \
            "or set UCT_TOFU_LIB_DIR"
    fi
fi
# No empty files of output for each rank of each start.
export PLE_MPI_STD_EMPTYFILE=off
