/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_wire.c - what processes give each other outside of uTofu: rkeys, iface
 * and device addresses.  Little-endian, with magic, version and checksum, since
 * they come through hands that the core does not know.
 */
#include "tofu_internal.h"

#include <stdio.h>
#include <stdlib.h>

#define TOFU_WIRE_VERSION       8u
#define TOFU_WIRE_MAGIC_RKEY    0x6b726675u /* "ufrk" */
#define TOFU_WIRE_MAGIC_ADDRESS 0x64616675u /* "ufad" */
#define TOFU_WIRE_MAGIC_DEVICE  0x76646675u /* "ufdv" */

static void tofu_wire_put(unsigned char *p, uint64_t value, unsigned bytes)
{
    while (bytes-- > 0) {
        *p++   = (unsigned char)value;
        value >>= 8;
    }
}

static uint64_t tofu_wire_get(const unsigned char *p, unsigned bytes)
{
    uint64_t value = 0;

    while (bytes-- > 0) {
        value = (value << 8) | p[bytes];
    }
    return value;
}

/* CRC-32 (reflected polynomial 0xedb88320): finds every error of one to three
 * bits in so few bytes, and all but one in 2^32 of the others. */
uint32_t tofu_wire_checksum(const void *data, size_t size)
{
    const unsigned char *p  = data;
    uint32_t            crc = ~0u;
    int                 i;

    while (size-- > 0) {
        crc ^= *p++;
        for (i = 0; i < 8; ++i) {
            crc = (crc >> 1) ^ (0xedb88320u & -(crc & 1));
        }
    }
    return ~crc;
}

/*
 * rkey, 48 bytes and 16 for each further rail that memory of the md may have:
 * 0 magic(4) 4 version(2) 6 flags(2) 8 base(8) 16 length(8) 24 vcq_id(8)
 * 32 stadd(8) 40 rails(2) 42 rails that there is room for(2)
 * 44 checksum(4), of what is before and after it
 * 48 ... of each rail: vcq_id(8) stadd(8); then zeros
 */
static unsigned tofu_rkey_room(const tofu_md_t *md)
{
    return (md->stripe_thresh == SIZE_MAX) ? 0 : md->num_tnis - 1;
}

size_t tofu_rkey_packed_size(const tofu_md_t *md)
{
    return TOFU_RKEY_SIZE + tofu_rkey_room(md) * TOFU_RKEY_RAIL_SIZE;
}

static uint32_t tofu_rkey_checksum(const unsigned char *p, unsigned room)
{
    return tofu_wire_checksum(p, 44) ^
           (tofu_wire_checksum(p + 48, room * TOFU_RKEY_RAIL_SIZE) * 3);
}

void tofu_mkey_pack(const tofu_mem_t *memh, void *buffer)
{
    unsigned char *p = buffer;
    unsigned      i;
    size_t        used;

    tofu_wire_put(p, TOFU_WIRE_MAGIC_RKEY, 4);
    tofu_wire_put(p + 4, TOFU_WIRE_VERSION, 2);
    tofu_wire_put(p + 6, memh->flags & TOFU_MEM_READ_ONLY, 2);
    tofu_wire_put(p + 8, (uintptr_t)memh->address, 8);
    tofu_wire_put(p + 16, memh->length, 8);
    tofu_wire_put(p + 24, memh->md->vcq_id, 8);
    tofu_wire_put(p + 32, memh->stadd, 8);
    tofu_wire_put(p + 40, memh->num_rails, 2);
    tofu_wire_put(p + 42, tofu_rkey_room(memh->md), 2);
    for (i = 0; i < memh->num_rails; ++i) {
        tofu_wire_put(p + 48 + i * TOFU_RKEY_RAIL_SIZE,
                      memh->md->rail[memh->rail[i].rail].vcq_id, 8);
        tofu_wire_put(p + 56 + i * TOFU_RKEY_RAIL_SIZE, memh->rail[i].stadd, 8);
    }
    used = 48 + i * TOFU_RKEY_RAIL_SIZE;
    memset(p + used, 0, tofu_rkey_packed_size(memh->md) - used);
    tofu_wire_put(p + 44, tofu_rkey_checksum(p, tofu_rkey_room(memh->md)), 4);
}

tofu_status_t tofu_rkey_unpack(const void *buffer, size_t size,
                               tofu_rkey_t **rkey_p)
{
    const unsigned char *p = buffer;
    tofu_rkey_t         *rkey;
    uint64_t            flags, rails, room;
    unsigned            i;

    if ((buffer == NULL) || ((size != 0) && (size < TOFU_RKEY_SIZE))) {
        tofu_error("rkey of %zu bytes, expected %u", size, TOFU_RKEY_SIZE);
        return TOFU_ERR_INVALID_PARAM;
    }
    if (tofu_wire_get(p, 4) != TOFU_WIRE_MAGIC_RKEY) {
        tofu_error("these bytes are not an rkey of this transport");
        return TOFU_ERR_INVALID_PARAM;
    }
    if (tofu_wire_get(p + 4, 2) != TOFU_WIRE_VERSION) {
        tofu_error("rkey of version %u, this is version %u",
                   (unsigned)tofu_wire_get(p + 4, 2), TOFU_WIRE_VERSION);
        return TOFU_ERR_INVALID_PARAM;
    }
    flags = tofu_wire_get(p + 6, 2);
    rails = tofu_wire_get(p + 40, 2);
    room  = tofu_wire_get(p + 42, 2);
    if ((room > TOFU_MAX_TNIS - 1) || (rails > room) ||
        ((size != 0) && (size < TOFU_RKEY_SIZE + room * TOFU_RKEY_RAIL_SIZE)) ||
        (tofu_wire_get(p + 44, 4) != tofu_rkey_checksum(p, (unsigned)room)) ||
        (flags & ~(uint64_t)TOFU_MEM_READ_ONLY)) {
        tofu_error("rkey is damaged (checksum)");
        return TOFU_ERR_INVALID_PARAM;
    }

    rkey = malloc(sizeof(*rkey));
    if (rkey == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    rkey->base      = tofu_wire_get(p + 8, 8);
    rkey->length    = tofu_wire_get(p + 16, 8);
    rkey->wr_length = (flags & TOFU_MEM_READ_ONLY) ? 0 : rkey->length;
    rkey->vcq_id    = tofu_wire_get(p + 24, 8);
    rkey->stadd     = tofu_wire_get(p + 32, 8);
    rkey->num_rails = (unsigned)rails;
    for (i = 0; i < rkey->num_rails; ++i) {
        rkey->rail[i].vcq_id = tofu_wire_get(p + 48 + i * TOFU_RKEY_RAIL_SIZE, 8);
        rkey->rail[i].stadd  = tofu_wire_get(p + 56 + i * TOFU_RKEY_RAIL_SIZE, 8);
    }
    *rkey_p = rkey;
    return TOFU_OK;
}

void tofu_rkey_release(tofu_rkey_t *rkey)
{
    free(rkey);
}

/*
 * iface address, 40 bytes: 0 magic(4) 4 version(2) 6 small slot size, in words(1) 7 port(1)
 * 8 vcq_id(8) 16 small slots(4) 20 large slots(4) 24 large slot size(3)
 * 27 lead of large slots(1) 28 segment size(4) 32 incarnation(4) 36 checksum(4)
 */
void tofu_wire_pack_address(void *buffer, const tofu_address_t *address)
{
    unsigned char *p = buffer;

    tofu_wire_put(p, TOFU_WIRE_MAGIC_ADDRESS, 4);
    tofu_wire_put(p + 4, TOFU_WIRE_VERSION, 2);
    tofu_wire_put(p + 6, address->geometry.small_size / 8, 1);
    tofu_wire_put(p + 7, address->port, 1);
    tofu_wire_put(p + 8, address->vcq_id, 8);
    tofu_wire_put(p + 16, address->geometry.small_count, 4);
    tofu_wire_put(p + 20, address->geometry.large_count, 4);
    tofu_wire_put(p + 24, address->geometry.large_size, 3);
    tofu_wire_put(p + 27, address->geometry.large_lead, 1);
    tofu_wire_put(p + 28, address->geometry.seg_size, 4);
    tofu_wire_put(p + 32, address->incarnation, 4);
    tofu_wire_put(p + 36, tofu_wire_checksum(p, 36), 4);
}

tofu_status_t tofu_wire_unpack_address(const void *buffer, size_t size,
                                       tofu_address_t *address_p, char *reason,
                                       size_t reason_size)
{
    const unsigned char *p = buffer;
    tofu_address_t      a;

    if ((buffer == NULL) || ((size != 0) && (size != TOFU_ADDRESS_SIZE))) {
        snprintf(reason, reason_size, "iface address of %zu bytes, expected %u",
                 size, TOFU_ADDRESS_SIZE);
        return TOFU_ERR_INVALID_PARAM;
    }
    if (tofu_wire_get(p, 4) != TOFU_WIRE_MAGIC_ADDRESS) {
        snprintf(reason, reason_size,
                 "these bytes are not an iface address of this transport");
        return TOFU_ERR_INVALID_PARAM;
    }
    if (tofu_wire_get(p + 4, 2) != TOFU_WIRE_VERSION) {
        snprintf(reason, reason_size,
                 "iface address of version %u, this is version %u",
                 (unsigned)tofu_wire_get(p + 4, 2), TOFU_WIRE_VERSION);
        return TOFU_ERR_INVALID_PARAM;
    }
    if (tofu_wire_get(p + 36, 4) != tofu_wire_checksum(p, 36)) {
        snprintf(reason, reason_size, "iface address is damaged (checksum)");
        return TOFU_ERR_INVALID_PARAM;
    }
    a.geometry.small_size = (uint32_t)tofu_wire_get(p + 6, 1) * 8;
    a.port                = p[7];
    a.vcq_id      = tofu_wire_get(p + 8, 8);
    a.geometry.small_count = (uint32_t)tofu_wire_get(p + 16, 4);
    a.geometry.large_count = (uint32_t)tofu_wire_get(p + 20, 4);
    a.geometry.large_size = (uint32_t)tofu_wire_get(p + 24, 3);
    a.geometry.large_lead = (uint32_t)tofu_wire_get(p + 27, 1);
    a.geometry.seg_size = (uint32_t)tofu_wire_get(p + 28, 4);
    a.incarnation = (uint32_t)tofu_wire_get(p + 32, 4);
    *address_p    = a;
    return TOFU_OK;
}

/* device address, 16 bytes: 0 magic(4) 4 version(2) 6 backend kind(2)
 * 8 network_id(8) */
void tofu_iface_get_device_address(tofu_iface_t *iface, void *buffer)
{
    const struct tofu_backend *backend = iface->md->backend;
    unsigned char             *p       = buffer;

    tofu_wire_put(p, TOFU_WIRE_MAGIC_DEVICE, 4);
    tofu_wire_put(p + 4, TOFU_WIRE_VERSION, 2);
    tofu_wire_put(p + 6, (uint64_t)backend->kind, 2);
    tofu_wire_put(p + 8, backend->network_id, 8);
}

static int tofu_wire_device_ok(tofu_iface_t *iface, const unsigned char *p,
                               size_t size, char *reason, size_t reason_size)
{
    static const char *const  kinds[] = {"tofu", "emulator"};
    const struct tofu_backend *backend = iface->md->backend;
    uint64_t                  kind;

    if ((p == NULL) || ((size != 0) && (size != TOFU_DEVICE_SIZE))) {
        snprintf(reason, reason_size, "device address of %zu bytes, expected %u",
                 size, TOFU_DEVICE_SIZE);
        return 0;
    }
    if (tofu_wire_get(p, 4) != TOFU_WIRE_MAGIC_DEVICE) {
        snprintf(reason, reason_size,
                 "these bytes are not a device address of this transport");
        return 0;
    }
    if (tofu_wire_get(p + 4, 2) != TOFU_WIRE_VERSION) {
        snprintf(reason, reason_size,
                 "device address of version %u, this is version %u",
                 (unsigned)tofu_wire_get(p + 4, 2), TOFU_WIRE_VERSION);
        return 0;
    }
    kind = tofu_wire_get(p + 6, 2);
    if (kind != (uint64_t)backend->kind) {
        snprintf(reason, reason_size, "the peer uses the backend %s, this is %s",
                 (kind < 2) ? kinds[kind] : "of an unknown kind",
                 kinds[backend->kind]);
        return 0;
    }
    if (tofu_wire_get(p + 8, 8) != backend->network_id) {
        snprintf(reason, reason_size, "the peer is in another %s",
                 (backend->kind == TOFU_BACKEND_EMULATOR) ?
                         "host, boot, user or job of the emulator" :
                         "network");
        return 0;
    }
    return 1;
}

int tofu_iface_is_reachable(tofu_iface_t *iface, const void *device_addr,
                            size_t device_addr_len, const void *iface_addr,
                            size_t iface_addr_len, char *reason,
                            size_t reason_size)
{
    tofu_address_t address;
    char           none[1];

    if ((reason == NULL) || (reason_size == 0)) {
        reason      = none;
        reason_size = sizeof(none);
    }
    reason[0] = '\0';
    if (!tofu_wire_device_ok(iface, device_addr, device_addr_len, reason,
                             reason_size)) {
        return 0;
    }
    return (iface_addr == NULL) ||
           (tofu_iface_check_address(iface, iface_addr, iface_addr_len,
                                     &address, reason, reason_size) == TOFU_OK);
}
