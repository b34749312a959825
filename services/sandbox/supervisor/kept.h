/* What is kept of a stream: its first bytes, and a ring of its last. */
#ifndef LONGHAUL_KEPT_H
#define LONGHAUL_KEPT_H

#include <stddef.h>
#include <stdint.h>

struct kept {
    uint8_t *head, *ring;
    size_t head_most, head_room, ring_most, ring_room; /* room grows up to most, as it is needed */
    uint64_t total;                                    /* bytes that ever came */
};

void kept_init(struct kept *k, size_t head_most, size_t ring_most);
void kept_add(struct kept *k, const uint8_t *data, size_t size);
/* Bytes from offset `*from` on, as many as lie together; `*from` moves over what is gone. 0: none. */
size_t kept_at(const struct kept *k, uint64_t *from, const uint8_t **data);
size_t kept_room(const struct kept *k, uint64_t unsent); /* bytes that can come and push out nothing from `unsent` on */
size_t kept_memory(const struct kept *k);
void kept_free(struct kept *k);

#endif
