#include "tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct process *table;
static size_t count, room;

static bool read_stat(const char *name, struct process *found) {
    char path[32], text[512];
    snprintf(path, sizeof path, "/proc/%.15s/stat", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    if (size <= 0) return false;
    text[size] = 0;
    const char *after = strrchr(text, ')'); /* the name may hold anything, brackets too */
    char state;
    int parent, group;
    if (!after || sscanf(after + 1, " %c %d %d", &state, &parent, &group) != 3 || state == 'Z' || state == 'X') return false;
    *found = (struct process){.pid = (pid_t)atoi(name), .parent = parent, .group = group};
    return true;
}

size_t tree_scan(void) {
    count = 0;
    DIR *proc = opendir("/proc");
    if (!proc) return 0;
    for (struct dirent *entry; (entry = readdir(proc));) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
        if (count == room) {
            size_t more = room ? room * 2 : 256;
            struct process *bigger = realloc(table, more * sizeof *table);
            if (!bigger) break;
            table = bigger;
            room = more;
        }
        if (read_stat(entry->d_name, &table[count])) count++;
    }
    closedir(proc);
    return count;
}

static size_t spread(void) { /* children of what is marked are marked, until nothing changes */
    size_t marked = 0;
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < count; i++) {
            for (size_t j = 0; !table[i].below && j < count; j++)
                if (table[j].below && table[j].pid == table[i].parent) table[i].below = changed = true;
        }
    }
    for (size_t i = 0; i < count; i++) marked += table[i].below;
    return marked;
}

size_t tree_mark_below(pid_t root) {
    for (size_t i = 0; i < count; i++) table[i].below = table[i].parent == root;
    return spread();
}

size_t tree_mark_orphans(bool (*is_keeper)(pid_t)) {
    for (size_t i = 0; i < count; i++)
        table[i].below = table[i].parent == 1 && table[i].pid != 1 && !is_keeper(table[i].pid);
    return spread();
}

void tree_signal(int signal_number, bool groups) {
    for (size_t i = 0; groups && i < count; i++) {
        bool done = !table[i].below || table[i].group <= 1;
        for (size_t j = 0; !done && j < i; j++) done = table[j].below && table[j].group == table[i].group;
        /* a whole group at one stroke, so that nobody forks away meanwhile; each command has a session of its own, so
         * nobody else is in its groups */
        if (!done) kill(-table[i].group, signal_number);
    }
    for (size_t i = 0; i < count; i++)
        if (table[i].below) kill(table[i].pid, signal_number);
}
