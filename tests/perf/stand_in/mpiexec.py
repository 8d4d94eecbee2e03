# SPDX-License-Identifier: BSD-3-Clause
"""A stand-in for the mpiexec of a job there, over MPICH's (STAND_IN_MPIEXEC).

It knows -n, --stdout and --stderr, and refuses other options; there have to be a job
and enough nodes.  Processes have the ranks of PMIx and Open MPI.  As on the
machine, output goes to files: nothing comes out of mpiexec itself.
"""

import os
import signal
import subprocess
import sys

RANK = """
export PMIX_RANK="$PMI_RANK" OMPI_COMM_WORLD_RANK="$PMI_RANK"
export OMPI_COMM_WORLD_SIZE="$PMI_SIZE"
exec "$@"
"""


def refuse(reason):
    sys.exit(f"[mpi::mpi-errors::mpi_errs_option] mpiexec {reason}")


def main():
    words, options = sys.argv[1:], {}
    while words and words[0].startswith("-"):
        if words[0] not in ("-n", "--stdout", "--stderr") or len(words) < 2:
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
    folder = f"output.{os.environ['PJM_JOBID']}"
    streams = []
    for name in ("stdout", "stderr"):
        path = options.get(f"--{name}")
        if path is None:
            os.makedirs(folder, exist_ok=True)
            path = f"{folder}/{name}.{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        streams.append(os.open(path, flags, 0o666))
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    command = [os.environ["STAND_IN_MPIEXEC"], "-n", str(number)]
    process = subprocess.Popen(
        [*command, "sh", "-c", RANK, "sh", *words],
        stdin=subprocess.DEVNULL,
        stdout=streams[0],
        stderr=streams[1],
    )
    try:
        sys.exit(process.wait())
    except BaseException:
        process.terminate()
        process.wait()
        raise


main()
