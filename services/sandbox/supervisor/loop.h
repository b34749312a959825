/* Waiting: descriptors by epoll, clocks. */
#ifndef LONGHAUL_LOOP_H
#define LONGHAUL_LOOP_H

#include <stdint.h>

#define NEVER UINT64_MAX

struct watch {
    int fd;          /* -1: closed */
    uint32_t events; /* 0: not watched */
    void (*act)(struct watch *, uint32_t events);
    void *owner;
};

void loop_init(void);
void watch_open(struct watch *w, int fd, void (*act)(struct watch *, uint32_t), void *owner);
void watch_want(struct watch *w, uint32_t events);
void watch_close(struct watch *w); /* leaves epoll first: a child may hold the same open file, and it would go on firing */
/* Wait and act. Where it woke much later than it meant to, we were frozen: then how long it slept, else 0. */
uint64_t loop_once(uint64_t until_us);
uint64_t now_us(void);  /* since boot */
uint64_t wall_ns(void); /* since 1970 */

#endif
