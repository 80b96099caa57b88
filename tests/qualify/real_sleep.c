/* Sleeps as the kernel does. libfaketime 0.9.10 makes the end of a sleep an invalid time if it leaves the monotonic clock
   alone (DONT_FAKE_MONOTONIC): Python's time.sleep then raises an OSError. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left) {
    return syscall(SYS_clock_nanosleep, clock, flags, time, left) == 0 ? 0 : errno;
}
