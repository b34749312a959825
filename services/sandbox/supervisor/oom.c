/* How often the kernel has ended a process here for want of memory. A container's own state says so only where it
 * was process 1, so the counter is read before and after a command. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "supervisor.h"

static int counter = -1;

void oom_init(void) {
    const char *places[] = {options.oom_path, "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"};
    for (size_t i = 0; i < sizeof places / sizeof *places && counter < 0; i++)
        if (places[i]) counter = open(places[i], O_RDONLY | O_CLOEXEC);
}

bool oom_known(void) { return counter >= 0; }

uint64_t oom_count(void) {
    char text[512];
    ssize_t size = counter < 0 ? 0 : pread(counter, text, sizeof text - 1, 0);
    if (size <= 0) return 0;
    text[size] = 0;
    const char *found = strstr(text, "oom_kill ");
    return found ? strtoull(found + 9, NULL, 10) : 0;
}
