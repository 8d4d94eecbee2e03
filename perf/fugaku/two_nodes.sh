#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Two nodes: what every layer does, over size.  pjsub -g GROUP two_nodes.sh
#PJM -N uct-tofu-2
#PJM -L "node=2"
#PJM -L "rscgrp=small"
#PJM -L "elapse=01:00:00"
#PJM --mpi "max-proc-per-node=1"
#PJM -j
set -u
. ./env.sh
. ./job.sh

uct-tofu info

# raw uTofu and the core
for layer in utofu uct; do
    measure --layer "$layer" -t put_lat -t pingpong_flag -t get_lat \
        -s "$(sizes 8 4194304)"
    measure --layer "$layer" -t put_bw -t get_bw -s "$(sizes 8 4194304)"
    measure --layer "$layer" -t fadd -t cswap -t add_mr
done
measure --layer utofu -t put_lat -D short -s 8
measure --layer utofu -t pingpong_mrq -s "$(sizes 8 65536)"
measure --layer utofu -t put_bw -O 8 -s 1024
measure --layer utofu -t reg_mem -s 4096,65536,1048576
measure --layer uct -t am_lat -t am_bw -s "$(sizes 8 65536)"

# stock UCX with the plugin
measure --layer libuct -x utofu -t put_lat -t put_bw -t am_lat -t am_bw \
    -s "$(sizes 8 65536)"
measure --layer ucp -x utofu -t tag_lat -t tag_bw -s "$(sizes 8 4194304)"
# the machine's MPI
measure --layer mpi -t put_lat -t tag_lat -t tag_bw -s "$(sizes 8 4194304)"
finish
