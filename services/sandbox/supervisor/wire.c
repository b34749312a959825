#include "wire.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint32_t crc_table[8][256];

void buffer_need(struct buffer *b, size_t more) {
    if (b->room - b->end >= more) return;
    size_t size = buffer_size(b);
    if (b->start > 0 && size) memmove(b->data, b->data + b->start, size);
    b->start = 0;
    b->end = size;
    if (b->room - b->end >= more) return;
    size_t room = b->room ? b->room : 4096;
    while (room - size < more) room *= 2;
    uint8_t *data = realloc(b->data, room);
    if (!data) _exit(98);
    b->data = data;
    b->room = room;
}

void buffer_add(struct buffer *b, const void *data, size_t size) {
    if (!size) return;
    buffer_need(b, size);
    memcpy(b->data + b->end, data, size);
    b->end += size;
}

void buffer_drop(struct buffer *b, size_t size) {
    b->start += size;
    if (b->start < b->end) return;
    b->start = b->end = 0;
    if (b->room > 65536) buffer_free(b); /* what a flood took is given back */
}

void buffer_free(struct buffer *b) {
    free(b->data);
    memset(b, 0, sizeof *b);
}

void put_u8(struct buffer *b, uint8_t v) { buffer_add(b, &v, 1); }

static void put_number(struct buffer *b, uint64_t v, int bytes) {
    uint8_t raw[8];
    for (int i = 0; i < bytes; i++) raw[i] = (uint8_t)(v >> (8 * i));
    buffer_add(b, raw, (size_t)bytes);
}

void put_u16(struct buffer *b, uint16_t v) { put_number(b, v, 2); }
void put_u32(struct buffer *b, uint32_t v) { put_number(b, v, 4); }
void put_u64(struct buffer *b, uint64_t v) { put_number(b, v, 8); }

void put_text(struct buffer *b, const char *text, size_t size) {
    if (size > 65535) size = 65535;
    put_u16(b, (uint16_t)size);
    buffer_add(b, text, size);
}

const uint8_t *get_bytes(struct cursor *c, size_t size) {
    if (c->bad || left_in(c) < size) {
        c->bad = true;
        return NULL;
    }
    const uint8_t *found = c->at;
    c->at += size;
    return found;
}

static uint64_t get_number(struct cursor *c, int bytes) {
    const uint8_t *raw = get_bytes(c, (size_t)bytes);
    uint64_t v = 0;
    for (int i = 0; raw && i < bytes; i++) v |= (uint64_t)raw[i] << (8 * i);
    return v;
}

uint8_t get_u8(struct cursor *c) { return (uint8_t)get_number(c, 1); }
uint16_t get_u16(struct cursor *c) { return (uint16_t)get_number(c, 2); }
uint32_t get_u32(struct cursor *c) { return (uint32_t)get_number(c, 4); }
uint64_t get_u64(struct cursor *c) { return get_number(c, 8); }

static char *get_string(struct cursor *c, size_t size) {
    const uint8_t *raw = get_bytes(c, size);
    char *text = raw && !(size && memchr(raw, 0, size)) ? malloc(size + 1) : NULL;
    if (!text) {
        c->bad = true;
        return NULL;
    }
    memcpy(text, raw, size);
    text[size] = 0;
    return text;
}

char *get_text(struct cursor *c, size_t most) {
    size_t size = get_u16(c);
    if (size > most) c->bad = true;
    return get_string(c, size);
}

char *get_blob(struct cursor *c) { return get_string(c, get_u32(c)); }

void frames_init(void) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t v = n;
        for (int bit = 0; bit < 8; bit++) v = v & 1 ? 0xEDB88320u ^ (v >> 1) : v >> 1;
        crc_table[0][n] = v;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t n = 0; n < 256; n++)
            crc_table[k][n] = crc_table[0][crc_table[k - 1][n] & 0xFF] ^ (crc_table[k - 1][n] >> 8);
}

static uint32_t read32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint32_t crc_add(uint32_t crc, const uint8_t *p, size_t size) {
    for (; size >= 8; p += 8, size -= 8) { /* eight bytes a step: a flood is not held up by its check sum */
        uint32_t a = crc ^ read32(p), b = read32(p + 4);
        crc = crc_table[7][a & 0xFF] ^ crc_table[6][a >> 8 & 0xFF] ^ crc_table[5][a >> 16 & 0xFF] ^
              crc_table[4][a >> 24] ^ crc_table[3][b & 0xFF] ^ crc_table[2][b >> 8 & 0xFF] ^
              crc_table[1][b >> 16 & 0xFF] ^ crc_table[0][b >> 24];
    }
    while (size--) crc = crc_table[0][(crc ^ *p++) & 0xFF] ^ (crc >> 8);
    return crc;
}

static uint32_t frame_crc(const uint8_t *header, size_t payload) {
    return ~crc_add(crc_add(~0u, header, 16), header + HEADER_BYTES, payload);
}

enum parsed frame_parse(const uint8_t *data, size_t size, struct frame *frame, size_t *used) {
    *used = 0;
    while (*used < size && data[*used] == 0) ++*used; /* padding */
    data += *used;
    size -= *used;
    if (size && data[0] != PROTOCOL_MAGIC) {
        ++*used;
        return PARSED_BAD;
    }
    if (size < HEADER_BYTES) return PARSED_MORE;
    if (data[1] != PROTOCOL_VERSION) {
        ++*used;
        return PARSED_VERSION;
    }
    uint32_t length = read32(data + 12);
    if (length > MAX_PAYLOAD) {
        ++*used;
        return PARSED_BAD;
    }
    if (size < HEADER_BYTES + length) return PARSED_MORE;
    *used += HEADER_BYTES + length;
    if (frame_crc(data, length) != read32(data + 16)) return PARSED_BAD;
    *frame = (struct frame){.message = data[2], .flags = data[3], .tag = read32(data + 4), .exec = read32(data + 8),
                            .payload = data + HEADER_BYTES, .size = length};
    return PARSED_FRAME;
}

size_t frame_begin(struct buffer *b, uint8_t message, uint8_t flags, uint32_t tag, uint32_t exec) {
    size_t begun = buffer_size(b); /* an offset from the front: the bytes may move */
    put_u8(b, PROTOCOL_MAGIC);
    put_u8(b, PROTOCOL_VERSION);
    put_u8(b, message);
    put_u8(b, flags);
    put_u32(b, tag);
    put_u32(b, exec);
    put_u64(b, 0);
    return begun;
}

void frame_end(struct buffer *b, size_t begun) {
    uint8_t *header = b->data + b->start + begun;
    size_t length = buffer_size(b) - begun - HEADER_BYTES;
    for (int i = 0; i < 4; i++) header[12 + i] = (uint8_t)(length >> (8 * i));
    uint32_t crc = frame_crc(header, length);
    for (int i = 0; i < 4; i++) header[16 + i] = (uint8_t)(crc >> (8 * i));
}
