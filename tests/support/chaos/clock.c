/* A wall clock that a test sets for one process: preloaded, it adds what the process's file
 * says (seconds, a signed 64-bit integer) to every look at real time.
 * The file is $CHAOS_CLOCK/<pid>; a child that does not execute another program shares it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void map_offset(void) {
  const char *folder = getenv("CHAOS_CLOCK");
  char path[4096];
  if (folder == NULL) return;
  snprintf(path, sizeof path, "%s/%d", folder, (int)getpid());
  int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return;
  if (ftruncate(file, sizeof *offset) == 0) {
    void *found = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) offset = found;
  }
  close(file);
}

static int64_t shift(void) { return offset == NULL ? 0 : *offset; }

static int is_real(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

int clock_gettime(clockid_t clock, struct timespec *found) {
  static int (*real)(clockid_t, struct timespec *);
  if (real == NULL) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int code = real(clock, found);
  if (code == 0 && is_real(clock)) found->tv_sec += shift();
  return code;
}

int gettimeofday(struct timeval *found, void *zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  found->tv_sec = now.tv_sec;
  found->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *found) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (found != NULL) *found = now.tv_sec;
  return now.tv_sec;
}
