# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Sourced by job scripts after env.sh: what they share.  A test that fails does not
# end the job; the last line of a script is "finish".

[ -n "${PJM_JOBID:-}" ] || fail "this is a job script: pjsub -g GROUP ${0##*/}"
[ -x "$UCT_TOFU_VENV/bin/uct-tofu" ] ||
    fail "no uct-tofu in $UCT_TOFU_VENV: build.sh makes it"
PATH="$UCT_TOFU_VENV/bin:$PATH"
export PATH

# Programs and files of a test have to be seen by all nodes, so not /tmp.
TMPDIR="$PWD/.tmp-$PJM_JOBID"
mkdir -p "$TMPDIR"
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

export UCT_TOFU_PERF_LAUNCHER="sh $PWD/launch.sh -n {n}"
export MPIEXEC="sh $PWD/launch.sh"
: "${MPICC:=mpifcc -Nclang}"
export MPICC

# Shorter, to try the scripts: REPEATS, SECONDS_EACH, MOST_BYTES.
: "${REPEATS:=5}" "${SECONDS_EACH:=0.3}" "${MOST_BYTES:=4194304}"
failed=""

# sizes LEAST MOST: a list as perf run takes it, not above MOST_BYTES
sizes() {
    sizes_most=$2
    [ "$sizes_most" -le "$MOST_BYTES" ] || sizes_most=$MOST_BYTES
    if [ "$1" -lt "$sizes_most" ]; then echo "$1:$sizes_most"; else echo "$1"; fi
}

# measure OPTION...: one uct-tofu perf run, added to the results
measure() {
    echo "perf run $*"
    uct-tofu perf run -r "$REPEATS" --seconds "$SECONDS_EACH" -o "$RESULTS" "$@" ||
        failed="$failed
  $*"
}

finish() {
    if [ -s "$RESULTS" ]; then
        echo "records: $RESULTS"
    fi
    if [ -n "$failed" ]; then
        echo "not measured, or in part:$failed" >&2
        exit 1
    fi
}
