#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# launch.sh -n N PROGRAM ARGUMENT...: start N processes by the job's mpiexec and print
# what they print.
#
# There mpiexec writes the output into files; uct-tofu reads it from this script.
# With UCT_TOFU_RANKS="4 7 0" the processes are those of the job's ranks 4, 7 and 0,
# with the numbers 0, 1, 2: so a test gets nodes that are a given way apart, whatever
# the order of ranks is.  All ranks of the job are started then, and the others end at
# once.  It is not for MPI programs, where all that start have to take part.
set -u

# On a node: become the process of this rank, if it has a part.
if [ "${1:-}" = --part ]; then
    number=$2
    shift 2
    part=0
    for rank in $UCT_TOFU_RANKS; do
        if [ "$part" -lt "$number" ] && [ "$rank" = "$PMIX_RANK" ]; then
            PERF_RANK=$part exec "$@"
        fi
        part=$((part + 1))
    done
    exit 0
fi
if [ "${1:-}" = --version ]; then
    echo "launch.sh, over $(command -v mpiexec || echo 'no mpiexec')"
    exit 0
fi
if [ "${1:-}" != -n ] || [ $# -lt 3 ]; then
    echo "usage: launch.sh -n N PROGRAM ARGUMENT..." >&2
    exit 2
fi
number=$2
shift 2

folder=$(mktemp -d "${TMPDIR:-.}/out-XXXXXX") || exit 1
pid=""
trap 'rm -rf "$folder"' EXIT
trap 'if [ -n "$pid" ]; then kill "$pid"; wait "$pid"; fi 2>/dev/null; exit 143' TERM INT

if [ -n "${UCT_TOFU_RANKS:-}" ]; then
    # shellcheck disable=SC2086 # words
    set -- "$number" $UCT_TOFU_RANKS -- "$@"
    listed=0
    while shift && [ "$1" != -- ]; do
        listed=$((listed + 1))
    done
    shift
    if [ "$listed" -lt "$number" ]; then
        echo "launch.sh: $number processes, but UCT_TOFU_RANKS names $listed" >&2
        exit 2
    fi
    set -- sh "$0" --part "$number" "$@"
    number=${PJM_MPI_PROC:?is set in a job}
fi
mpiexec -n "$number" -stdout-proc "$folder/stdout" -stderr-proc "$folder/stderr" \
    "$@" </dev/null &
pid=$!
wait "$pid"
status=$?
pid=""
# a file for each rank, with more behind its name
cat "$folder"/stdout* 2>/dev/null
cat "$folder"/stderr* >&2 2>/dev/null
exit "$status"
