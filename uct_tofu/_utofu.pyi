# SPDX-License-Identifier: BSD-3-Clause
"""Types of cython/uct_tofu/_utofu.pyx, whose docstrings say the rest."""

import enum
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer, Self

_Buffer = Buffer | npt.NDArray[Any]

class OnesidedFlag(enum.IntFlag):
    STRONG_ORDER = ...
    PACKET_RESPONSE = ...
    REMOTE_MRQ_NOTICE = ...
    PADDING = ...
    CACHE_INJECTION = ...
    DELAY_START = ...
    TCQ_NOTICE = ...
    LOCAL_MRQ_NOTICE = ...
    @staticmethod
    def path(path_id: int) -> OnesidedFlag: ...
    @staticmethod
    def sps(steps: int) -> OnesidedFlag: ...

class ArmwOp(enum.IntEnum):
    SWAP = ...
    ADD = ...
    XOR = ...
    AND = ...
    OR = ...

class ReduceOp(enum.IntEnum):
    BARRIER = ...
    BAND = ...
    BOR = ...
    BXOR = ...
    MAX = ...
    MAXLOC = ...
    SUM = ...
    BFPSUM = ...

class MrqType(enum.IntEnum):
    LCL_PUT = ...
    RMT_PUT = ...
    LCL_GET = ...
    RMT_GET = ...
    LCL_ARMW = ...
    RMT_ARMW = ...

class MrqNotice(NamedTuple):
    type: MrqType
    vcq_id: int
    edata: int
    rmt_value: int
    lcl_stadd: int
    rmt_stadd: int

class Backend:
    @staticmethod
    def load(choice: str | None = None) -> Backend: ...
    @property
    def kind(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def network_id(self) -> int: ...
    def onesided_tnis(self) -> list[int]: ...
    def barrier_tnis(self) -> list[int]: ...
    def onesided_caps(self, tni: int) -> dict[str, int]: ...
    def barrier_caps(self, tni: int) -> dict[str, int]: ...
    @property
    def tofu_version(self) -> tuple[int, int]: ...
    @property
    def utofu_version(self) -> tuple[int, int]: ...
    def coords(self) -> tuple[int, int, int, int, int, int]: ...
    def construct_vcq_id(
        self,
        coords: Iterable[int],
        tni: int,
        cq: int,
        cmp_id: int,
    ) -> int: ...
    def vcq_info(self, vcq_id: int) -> dict[str, Any]: ...
    def query_stadd(self, vcq_id: int, stag: int) -> int: ...
    def set_vcq_id_path(
        self,
        vcq_id: int,
        path_coords: Iterable[int] | None = None,
    ) -> int: ...
    def path_id(self, vcq_id: int, path_coords: Iterable[int] | None = None) -> int: ...
    def path_coords(self, vcq_id: int, path_id: int) -> tuple[int, int, int]: ...
    def vbg_info(self, vbg_id: int) -> dict[str, Any]: ...

class RegisteredMemory:
    @property
    def vcq(self) -> Vcq: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def stadd(self) -> int: ...
    @property
    def address(self) -> int: ...
    @property
    def length(self) -> int: ...
    def stadd_at(self, offset: SupportsIndex, length: SupportsIndex = 0) -> int: ...
    def dereg(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...

class Vcq:
    @property
    def backend(self) -> Backend: ...
    @property
    def tni(self) -> int: ...
    def __init__(
        self,
        backend: Backend,
        tni: int,
        *,
        exclusive: bool = False,
        thread_safe: bool = False,
        session_mode: bool = False,
        cmp_id: int | None = None,
    ) -> None: ...
    def free(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
    @property
    def id(self) -> int: ...
    def reg_mem(
        self,
        buffer: _Buffer,
        *,
        read_only: bool = False,
        stag: int | None = None,
    ) -> RegisteredMemory: ...
    def put(
        self,
        rmt_vcq_id: int,
        lcl_stadd: int,
        rmt_stadd: int,
        length: int,
        edata: int = 0,
        flags: int = 0,
        cbdata: int = 0,
    ) -> None: ...
    def put_gap(
        self,
        rmt_vcq_id: int,
        lcl_stadd: int,
        rmt_stadd: int,
        length: int,
        mtu: int,
        gap: int,
        edata: int = 0,
        flags: int = 0,
        cbdata: int = 0,
    ) -> None: ...
    def put_stride(
        self,
        rmt_vcq_id: int,
        lcl_stadd: int,
        rmt_stadd: int,
        length: int,
        stride: int,
        num_blocks: int,
        edata: int = 0,
        flags: int = 0,
        cbdata: int = 0,
    ) -> None: ...
    def put_stride_gap(
        self,
        rmt_vcq_id: int,
        lcl_stadd: int,
        rmt_stadd: int,
        length: int,
        stride: int,
        num_blocks: int,
        mtu: int,
        gap: int,
        edata: int = 0,
        flags: int = 0,
        cbdata: int = 0,
    ) -> None: ...
    def put_piggyback(
        self,
        rmt_vcq_id: int,
        data: _Buffer,
        rmt_stadd: int,
        edata: int = 0,
        flags: int = 0,
        cbdata: int = 0,
    ) -> None: ...
    def put_piggyback8(
        self,
        rmt_vcq_id: int,
        value: int,
        rmt_stadd: int,
        length: int = 8,
        edata: int = 0,
        flags: int = 0,
        cbdata: int = 0,
    ) -> None: ...
    def get(
        self,
        rmt_vcq_id: int,
        lcl_stadd: int,
        rmt_stadd: int,
        length: int,
        edata: int = 0,
        flags: int = 0,
        cbdata: int = 0,
    ) -> None: ...
    def get_gap(
        self,
        rmt_vcq_id: int,
        lcl_stadd: int,
        rmt_stadd: int,
        length: int,
        mtu: int,
        gap: int,
        edata: int = 0,
        flags: int = 0,
        cbdata: int = 0,
    ) -> None: ...
    def get_stride(
        self,
        rmt_vcq_id: int,
        lcl_stadd: int,
        rmt_stadd: int,
        length: int,
        stride: int,
        num_blocks: int,
        edata: int = 0,
        flags: int = 0,
        cbdata: int = 0,
    ) -> None: ...
    def get_stride_gap(
        self,
        rmt_vcq_id: int,
        lcl_stadd: int,
        rmt_stadd: int,
        length: int,
        stride: int,
        num_blocks: int,
        mtu: int,
        gap: int,
        edata: int = 0,
        flags: int = 0,
        cbdata: int = 0,
    ) -> None: ...
    def armw4(
        self,
        rmt_vcq_id: int,
        op: int,
        value: int,
        rmt_stadd: int,
        edata: int = 0,
        flags: int = 0,
        cbdata: int = 0,
    ) -> None: ...
    def armw8(
        self,
        rmt_vcq_id: int,
        op: int,
        value: int,
        rmt_stadd: int,
        edata: int = 0,
        flags: int = 0,
        cbdata: int = 0,
    ) -> None: ...
    def cswap4(
        self,
        rmt_vcq_id: int,
        old_value: int,
        new_value: int,
        rmt_stadd: int,
        edata: int = 0,
        flags: int = 0,
        cbdata: int = 0,
    ) -> None: ...
    def cswap8(
        self,
        rmt_vcq_id: int,
        old_value: int,
        new_value: int,
        rmt_stadd: int,
        edata: int = 0,
        flags: int = 0,
        cbdata: int = 0,
    ) -> None: ...
    def nop(self, flags: int = 0, cbdata: int = 0) -> None: ...
    def post_toq(
        self,
        descriptors: Descriptors | None = None,
        cbdata: int = 0,
    ) -> None: ...
    def poll_tcq(self) -> int | None: ...
    def poll_mrq(self) -> MrqNotice | None: ...
    def wait_tcq(self, timeout: float | None = None) -> int: ...
    def wait_mrq(self, timeout: float | None = None) -> MrqNotice: ...
    def num_unread_tcq(self) -> int: ...
    def num_unread_mrq(self) -> int: ...

class Descriptors:
    @property
    def vcq(self) -> Vcq: ...
    def __init__(self, vcq: Vcq) -> None: ...
    def __len__(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def clear(self) -> None: ...
    def put(
        self,
        rmt_vcq_id: int,
        lcl_stadd: int,
        rmt_stadd: int,
        length: int,
        edata: int = 0,
        flags: int = 0,
    ) -> None: ...
    def put_gap(
        self,
        rmt_vcq_id: int,
        lcl_stadd: int,
        rmt_stadd: int,
        length: int,
        mtu: int,
        gap: int,
        edata: int = 0,
        flags: int = 0,
    ) -> None: ...
    def put_stride(
        self,
        rmt_vcq_id: int,
        lcl_stadd: int,
        rmt_stadd: int,
        length: int,
        stride: int,
        num_blocks: int,
        edata: int = 0,
        flags: int = 0,
    ) -> None: ...
    def put_stride_gap(
        self,
        rmt_vcq_id: int,
        lcl_stadd: int,
        rmt_stadd: int,
        length: int,
        stride: int,
        num_blocks: int,
        mtu: int,
        gap: int,
        edata: int = 0,
        flags: int = 0,
    ) -> None: ...
    def put_piggyback(
        self,
        rmt_vcq_id: int,
        data: _Buffer,
        rmt_stadd: int,
        edata: int = 0,
        flags: int = 0,
    ) -> None: ...
    def put_piggyback8(
        self,
        rmt_vcq_id: int,
        value: int,
        rmt_stadd: int,
        length: int = 8,
        edata: int = 0,
        flags: int = 0,
    ) -> None: ...
    def get(
        self,
        rmt_vcq_id: int,
        lcl_stadd: int,
        rmt_stadd: int,
        length: int,
        edata: int = 0,
        flags: int = 0,
    ) -> None: ...
    def get_gap(
        self,
        rmt_vcq_id: int,
        lcl_stadd: int,
        rmt_stadd: int,
        length: int,
        mtu: int,
        gap: int,
        edata: int = 0,
        flags: int = 0,
    ) -> None: ...
    def get_stride(
        self,
        rmt_vcq_id: int,
        lcl_stadd: int,
        rmt_stadd: int,
        length: int,
        stride: int,
        num_blocks: int,
        edata: int = 0,
        flags: int = 0,
    ) -> None: ...
    def get_stride_gap(
        self,
        rmt_vcq_id: int,
        lcl_stadd: int,
        rmt_stadd: int,
        length: int,
        stride: int,
        num_blocks: int,
        mtu: int,
        gap: int,
        edata: int = 0,
        flags: int = 0,
    ) -> None: ...
    def armw4(
        self,
        rmt_vcq_id: int,
        op: int,
        value: int,
        rmt_stadd: int,
        edata: int = 0,
        flags: int = 0,
    ) -> None: ...
    def armw8(
        self,
        rmt_vcq_id: int,
        op: int,
        value: int,
        rmt_stadd: int,
        edata: int = 0,
        flags: int = 0,
    ) -> None: ...
    def cswap4(
        self,
        rmt_vcq_id: int,
        old_value: int,
        new_value: int,
        rmt_stadd: int,
        edata: int = 0,
        flags: int = 0,
    ) -> None: ...
    def cswap8(
        self,
        rmt_vcq_id: int,
        old_value: int,
        new_value: int,
        rmt_stadd: int,
        edata: int = 0,
        flags: int = 0,
    ) -> None: ...
    def nop(self, flags: int = 0) -> None: ...

class VbgSetting(NamedTuple):
    vbg_id: int
    src_lcl_vbg_id: int | None = None
    src_rmt_vbg_id: int | None = None
    dst_lcl_vbg_id: int | None = None
    dst_rmt_vbg_id: int | None = None
    dst_path_coords: Sequence[int] | None = None

class Vbg:
    @property
    def backend(self) -> Backend: ...
    @property
    def tni(self) -> int: ...
    def __init__(
        self,
        backend: Backend,
        tni: int,
        count: int = 1,
        *,
        thread_safe: bool = False,
    ) -> None: ...
    @property
    def ids(self) -> tuple[int, ...]: ...
    def __len__(self) -> int: ...
    def set(self, settings: Iterable[VbgSetting | tuple[Any, ...]]) -> None: ...
    def free(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
    def barrier(self) -> None: ...
    def poll_barrier(self) -> bool: ...
    def wait_barrier(self, timeout: float | None = None) -> None: ...
    def reduce_uint64(self, op: int, data: Iterable[SupportsIndex]) -> None: ...
    def poll_reduce_uint64(self) -> npt.NDArray[np.uint64] | None: ...
    def wait_reduce_uint64(
        self,
        timeout: float | None = None,
    ) -> npt.NDArray[np.uint64]: ...
    def reduce_double(self, op: int, data: Iterable[float]) -> None: ...
    def poll_reduce_double(self) -> npt.NDArray[np.float64] | None: ...
    def wait_reduce_double(
        self,
        timeout: float | None = None,
    ) -> npt.NDArray[np.float64]: ...
