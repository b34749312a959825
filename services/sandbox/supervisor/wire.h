/* Bytes: a buffer that grows, a cursor that never reads past its end, frames. */
#ifndef LONGHAUL_WIRE_H
#define LONGHAUL_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol.h"

struct buffer {
    uint8_t *data;
    size_t start, end, room; /* bytes are at start..end */
};

void buffer_need(struct buffer *b, size_t more); /* exits with 98 where memory ends */
void buffer_add(struct buffer *b, const void *data, size_t size);
void buffer_drop(struct buffer *b, size_t size); /* from the front */
void buffer_free(struct buffer *b);
static inline size_t buffer_size(const struct buffer *b) { return b->end - b->start; }

void put_u8(struct buffer *b, uint8_t v);
void put_u16(struct buffer *b, uint16_t v);
void put_u32(struct buffer *b, uint32_t v);
void put_u64(struct buffer *b, uint64_t v);
void put_text(struct buffer *b, const char *text, size_t size);

struct cursor {
    const uint8_t *at, *end;
    bool bad; /* something was read that was not there; all later reads give 0 */
};

uint8_t get_u8(struct cursor *c);
uint16_t get_u16(struct cursor *c);
uint32_t get_u32(struct cursor *c);
uint64_t get_u64(struct cursor *c);
const uint8_t *get_bytes(struct cursor *c, size_t size);
char *get_text(struct cursor *c, size_t most); /* a new string without zero bytes in it, or NULL and bad */
char *get_blob(struct cursor *c);              /* the same, of a blob */
static inline size_t left_in(const struct cursor *c) { return (size_t)(c->end - c->at); }

struct frame {
    uint8_t message, flags;
    uint32_t tag, exec;
    const uint8_t *payload;
    uint32_t size;
};

enum parsed { PARSED_MORE, PARSED_FRAME, PARSED_BAD, PARSED_VERSION };

void frames_init(void);
/* Look for a frame at the front; `used` is how many bytes to drop after it was looked at. */
enum parsed frame_parse(const uint8_t *data, size_t size, struct frame *frame, size_t *used);
/* Begin a frame in `b`, put its payload there, end it. One at a time in a buffer. */
size_t frame_begin(struct buffer *b, uint8_t message, uint8_t flags, uint32_t tag, uint32_t exec);
void frame_end(struct buffer *b, size_t begun);

#endif
