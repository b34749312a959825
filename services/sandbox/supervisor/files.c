/* Files beneath the roots, with the rights of the commands: the kernel resolves every path, so there is no moment
 * between check and use. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "supervisor.h"

#define DEEPEST 256
#define LIST_MOST 1000u
#define NO_REPLACE 1u /* RENAME_NOREPLACE, which musl does not name */

static int roots[MAX_ROOTS];

void files_init(void) {
    for (int i = 0; i < options.root_count; i++) roots[i] = open(options.roots[i], O_PATH | O_DIRECTORY | O_CLOEXEC);
}

void as_job_begin(void) {
    if (!options.drop) return;
    setfsgid(options.gid);
    setfsuid(options.uid);
}

void as_job_end(void) {
    if (!options.drop) return;
    setfsuid(geteuid());
    setfsgid(getegid());
}

int file_open(int root, const char *path, int flags) {
    struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC), .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    if (root < 0 || root >= options.root_count || roots[root] < 0) {
        errno = ENOENT;
        return -1;
    }
    for (int again = 0;; again++) { /* EAGAIN: something was renamed meanwhile, so the kernel cannot be sure */
        long fd = syscall(SYS_openat2, roots[root], *path ? path : ".", &how, sizeof how);
        if (fd >= 0 || errno != EAGAIN || again == 32) return (int)fd;
    }
}

static bool split(const char *path, char *folder, char *name) { /* false: the last part is no name */
    size_t end = strlen(path);
    while (end && path[end - 1] == '/') end--;
    size_t begin = end;
    while (begin && path[begin - 1] != '/') begin--;
    if (end - begin > 255 || begin >= PATH_MAX) return false;
    memcpy(folder, path, begin);
    folder[begin] = 0;
    memcpy(name, path + begin, end - begin);
    name[end - begin] = 0;
    return name[0] && strcmp(name, ".") && strcmp(name, "..");
}

static int folder_open(int root, const char *path, bool make, int depth) {
    int fd = file_open(root, path, O_RDONLY | O_DIRECTORY);
    if (fd >= 0 || errno != ENOENT || !make || depth > DEEPEST) return fd;
    char above[PATH_MAX], name[256];
    if (!split(path, above, name)) {
        errno = ENOENT;
        return -1;
    }
    int parent = folder_open(root, above, true, depth + 1);
    if (parent < 0) return -1;
    int bad = mkdirat(parent, name, 0755) < 0 && errno != EEXIST ? errno : 0;
    close(parent);
    errno = bad;
    return bad ? -1 : file_open(root, path, O_RDONLY | O_DIRECTORY);
}

int file_parent(int root, const char *path, bool make, char *name) {
    char folder[PATH_MAX];
    if (!split(path, folder, name)) {
        errno = strlen(path) > PATH_MAX - 1 ? ENAMETOOLONG : EISDIR;
        return -1;
    }
    return folder_open(root, folder, make, 0);
}

void answer_file(uint32_t tag, int bad) {
    if (bad) answer_error(tag, 0, FAULT_FILE, bad, strerror(bad));
    else answer_ok(tag, 0, 0, false);
}

static uint8_t kind(mode_t mode) { return S_ISREG(mode) ? 1 : S_ISDIR(mode) ? 2 : S_ISLNK(mode) ? 3 : 4; }

static void put_stat(struct buffer *b, const struct stat *s) {
    put_u8(b, kind(s->st_mode));
    put_u32(b, s->st_mode & 07777);
    put_u64(b, (uint64_t)s->st_size);
    put_u64(b, (uint64_t)s->st_mtim.tv_sec * 1000000000u + (uint64_t)s->st_mtim.tv_nsec);
}

static int on_stat(uint32_t tag, int root, const char *path) {
    struct stat s;
    int fd = file_open(root, path, O_PATH | O_NOFOLLOW);
    int bad = fd < 0 || fstat(fd, &s) < 0 ? errno : 0;
    if (fd >= 0) close(fd);
    if (bad) return bad;
    size_t begun = frame_begin(controller_out(), MSG_FILE_STAT_OK, 0, tag, 0);
    put_stat(controller_out(), &s);
    frame_end(controller_out(), begun);
    return 0;
}

struct listing {
    struct buffer rows;
    uint64_t next;
    uint32_t count, most;
};

static bool put_row(struct listing *l, int fd, const char *name) { /* false: no room for it */
    struct stat s;
    if (!strcmp(name, ".") || !strcmp(name, "..") || fstatat(fd, name, &s, AT_SYMLINK_NOFOLLOW) < 0) return true;
    if (l->count == l->most || buffer_size(&l->rows) > MAX_PAYLOAD - 1024) return false;
    put_text(&l->rows, name, strlen(name));
    put_stat(&l->rows, &s);
    l->count++;
    return true;
}

static void read_rows(struct listing *l, DIR *folder, uint64_t cookie) {
    if (cookie) seekdir(folder, (long)cookie);
    for (struct dirent *entry;;) {
        long here = telldir(folder);
        if (!(entry = readdir(folder))) break;
        if (put_row(l, dirfd(folder), entry->d_name)) continue;
        l->next = (uint64_t)here;
        return;
    }
}

static int on_list(uint32_t tag, int root, const char *path, struct cursor *c) {
    uint64_t cookie = get_u64(c);
    struct listing l = {.most = get_u32(c)};
    if (c->bad) return EINVAL;
    if (!l.most || l.most > LIST_MOST) l.most = LIST_MOST;
    int fd = file_open(root, path, O_RDONLY | O_DIRECTORY);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) return errno;
    read_rows(&l, folder, cookie);
    closedir(folder);
    size_t begun = frame_begin(controller_out(), MSG_FILE_LIST_OK, 0, tag, 0);
    put_u64(controller_out(), l.next);
    put_u32(controller_out(), l.count);
    buffer_add(controller_out(), l.rows.data + l.rows.start, buffer_size(&l.rows));
    frame_end(controller_out(), begun);
    buffer_free(&l.rows);
    return 0;
}

static int read_piece(uint32_t tag, int fd, uint64_t offset, uint32_t most) {
    static uint8_t piece[MAX_PAYLOAD];
    struct stat s;
    if (fstat(fd, &s) < 0) return errno;
    if (!S_ISREG(s.st_mode)) return S_ISDIR(s.st_mode) ? EISDIR : ENXIO;
    ssize_t got = pread(fd, piece, most > MAX_PAYLOAD - 8 ? MAX_PAYLOAD - 8 : most, (off_t)offset);
    if (got < 0) return errno;
    size_t begun = frame_begin(controller_out(), MSG_FILE_READ_OK, 0, tag, 0);
    put_u64(controller_out(), (uint64_t)s.st_size);
    buffer_add(controller_out(), piece, (size_t)got);
    frame_end(controller_out(), begun);
    return 0;
}

static int on_read(uint32_t tag, int root, const char *path, struct cursor *c) {
    uint64_t offset = get_u64(c);
    uint32_t most = get_u32(c);
    if (c->bad || offset > INT64_MAX) return EINVAL;
    int fd = file_open(root, path, O_RDONLY | O_NONBLOCK | O_NOCTTY); /* a FIFO is not waited for */
    if (fd < 0) return errno;
    int bad = read_piece(tag, fd, offset, most);
    close(fd);
    return bad;
}

static int on_mkdir(int root, const char *path, struct cursor *c, bool parents) {
    uint32_t mode = get_u32(c);
    char name[256];
    if (c->bad) return EINVAL;
    int parent = file_parent(root, path, parents, name);
    if (parent < 0) return errno;
    int bad = mkdirat(parent, name, mode & 0777) < 0 ? errno : 0;
    struct stat s;
    if (bad == EEXIST && parents && fstatat(parent, name, &s, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(s.st_mode)) bad = 0;
    close(parent);
    return bad;
}

static int on_move(int root, const char *path, struct cursor *c, bool keep) {
    char name[256], to_name[256], *to = get_text(c, PATH_MAX - 1);
    if (!to) return EINVAL;
    int from_folder = file_parent(root, path, false, name);
    int bad = from_folder < 0 ? errno : 0;
    int to_folder = bad ? -1 : file_parent(root, to, false, to_name);
    if (!bad && to_folder < 0) bad = errno;
    if (!bad && syscall(SYS_renameat2, from_folder, name, to_folder, to_name, keep ? NO_REPLACE : 0) < 0) bad = errno;
    if (from_folder >= 0) close(from_folder);
    if (to_folder >= 0) close(to_folder);
    free(to);
    return bad;
}

static int empty(int parent, const char *name, int depth) { /* a folder, by descriptors: no link is followed */
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) return errno;
    int bad = depth > DEEPEST ? ENAMETOOLONG : 0;
    for (struct dirent *entry; !bad && (entry = readdir(folder));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        if (unlinkat(fd, entry->d_name, 0) == 0 || errno == ENOENT) continue;
        if (errno != EISDIR && errno != EPERM) bad = errno;
        else if ((bad = empty(fd, entry->d_name, depth + 1)) == 0 && unlinkat(fd, entry->d_name, AT_REMOVEDIR) < 0) bad = errno;
    }
    closedir(folder);
    return bad;
}

static int on_remove(int root, const char *path, bool recursive) {
    char name[256];
    int parent = file_parent(root, path, false, name);
    if (parent < 0) return errno;
    int bad = unlinkat(parent, name, 0) < 0 ? errno : 0;
    if (bad == EISDIR || bad == EPERM) {
        bad = recursive ? empty(parent, name, 0) : 0;
        if (!bad && unlinkat(parent, name, AT_REMOVEDIR) < 0) bad = errno;
    }
    close(parent);
    return bad;
}

static int on_path(const struct frame *f, int root, const char *path, struct cursor *c) {
    switch (f->message) {
        case MSG_FILE_STAT: return on_stat(f->tag, root, path);
        case MSG_FILE_LIST: return on_list(f->tag, root, path, c);
        case MSG_FILE_READ: return on_read(f->tag, root, path, c);
        case MSG_FILE_MKDIR: return on_mkdir(root, path, c, f->flags & FLAG_PARENTS);
        case MSG_FILE_MOVE: return on_move(root, path, c, f->flags & FLAG_KEEP);
        default: return on_remove(root, path, f->flags & FLAG_RECURSIVE);
    }
}

void file_request(const struct frame *f) {
    struct cursor c = {f->payload, f->payload + f->size, false};
    as_job_begin();
    if (f->message == MSG_FILE_WRITE) file_write(f->tag, &c, f->flags);
    else if (f->message == MSG_FILE_ABORT) file_abort(f->tag, &c);
    else {
        int root = get_u8(&c);
        char *path = get_text(&c, PATH_MAX - 1);
        int bad = path ? on_path(f, root, path, &c) : EINVAL;
        bool answered = !bad && f->message <= MSG_FILE_READ;
        if (!answered) answer_file(f->tag, bad);
        free(path);
    }
    as_job_end();
}
