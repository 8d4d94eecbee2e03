#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The twelve nodes of a unit: latency over 1, 2, 3 links; many to one; barriers.
#   pjsub -g GROUP unit.sh
#PJM -N uct-tofu-12
#PJM -L "node=2x3x2:torus"
#PJM -L "rscgrp=small-torus"
#PJM -L "elapse=01:00:00"
#PJM --mpi "max-proc-per-node=1"
#PJM -j
set -u
. ./env.sh
. ./job.sh

places="$TMPDIR/places"
sh launch.sh -n "$PJM_MPI_PROC" "$UCT_TOFU_VENV/bin/python" places.py show >"$places" ||
    fail "the nodes did not tell where they are"

for hops in 1 2 3; do
    UCT_TOFU_RANKS=$(python places.py pair "$hops" "$places") || {
        failed="$failed
  $hops links"
        continue
    }
    export UCT_TOFU_RANKS
    measure --layer utofu --hops "$hops" -t put_lat -t get_lat -t fadd -s 8
    measure --layer utofu --hops "$hops" -t put_bw -O 8 -s 1024
done
unset UCT_TOFU_RANKS

for senders in 1 3 7 11; do
    [ "$senders" -lt "$PJM_MPI_PROC" ] || continue
    measure --layer uct -t many_to_one -p "senders=$senders"
done
for processes in 2 4 8 12; do
    [ "$processes" -le "$PJM_MPI_PROC" ] || continue
    measure --layer utofu -t barrier -t reduce -p "processes=$processes"
    measure --layer uct -t gups -p "processes=$processes"
done
finish
