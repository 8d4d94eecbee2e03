/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_vcq.h - what a program may tell a library about its use of a VCQ.
 *
 * The guide promises that each cache line of what a put or get writes is complete when
 * its last word has changed (2.2.10).  That costs the machine nothing; into memory that
 * the emulator has to write through the kernel it costs 30 to 50 ns a line.  A program
 * of which nobody polls single lines, because a notice, or the last word of a put with
 * STRONG_ORDER, tells that the data is there, says so: it registers with the VCQ a page
 * of a shared mapping of a memfd called TOFU_UNORDERED_MEMFD.  To a library that knows
 * nothing of it that is registered memory like any other.  The promise does not hold
 * for puts and gets of this VCQ from then on, and memory that is registered with it later
 * is left where it is (emu_rehome.c): it may be registered for one transfer only.
 *
 * Memory that peers reach for long is better moved to where they can map it.  For that the
 * program registers a page of a shared mapping of a memfd called TOFU_MOVABLE_MEMFD with
 * the VCQ: what is registered with it from then on may be moved, until that page is
 * deregistered again.
 */
#ifndef TOFU_VCQ_H
#define TOFU_VCQ_H

#define TOFU_UNORDERED_MEMFD "utofu_lines_unordered"
#define TOFU_MOVABLE_MEMFD   "utofu_movable"

#endif /* TOFU_VCQ_H */
