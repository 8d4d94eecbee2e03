#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Four units side by side: a node sends to its neighbours, from a TNI to each of them.
# In 2x3x2 nodes it has four of them, in 4x3x2 five, in 4x6x2 six.
#   pjsub -g GROUP neighbours.sh
#   pjsub -g GROUP -L node=4x3x2:torus neighbours.sh
#PJM -N uct-tofu-tnis
#PJM -L "node=4x6x2:torus"
#PJM -L "rscgrp=small-torus"
#PJM -L "elapse=00:30:00"
#PJM --mpi "max-proc-per-node=1"
#PJM -j
set -u
. ./env.sh
. ./job.sh

places="$TMPDIR/places"
sh launch.sh -n "$PJM_MPI_PROC" "$UCT_TOFU_VENV/bin/python" places.py show >"$places" ||
    fail "the nodes did not tell where they are"
UCT_TOFU_RANKS=$(python places.py neighbours 6 "$places") ||
    fail "no node has a neighbour in this job"
export UCT_TOFU_RANKS
# shellcheck disable=SC2086 # words
set -- $UCT_TOFU_RANKS
most=$(($# - 1))
echo "rank $1 and its $most neighbours"

tnis=1
while [ "$tnis" -le "$most" ]; do
    measure --layer utofu -t put_bw -s "$(sizes 1024 1048576)" -p "tnis=$tnis"
    tnis=$((tnis + 1))
done
# messages from the neighbours to the node in the middle
senders=1
while [ "$senders" -le "$most" ]; do
    measure --layer uct -t many_to_one -p "senders=$senders"
    senders=$((senders + 1))
done
unset UCT_TOFU_RANKS
for senders in 11 23 47; do
    [ "$senders" -lt "$PJM_MPI_PROC" ] || continue
    measure --layer uct -t many_to_one -p "senders=$senders"
done
finish
