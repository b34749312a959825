#include "kept.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void kept_init(struct kept *k, size_t head_most, size_t ring_most) {
    *k = (struct kept){.head_most = head_most, .ring_most = ring_most};
}

static size_t grown(size_t room, size_t need, size_t most) {
    size_t size = room ? room : 1024;
    while (size < need) size *= 2;
    return size > most ? most : size;
}

static uint8_t *taken(size_t size) {
    uint8_t *data = malloc(size);
    if (!data) _exit(98);
    return data;
}

static uint64_t ring_start(const struct kept *k) { /* offset of the oldest byte that the ring holds */
    uint64_t in_ring = k->total > k->head_most ? k->total - k->head_most : 0;
    return in_ring > k->ring_room ? k->total - k->ring_room : k->head_most;
}

static void ring_grow(struct kept *k, size_t more) {
    uint64_t held = k->total > k->head_most ? k->total - ring_start(k) : 0;
    if (held + more <= k->ring_room || k->ring_room == k->ring_most) return;
    size_t room = grown(k->ring_room, (size_t)held + more, k->ring_most);
    uint8_t *ring = taken(room);
    for (uint64_t at = k->total - held; at < k->total; at++) ring[at % room] = k->ring[at % k->ring_room];
    free(k->ring);
    k->ring = ring;
    k->ring_room = room;
}

static void ring_add(struct kept *k, const uint8_t *data, size_t size) {
    if (!k->ring_most) {
        k->total += size;
        return;
    }
    ring_grow(k, size);
    if (size > k->ring_room) { /* only its last part can stay */
        k->total += size - k->ring_room;
        data += size - k->ring_room;
        size = k->ring_room;
    }
    while (size) {
        size_t at = (size_t)(k->total % k->ring_room), piece = k->ring_room - at;
        if (piece > size) piece = size;
        memcpy(k->ring + at, data, piece);
        data += piece;
        size -= piece;
        k->total += piece;
    }
}

void kept_add(struct kept *k, const uint8_t *data, size_t size) {
    if (k->total < k->head_most) {
        size_t at = (size_t)k->total, piece = k->head_most - at < size ? k->head_most - at : size;
        if (at + piece > k->head_room) {
            k->head_room = grown(k->head_room, at + piece, k->head_most);
            uint8_t *head = realloc(k->head, k->head_room);
            if (!head) _exit(98);
            k->head = head;
        }
        memcpy(k->head + at, data, piece);
        k->total += piece;
        data += piece;
        size -= piece;
    }
    if (size) ring_add(k, data, size);
}

size_t kept_at(const struct kept *k, uint64_t *from, const uint8_t **data) {
    uint64_t head_end = k->total < k->head_most ? k->total : k->head_most;
    if (*from < head_end && k->head) {
        *data = k->head + *from;
        return (size_t)(head_end - *from);
    }
    uint64_t start = k->ring ? ring_start(k) : k->total;
    if (*from < start) *from = start;
    if (*from >= k->total) {
        *from = k->total;
        return 0;
    }
    size_t at = (size_t)(*from % k->ring_room), piece = k->ring_room - at;
    *data = k->ring + at;
    return piece < k->total - *from ? piece : (size_t)(k->total - *from);
}

size_t kept_room(const struct kept *k, uint64_t unsent) {
    if (k->total < k->head_most) return k->head_most - (size_t)k->total + k->ring_most;
    uint64_t from = unsent > k->head_most ? unsent : k->head_most;
    uint64_t waiting = k->total - from;
    return waiting >= k->ring_most ? 0 : k->ring_most - (size_t)waiting;
}

size_t kept_memory(const struct kept *k) { return k->head_room + k->ring_room; }

void kept_free(struct kept *k) {
    free(k->head);
    free(k->ring);
    k->head = k->ring = NULL;
    k->head_room = k->ring_room = 0;
}
