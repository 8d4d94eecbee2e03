# SPDX-License-Identifier: BSD-3-Clause
"""Active messages among more nodes than there are at hand: ``uct-tofu perf scale``.

``simulator`` lets the senders and the receiver of the checked protocol model
(uct_tofu.model) run in the time of the timing model (uct_tofu.perf.tofud_model) over
a ``network`` of Tofu coordinates; ``claims`` shortens the wait for an entry of a full
request table.  ``workloads`` says who sends what to whom, and what stands for the
nodes that are not simulated; ``memory`` counts bytes, VCQs and CQs; ``report`` makes
records, a table and plots.  docs/scale.md has the assumptions.  Needs nothing native.
"""





from uct_tofu.perf.scale.workloads import WORKLOADS, Case, Outcome, run_workload

__all__ = ["WORKLOADS", "Case", "Outcome", "run_workload"]
