#include "loop.h"

#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define LONGEST_MS 10000u /* of one wait, so that a freeze is seen */
#define FROZEN_US 1000000u

static int epoll_fd;

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t now_us(void) { return clock_ns(CLOCK_MONOTONIC) / 1000; }
uint64_t wall_ns(void) { return clock_ns(CLOCK_REALTIME); }

void loop_init(void) {
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0) _exit(98);
}

void watch_open(struct watch *w, int fd, void (*act)(struct watch *, uint32_t), void *owner) {
    *w = (struct watch){.fd = fd, .act = act, .owner = owner};
}

void watch_want(struct watch *w, uint32_t events) {
    if (w->fd < 0 || w->events == events) return;
    struct epoll_event event = {.events = events, .data.ptr = w};
    int what = !events ? EPOLL_CTL_DEL : w->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (epoll_ctl(epoll_fd, what, w->fd, &event) == 0) w->events = events;
}

void watch_close(struct watch *w) {
    if (w->fd < 0) return;
    watch_want(w, 0);
    close(w->fd);
    w->fd = -1;
}

uint64_t loop_once(uint64_t until_us) {
    struct epoll_event events[64];
    uint64_t now = now_us();
    uint64_t wait_ms = until_us <= now ? 0 : (until_us - now) / 1000 + 1;
    if (wait_ms > LONGEST_MS) wait_ms = LONGEST_MS;
    int found = epoll_wait(epoll_fd, events, 64, (int)wait_ms);
    uint64_t meant = now + wait_ms * 1000, woke = now_us();
    for (int i = 0; i < found; i++) {
        struct watch *w = events[i].data.ptr;
        /* an earlier one of this batch may have closed it; its memory lives until the batch is over */
        if (w->fd >= 0 && w->events) w->act(w, events[i].events);
    }
    return woke > meant + FROZEN_US ? woke - now : 0; /* when it began is not known: all of it is excused */
}
