// One process of the workload: threads with names that sleep, but for the first ACTIVE of them, which wake up HZ times
// a second and use a share DUTY of a CPU.
//
// threads NAME ACTIVE HZ DUTY THREAD=COUNT... -i INDEX
//
// The index does nothing: it is where a Ceph daemon has its id. Prints "ready" when all threads are there, and ends
// with its standard input.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000L
#define STACK (32 << 10)

static double hz, duty;
static pthread_barrier_t there;

struct thread {
    const char *name;
    int active;
};

static long clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

static void *body(void *argument)
{
    struct thread thread = *(struct thread *)argument;
    prctl(PR_SET_NAME, thread.name);
    unsigned seed = (unsigned)gettid() * 2654435761u;
    pthread_barrier_wait(&there);
    if (!thread.active || hz <= 0)
        for (;;)
            pause();
    long period = SECOND / hz, spin = period * duty;
    // Not all of them at once.
    long due = clock_ns(CLOCK_MONOTONIC) + (long)(rand_r(&seed) / (RAND_MAX + 1.0) * period);
    for (;;) {
        struct timespec t = {due / SECOND, due % SECOND};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
        if (spin)
            for (long end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + spin; clock_ns(CLOCK_THREAD_CPUTIME_ID) < end;)
                ;
        // Wake-ups that are late are left out, as a daemon's would be.
        for (long now = clock_ns(CLOCK_MONOTONIC); due <= now;)
            due += period;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int active = atoi(argv[2]), first = 5, last = first, total = 0;
    hz = atof(argv[3]);
    duty = atof(argv[4]);
    for (; last < argc && strcmp(argv[last], "-i"); last++)
        total += atoi(strrchr(argv[last], '=') + 1);
    struct thread *threads = calloc(total + 1, sizeof *threads);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_barrier_init(&there, NULL, total + 1);
    prctl(PR_SET_NAME, argv[1]);
    for (int word = first, n = 0; word < last; word++) {
        char *sign = strrchr(argv[word], '=');
        int count = atoi(sign + 1);
        *sign = 0;
        for (; count > 0; count--, n++) {
            threads[n] = (struct thread){argv[word], n < active};
            pthread_t ignored;
            if (pthread_create(&ignored, &attributes, body, &threads[n])) {
                perror("pthread_create");
                return 1;
            }
        }
    }
    pthread_barrier_wait(&there);
    puts("ready");
    fflush(stdout);
    char ignored[64];
    while (read(0, ignored, sizeof ignored) > 0)
        ;
    return 0;
}
