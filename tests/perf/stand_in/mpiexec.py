# SPDX-License-Identifier: BSD-3-Clause
"""A stand-in for the mpiexec of a job there, over MPICH's (STAND_IN_MPIEXEC).

It knows -n, -stdout-proc and -stderr-proc, and refuses other options; there have to be
a job and enough nodes.  Processes have the ranks of PMIx and Open MPI.  As on the
machine, nothing comes out of mpiexec itself: what rank 3 prints is in FILE.1.3, and in
./output.JOBID/0/1/stdout.1.3 when no FILE was named.
"""

import os
import signal
import subprocess
import sys

RANK = """
export PMIX_RANK="$PMI_RANK" OMPI_COMM_WORLD_RANK="$PMI_RANK"
export OMPI_COMM_WORLD_SIZE="$PMI_SIZE"
exec >"$1.1.$PMI_RANK" 2>"$2.1.$PMI_RANK"
shift 2
exec "$@"
"""


def refuse(reason):
    sys.exit(f"[mpi::mpi-errors::mpi_errs_option] mpiexec {reason}")


def main():
    words, options = sys.argv[1:], {}
    while words and words[0].startswith("-"):
        if words[0] not in ("-n", "-stdout-proc", "-stderr-proc") or len(words) < 2:
            refuse(f"unknown option {words[0]}")
        options[words[0]] = words[1]
        del words[:2]
    if not words:
        refuse("no program")
    if "PJM_JOBID" not in os.environ:
        refuse("outside of a job")
    number = int(options.get("-n", os.environ["PJM_MPI_PROC"]))
    if not 1 <= number <= int(os.environ["PJM_MPI_PROC"]):
        refuse(f"-n {number}: the job has {os.environ['PJM_MPI_PROC']} processes")
    folder = f"output.{os.environ['PJM_JOBID']}/0/1"
    files = []
    for name in ("stdout", "stderr"):
        path = options.get(f"-{name}-proc", f"{folder}/{name}")
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        files.append(path)
    command = [os.environ["STAND_IN_MPIEXEC"], "-n", str(number)]
    process = subprocess.Popen(
        [*command, "sh", "-c", RANK, "sh", *files, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    try:
        code = process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    if os.environ.get("PLE_MPI_STD_EMPTYFILE") == "off":
        for path in (f"{file}.1.{rank}" for file in files for rank in range(number)):
            if os.path.exists(path) and os.path.getsize(path) == 0:
                os.unlink(path)
    sys.exit(code)


main()
