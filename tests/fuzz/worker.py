# SPDX-License-Identifier: BSD-3-Clause
"""The process that makes the calls of test_hypothesis_args.py.

It reads one call a line from stdin, as JSON, and answers with what came back and
whether its own, correct use of the library still works.  When a call kills it, only
this process is gone.

An argument is a number, None (NULL), or one of
    ["hdl", i] ["stale"]   a live / freed VCQ        ["id", i]       its VCQ ID
    ["stadd", off]         registered memory + off   ["mem", off]    its address
    ["hole", off]          an address without memory ["odd", hex]    misaligned bytes
    ["in", hex]            an array of these bytes   ["out", n]      room for n bytes
    ["desc"]               a descriptor buffer that keeps its contents
    ["desc_size"]          what the last prepare function said of it

The call "run" has a list of calls as arguments: the memory is set to a pattern, they
are made, and all completions and the memory that they leave are the answer.
"""

import ctypes
import json
import mmap
import sys

from prototypes import PROTOTYPES, load

SIZE, GUARD = 4096, 256
TCQ_NOTICE, MRQ_NOTICE = 0x4000, 0x8000
FILL = 0x5A


class Memory:
    """SIZE bytes between guards, at an address that is a multiple of 256."""

    def __init__(self):
        self.map = mmap.mmap(-1, SIZE + 2 * GUARD)
        self.whole = (ctypes.c_ubyte * (SIZE + 2 * GUARD)).from_buffer(self.map)
        ctypes.memset(self.whole, FILL, len(self.whole))
        self.address = ctypes.addressof(self.whole) + GUARD

    def guards_intact(self):
        guards = bytes(self.whole[:GUARD]) + bytes(self.whole[GUARD + SIZE :])
        return guards == bytes([FILL]) * (2 * GUARD)


class Worker:
    def __init__(self, path):
        self.lib = load(path)
        self.live = [None] * 3
        self.memory = Memory()
        self.desc = (ctypes.c_uint64 * (4096 * 8))()
        self.desc_size = 0
        self.stale = self.create(0)[0]
        self.must(self.lib.utofu_free_vcq(self.stale))
        # a page that nothing is mapped at, between two that stay
        hole = mmap.mmap(-1, 3 * mmap.PAGESIZE)
        self.hole_map = hole
        self.hole = ctypes.addressof(ctypes.c_char.from_buffer(hole)) + mmap.PAGESIZE
        libc = ctypes.CDLL(None)
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self.must(libc.mprotect(self.hole, mmap.PAGESIZE, 0))
        self.own_memory = Memory()
        self.own = self.create(1)
        self.own_stadd = self.register(self.own[0], self.own_memory)
        self.turn = 0
        self.renew()

    def must(self, code):
        if code:
            raise RuntimeError(f"a correct call returned {code}")

    def create(self, flags):
        hdl, ident = ctypes.c_uint64(), ctypes.c_uint64()
        self.must(self.lib.utofu_create_vcq(0, flags, ctypes.addressof(hdl)))
        self.must(self.lib.utofu_query_vcq_id(hdl.value, ctypes.addressof(ident)))
        return hdl.value, ident.value

    def register(self, hdl, memory):
        stadd = ctypes.c_uint64()
        self.must(
            self.lib.utofu_reg_mem(
                hdl, memory.address, SIZE, 0, ctypes.addressof(stadd)
            )
        )
        return stadd.value

    def renew(self):
        """Live VCQs 0 (plain), 1 (thread-safe), 2 (exclusive), where they are gone."""
        for i, flags in enumerate((0, 1, 2)):
            if self.live[i] is None:
                hdl, ident = self.create(flags)
                self.live[i] = (hdl, ident, self.register(hdl, self.memory))

    def argument(self, arg, keep):
        if arg is None or isinstance(arg, int):
            return arg
        kind, *rest = arg
        if kind == "hdl":
            return self.live[rest[0]][0]
        if kind == "id":
            return self.live[rest[0]][1]
        if kind == "stale":
            return self.stale
        if kind == "stadd":
            return (self.live[0][2] + rest[0]) % 2**64
        if kind == "mem":
            return self.memory.address + rest[0]
        if kind == "hole":
            return self.hole + rest[0]
        if kind == "desc":
            return ctypes.addressof(self.desc)
        if kind == "desc_size":
            return self.desc_size
        raw = (
            bytes.fromhex(rest[0]) if kind in ("in", "odd") else bytes([FILL]) * rest[0]
        )
        shift = 1 if kind == "odd" else 0
        room = (ctypes.c_uint64 * (len(raw) // 8 + 2))()
        address = ctypes.addressof(room) + shift
        ctypes.memmove(address, raw, len(raw))
        keep.append((kind, address, len(raw), room))
        return address

    def call(self, name, args):
        keep = []
        values = [self.argument(a, keep) for a in args]
        code = getattr(self.lib, name)(*values)
        outs = [ctypes.string_at(a, n).hex() for kind, a, n, _ in keep if kind != "odd"]
        if name.startswith("utofu_create") and code == 0:
            made = int.from_bytes(bytes.fromhex(outs[-1]), "little")
            self.must(self.lib.utofu_free_vcq(made))
        if name == "utofu_free_vcq" and code == 0:
            for i, live in enumerate(self.live):
                if live[0] == values[0]:
                    self.live[i] = None
        if name == "utofu_dereg_mem" and code == 0:
            for i, (hdl, ident, stadd) in enumerate(self.live):
                if (hdl, stadd) == (values[0], values[1]):
                    self.live[i] = (hdl, ident, self.register(hdl, self.memory))
        if name.endswith("_tnis") and code == 0:
            ids = int.from_bytes(bytes.fromhex(outs[0]), "little")
            ctypes.CDLL(None).free(ctypes.c_void_p(ids))
        if name.startswith("utofu_prepare") and code == 0:
            self.desc_size = int.from_bytes(bytes.fromhex(outs[-1]), "little")
        return code, outs

    def run(self, calls):
        hdl = self.live[0][0]
        pattern = bytes(i * 7 % 251 for i in range(SIZE))
        ctypes.memmove(self.memory.address, pattern, SIZE)
        codes = [self.call(name, args)[0] for name, args in calls]
        tcq, mrq = [], []
        cb, notice = ctypes.c_uint64(), (ctypes.c_uint64 * 8)()
        quiet = 0
        while quiet < 3:  # strict mode completes while it is polled
            quiet += 1
            while (code := self.lib.utofu_poll_tcq(hdl, 0, ctypes.addressof(cb))) != -1:
                tcq.append([code, cb.value])
                quiet = 0
            while (
                code := self.lib.utofu_poll_mrq(hdl, 0, ctypes.addressof(notice))
            ) != -1:
                # type, edata, old value and both end addresses; not the padding
                mrq.append([code, notice[0] & 0xFF, *notice[2:6]])
                quiet = 0
        after = ctypes.string_at(self.memory.address, SIZE).hex()
        return {"codes": codes, "tcq": tcq, "mrq": mrq, "memory": after}

    def broken(self):
        """What is wrong with correct use; None: nothing."""
        lib, buf, cb = self.lib, (ctypes.c_uint64 * 8)(), ctypes.c_uint64()
        for live in self.live:
            if live is None:
                continue
            if (
                lib.utofu_query_vcq_id(live[0], ctypes.addressof(buf))
                or buf[0] != live[1]
            ):
                return "a live handle is not known any more"
            for _ in range(5000):  # queues are emptied, so that none overflows
                if lib.utofu_poll_tcq(live[0], 0, ctypes.addressof(cb)) == -1:
                    break
            for _ in range(5000):
                if lib.utofu_poll_mrq(live[0], 0, ctypes.addressof(buf)) == -1:
                    break
        if not (self.memory.guards_intact() and self.own_memory.guards_intact()):
            return "bytes outside of registered memory changed"
        self.turn += 1
        word = ctypes.c_uint64.from_address(self.own_memory.address + 8)
        hdl, ident = self.own
        code = lib.utofu_put_piggyback8(
            hdl, ident, self.turn, self.own_stadd + 8, 8, 1, TCQ_NOTICE | MRQ_NOTICE, 7
        )
        for poll, where in ((lib.utofu_poll_tcq, cb), (lib.utofu_poll_mrq, buf)):
            got = -1
            for _ in range(1000000):
                got = poll(hdl, 0, ctypes.addressof(where))
                if got != -1:
                    break
            code = code or got
        if code or word.value != self.turn or cb.value != 7:
            return f"a correct put ended with {code}, {word.value} for {self.turn}"
        self.renew()
        return None


def main():
    worker = Worker(sys.argv[1])
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        name, args = json.loads(line)
        if name == "run":
            answer = worker.run(args)
        else:
            assert name in PROTOTYPES
            code, outs = worker.call(name, args)
            answer = {"code": code, "outs": outs}
        answer["broken"] = worker.broken()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
