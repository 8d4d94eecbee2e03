/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_queue.h - a queue of entries of one size: a ring that grows.
 */
#ifndef TOFU_QUEUE_H
#define TOFU_QUEUE_H

#include <stdlib.h>
#include <string.h>

#define TOFU_QUEUE_MIN 64u /* entries at first */

typedef struct tofu_queue {
    char   *data;
    size_t entry_size, size; /* size: entries, a power of two */
    size_t head, tail;
} tofu_queue_t;

static inline size_t tofu_queue_length(const tofu_queue_t *queue)
{
    return queue->tail - queue->head;
}

static inline void *tofu_queue_at(const tofu_queue_t *queue, size_t i)
{
    return queue->data + ((queue->head + i) & (queue->size - 1)) *
                                 queue->entry_size;
}

/* Room for one more; 0: no memory. */
static inline int tofu_queue_room(tofu_queue_t *queue)
{
    size_t size = (queue->size > 0) ? queue->size * 2 : TOFU_QUEUE_MIN;
    size_t length = tofu_queue_length(queue), i;
    char   *data;

    if (length < queue->size) {
        return 1;
    }
    data = malloc(size * queue->entry_size);
    if (data == NULL) {
        return 0;
    }
    for (i = 0; i < length; ++i) {
        memcpy(data + i * queue->entry_size, tofu_queue_at(queue, i),
               queue->entry_size);
    }
    free(queue->data);
    queue->data = data;
    queue->size = size;
    queue->head = 0;
    queue->tail = length;
    return 1;
}

static inline void tofu_queue_push(tofu_queue_t *queue, const void *entry)
{
    memcpy(tofu_queue_at(queue, queue->tail++ - queue->head), entry,
           queue->entry_size);
}

static inline int tofu_queue_pop(tofu_queue_t *queue, void *entry)
{
    if (queue->head == queue->tail) {
        return 0;
    }
    memcpy(entry, tofu_queue_at(queue, 0), queue->entry_size);
    ++queue->head;
    return 1;
}

#endif /* TOFU_QUEUE_H */
