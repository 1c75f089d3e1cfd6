// What mdtest does, as fast as it can: each of JOBS processes creates files of 3,901 bytes, stats them and removes them,
// again and again for SECONDS. Prints the operations per second of all together.
//
// metadata DIRECTORY JOBS SECONDS
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FILES 1000
#define SIZE 3901

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void create(const char *path)
{
    static char text[SIZE];
    int file = open(path, O_CREAT | O_EXCL | O_WRONLY, 0664);
    if (file < 0 || write(file, text, SIZE) != SIZE)
        _exit(1);
    close(file);
}

static void look(const char *path)
{
    struct stat found;
    if (stat(path, &found) || found.st_size != SIZE)
        _exit(1);
}

static void removed(const char *path)
{
    if (unlink(path))
        _exit(1);
}

static void (*const phases[])(const char *) = {create, look, removed};

int main(int argc, char **argv)
{
    int jobs = argc > 3 ? atoi(argv[2]) : 0, results[2];
    double rate, all = 0, end = now() + (argc > 3 ? atof(argv[3]) : 0);
    prctl(PR_SET_NAME, "mdtest");
    if (!jobs || chdir(argv[1]) || pipe(results))
        return 1;
    for (int job = 0; job < jobs; job++)
        if (!fork()) {
            char path[32];
            long done = 0;
            double began = now();
            // Whole rounds only: no file is left.
            for (double t = began; t < end; t = now())
                for (int phase = 0; phase < 3; phase++)
                    for (int n = 0; n < FILES; n++, done++) {
                        snprintf(path, sizeof path, "%d.%d", job, n);
                        phases[phase](path);
                    }
            rate = done / (now() - began);
            _exit(write(results[1], &rate, sizeof rate) != sizeof rate);
        }
    close(results[1]);
    int failed = 0, status;
    while (read(results[0], &rate, sizeof rate) == sizeof rate)
        all += rate;
    while (wait(&status) > 0)
        failed |= status;
    printf("%.1f\n", all);
    return failed != 0;
}
