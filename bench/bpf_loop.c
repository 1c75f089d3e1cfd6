// The limit of reading by BPF: the exporter's own object, called from C. Prints the nanoseconds of CPU of a pass over all
// threads, and how many of these had changed, for each byte of its standard input.
//
// bpf_loop OBJECT: tasks.bpf.o, which walks over the threads itself, or tasks_iter.bpf.o, which is read.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ROOM 8192
#define MARGIN 1000000000ULL

// As in tasks.h.
struct pass {
    unsigned long long since, much, little;
    unsigned namespace, listing, room, level, found;
};
struct record {
    unsigned tid, tgid;
    unsigned long long start, run, wait;
    unsigned flags, unused;
    char comm[16];
};

static volatile struct pass *ask;
static struct record *records;
static struct bpf_link *attached;
static int walk;
static unsigned long long since = -1, run, wait;
static struct record piece[1 << 10];

static unsigned long long now_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static unsigned charge(const struct record *record, unsigned count)
{
    for (unsigned n = 0; n < count; n++) {
        run += record[n].run;
        wait += record[n].wait;
    }
    return count;
}

static int pass(unsigned long long much)
{
    LIBBPF_OPTS(bpf_test_run_opts, options);
    unsigned changed = 0;
    do {
        unsigned long long began = now_ns(CLOCK_BOOTTIME) - MARGIN;
        *ask = (struct pass){.since = since, .much = much, .room = ROOM};
        if (records) {
            bpf_prog_test_run_opts(walk, &options);
            changed += charge(records, ask->found < ROOM ? ask->found : ROOM);
        } else {
            int file = bpf_iter_create(bpf_link__fd(attached));
            for (long got; (got = read(file, piece, sizeof piece)) > 0;)
                changed += charge(piece, got / sizeof *piece);
            close(file);
        }
        since = began;
    } while (ask->found > ROOM);
    return changed;
}

static void *memory(struct bpf_map *map)
{
    size_t size = (size_t)bpf_map__value_size(map) * bpf_map__max_entries(map);
    return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);
}

static void follow_all(int followed)
{
    DIR *processes = opendir("/proc");
    for (struct dirent *process; (process = readdir(processes));) {
        unsigned tgid = atoi(process->d_name);
        unsigned char yes = 1;
        if (tgid)
            bpf_map_update_elem(followed, &tgid, &yes, BPF_ANY);
    }
    closedir(processes);
}

int main(int argc, char **argv)
{
    struct bpf_object *object = argc > 1 ? bpf_object__open_file(argv[1], NULL) : NULL;
    struct bpf_program *program;
    struct bpf_map *map;
    if (!object || bpf_object__load(object))
        return 1;
    bpf_object__for_each_map(map, object) {
        const char *name = bpf_map__name(map), *bss = strstr(name, ".bss");
        if (bss && !bss[4])
            ask = memory(map);
        else if (!strcmp(name, "records"))
            records = memory(map);
        else if (!strcmp(name, "followed"))
            follow_all(bpf_map__fd(map));
    }
    if ((program = bpf_object__find_program_by_name(object, "walk")))
        walk = bpf_program__fd(program);
    else if (!(program = bpf_object__find_program_by_name(object, "tell")) || !(attached = bpf_program__attach(program)))
        return 1;
    if (!ask || ask == MAP_FAILED || (walk && (!records || records == MAP_FAILED)))
        return 1;
    pass(-1);
    puts("ready");
    fflush(stdout);
    for (char byte; read(0, &byte, 1) == 1;) {
        unsigned long long before = now_ns(CLOCK_PROCESS_CPUTIME_ID);
        int changed = pass(1);
        if (!changed) {
            fputs("not even this thread is told of: the object is not the one that this loop was written for\n", stderr);
            return 1;
        }
        printf("%llu %d\n", now_ns(CLOCK_PROCESS_CPUTIME_ID) - before, changed);
        fflush(stdout);
    }
    return 0;
}
