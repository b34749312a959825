/* Files that come in pieces: made beside their place, put there whole. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervisor.h"

#define MAX_UPLOADS 16

struct upload {
    bool used;
    uint32_t number, mode;
    int folder, fd;
    uint64_t size;
    char name[256], hidden[48];
};

static struct upload uploads[MAX_UPLOADS];

static struct upload *find(uint32_t number, bool used) {
    for (int i = 0; i < MAX_UPLOADS; i++)
        if (uploads[i].used == used && (!used || uploads[i].number == number)) return &uploads[i];
    return NULL;
}

static void give_up(struct upload *u) {
    if (u->fd >= 0) close(u->fd);
    if (u->hidden[0]) unlinkat(u->folder, u->hidden, 0);
    if (u->folder >= 0) close(u->folder);
    u->used = false;
}

void uploads_drop(void) {
    as_job_begin();
    for (int i = 0; i < MAX_UPLOADS; i++)
        if (uploads[i].used) give_up(&uploads[i]);
    as_job_end();
}

static int begin(struct upload *u, uint32_t number, int root, const char *path, uint32_t mode, bool parents) {
    static uint32_t serial;
    struct stat s;
    *u = (struct upload){.used = true, .number = number, .mode = mode & 0777, .folder = -1, .fd = -1};
    u->folder = file_parent(root, path, parents, u->name);
    if (u->folder < 0) return errno;
    if (fstatat(u->folder, u->name, &s, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(s.st_mode)) return EISDIR;
    char hidden[sizeof u->hidden];
    snprintf(hidden, sizeof hidden, ".upload-%u-%llx", ++serial, (unsigned long long)now_us());
    u->fd = openat(u->folder, hidden, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (u->fd < 0) return errno;
    memcpy(u->hidden, hidden, sizeof hidden);
    return 0;
}

static int add(struct upload *u, uint64_t offset, const uint8_t *data, size_t size) {
    if (offset != u->size) return ESPIPE;
    while (size) {
        ssize_t done = write(u->fd, data, size);
        if (done < 0) return errno;
        data += done;
        size -= (size_t)done;
        u->size += (uint64_t)done;
    }
    return 0;
}

static int finish(struct upload *u, bool *created) {
    struct stat s;
    *created = fstatat(u->folder, u->name, &s, AT_SYMLINK_NOFOLLOW) < 0;
    if (fchmod(u->fd, u->mode) < 0 || renameat(u->folder, u->hidden, u->folder, u->name) < 0) return errno;
    u->hidden[0] = 0;
    return 0;
}

static void answer_written(uint32_t tag, uint64_t size, bool created) {
    size_t begun = frame_begin(controller_out(), MSG_FILE_WRITE_OK, 0, tag, 0);
    put_u64(controller_out(), size);
    put_u8(controller_out(), created);
    frame_end(controller_out(), begun);
}

void file_write(uint32_t tag, struct cursor *c, uint8_t flags) {
    int root = get_u8(c);
    char *path = get_text(c, PATH_MAX - 1);
    uint32_t number = get_u32(c), mode = get_u32(c);
    uint64_t offset = get_u64(c);
    bool created = false;
    struct upload *u = find(number, true);
    int bad = c->bad ? EINVAL : 0;
    if (!bad && !u && offset) bad = ESPIPE;
    else if (!bad && !u) bad = (u = find(number, false)) ? begin(u, number, root, path, mode, flags & FLAG_PARENTS) : EMFILE;
    if (!bad) bad = add(u, offset, c->at, left_in(c));
    uint64_t size = u ? u->size : 0;
    if (!bad && flags & FLAG_END) bad = finish(u, &created);
    if (u && (bad || flags & FLAG_END)) give_up(u);
    if (bad) answer_file(tag, bad);
    else answer_written(tag, size, created);
    free(path);
}

void file_abort(uint32_t tag, struct cursor *c) {
    struct upload *u = find(get_u32(c), true);
    if (u) give_up(u);
    answer_file(tag, 0);
}
