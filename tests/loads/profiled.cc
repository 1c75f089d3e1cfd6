// A program whose stacks are known: each argument is one way to spend CPU time.
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <map>
#include <string>

static volatile uint64_t sink;

namespace templates {
template <class T> struct Tree {
    std::map<std::string, T> nodes;
    __attribute__((noinline)) T grow(int count) {
        T sum{};
        for (int i = 0; i < count; i++) {
            nodes["a rather long key " + std::to_string(i)] += i;
            sum += nodes.size();
        }
        nodes.clear();
        return sum;
    }
};
}  // namespace templates

extern "C" {
__attribute__((noinline)) uint64_t crc32c_table(uint64_t rounds) {
    uint64_t crc = 1;
    for (uint64_t i = 0; i < rounds; i++) crc = (crc >> 1) ^ (0x82f63b78 & -(crc & 1)) ^ i;
    sink = crc;
    return crc;
}
__attribute__((noinline)) uint64_t own_code(uint64_t rounds) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < rounds; i++) sum = sum * 31 + (i ^ sum >> 3);
    sink = sum;
    return sum;
}
__attribute__((noinline)) void allocate(int rounds) {
    void* kept[64] = {};
    for (int i = 0; i < rounds; i++) {
        free(kept[i & 63]);
        kept[i & 63] = malloc(32 + (i * 977 & 2047));
    }
    for (void* one : kept) free(one);
}
__attribute__((noinline)) void copy(int rounds) {
    static char from[65536], to[65536];
    for (int i = 0; i < rounds; i++) {
        from[i & 65535] = (char)i;
        memcpy(to, from, sizeof to);
        sink += to[i & 65535];
    }
}
__attribute__((noinline)) void log_text(int rounds) {
    char text[128];
    for (int i = 0; i < rounds; i++) {
        snprintf(text, sizeof text, "%d %s %f", i, "osd.0 pg 1.2 do_op", i / 3.0);
        sink += text[5];
    }
}
__attribute__((noinline)) void read_clocks(int rounds) {
    struct timespec now;
    for (int i = 0; i < rounds; i++) clock_gettime(CLOCK_MONOTONIC, &now);
}
__attribute__((noinline)) void on_signal(int) { own_code(3000000); }
static volatile sig_atomic_t asked;
static void on_request(int) { asked = 1; }
}

static double seconds() {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

// Spends the same CPU time, by the thread's own clock, with each of five classes; prints the shares at the end.
static void shares(double total) {
    struct {
        const char* name;
        double weight, used;
    } parts[] = {{"checksum", 0.30, 0}, {"allocator", 0.25, 0}, {"copying", 0.20, 0}, {"logging", 0.15, 0}, {"other", 0.10, 0}};
    double begun = seconds();
    while (seconds() - begun < total) {
        for (int part = 0; part < 5; part++) {
            double sum = 0;
            for (auto& one : parts) sum += one.used;
            while (parts[part].used < parts[part].weight * (sum + 0.01)) {
                double before = seconds();
                for (int i = 0; i < 200; i++) {
                    if (part == 0) crc32c_table(5000);
                    if (part == 1) allocate(500);
                    if (part == 2) copy(4);
                    if (part == 3) log_text(20);
                    if (part == 4) own_code(5000);
                }
                double used = seconds() - before;
                parts[part].used += used;
                sum += used;
            }
        }
    }
    double sum = 0;
    for (auto& one : parts) sum += one.used;
    for (auto& one : parts) printf("%s %.4f\n", one.name, one.used / sum);
}

int main(int argc, char** argv) {
    std::string how = argc > 1 ? argv[1] : "";
    if (how == "shares") {
        shares(atof(argv[2]));
        return 0;
    }
    signal(SIGUSR1, on_request);
    puts("begun");
    fflush(stdout);
    if (how == "replaced") {
        while (!asked) own_code(1000000);
        execl(argv[2], argv[2], "-c", "while True: pass", (char*)nullptr);
        return 1;
    }
    if (how == "signals") {
        signal(SIGALRM, on_signal);
        struct itimerval often = {{0, 20000}, {0, 20000}};
        setitimer(ITIMER_REAL, &often, nullptr);
    }
    templates::Tree<double> tree;
    for (;;) {
        if (how == "templates") sink += (uint64_t)tree.grow(3000);
        if (how == "checksum") crc32c_table(1000000);
        if (how == "signals") read_clocks(100000);
    }
}
