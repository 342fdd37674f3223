/* System calls that change files, below one folder: counted, and from the n-th on made to fail, or the process killed.

   Loaded by LD_PRELOAD; asleep until fault_arm. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT, KILL, FULL, SHORT, EIO_ONCE };

static char root[PATH_MAX];
static int kind;
static long at, seen;

void fault_arm(const char *folder, int what, long n) {
    snprintf(root, sizeof root, "%s", folder);
    kind = what;
    at = n;
    seen = 0;
}

long fault_count(void) { return seen; }

static int below(const char *path) { return root[0] && path && strncmp(path, root, strlen(root)) == 0; }

static int fd_below(int fd) {
    char link[64], path[PATH_MAX];
    if (!root[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return below(path);
}

/* 0: go on; 1: write the half; -1: fail, errno is set. grows: the call needs room on the disk. */
static int turn(int grows) {
    long n = __sync_fetch_and_add(&seen, 1);
    if (kind == KILL && n == at) kill(getpid(), SIGKILL);
    if (kind == FULL && n >= at && grows) { errno = ENOSPC; return -1; }
    if (kind == SHORT && n == at) return 1;
    if (kind == EIO_ONCE && n == at) { errno = EIO; return -1; }
    return 0;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define PART(size, what) ((what) == 1 && (size) > 1 ? (size) / 2 : (size))
#define STOP(condition, grows) int what = 0; if (condition) { what = turn(grows); if (what < 0) return -1; }

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write); STOP(fd_below(fd), 1)
    return real(fd, data, PART(size, what));
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t place) {
    REAL(pwrite); STOP(fd_below(fd), 1)
    return real(fd, data, PART(size, what), place);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t place) {
    REAL(pwrite64); STOP(fd_below(fd), 1)
    return real(fd, data, PART(size, what), place);
}
ssize_t writev(int fd, const struct iovec *parts, int n) {
    REAL(writev); STOP(fd_below(fd), 1)
    return real(fd, parts, n);
}
int fsync(int fd) { REAL(fsync); STOP(fd_below(fd), 0) (void)what; return real(fd); }
int fdatasync(int fd) { REAL(fdatasync); STOP(fd_below(fd), 0) (void)what; return real(fd); }
int ftruncate(int fd, off_t size) { REAL(ftruncate); STOP(fd_below(fd), 0) (void)what; return real(fd, size); }
int ftruncate64(int fd, off64_t size) { REAL(ftruncate64); STOP(fd_below(fd), 0) (void)what; return real(fd, size); }
int rename(const char *old, const char *new) { REAL(rename); STOP(below(new), 0) (void)what; return real(old, new); }
int unlink(const char *path) { REAL(unlink); STOP(below(path), 0) (void)what; return real(path); }
int rmdir(const char *path) { REAL(rmdir); STOP(below(path), 0) (void)what; return real(path); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); STOP(below(path), 1) (void)what; return real(path, mode); }
int link(const char *old, const char *new) { REAL(link); STOP(below(new), 0) (void)what; return real(old, new); }
int symlink(const char *old, const char *new) { REAL(symlink); STOP(below(new), 1) (void)what; return real(old, new); }
int unlinkat(int fd, const char *path, int flags) {
    REAL(unlinkat); STOP(path[0] == '/' ? below(path) : fd_below(fd), 0) (void)what;
    return real(fd, path, flags);
}

static int opened(int (*real)(const char *, int, ...), const char *path, int flags, mode_t mode) {
    STOP((flags & (O_CREAT | O_TRUNC)) && below(path), 1) (void)what;
    return real(path, flags, mode);
}
#define OPEN(name) int name(const char *path, int flags, ...) { \
    va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
    REAL(name); return opened(real, path, flags, mode); }
OPEN(open)
OPEN(open64)
