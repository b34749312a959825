/* Processes below a process, as /proc shows them now. */
#ifndef LONGHAUL_TREE_H
#define LONGHAUL_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct process {
    pid_t pid, parent, group;
    bool below;
};

size_t tree_scan(void);                                       /* read /proc; how many are alive */
size_t tree_mark_below(pid_t root);                           /* mark what is below; how many */
size_t tree_mark_orphans(bool (*is_keeper)(pid_t));           /* mark children of process 1 that watch nobody, and all below */
void tree_signal(int signal_number, bool groups);             /* to all that is marked; `groups`: and their groups */

#endif
