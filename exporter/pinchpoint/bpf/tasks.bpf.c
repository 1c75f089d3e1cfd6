/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * One pass over all tasks of the host, as a program that user space runs on demand: with the task iterator that a
 * program opens itself (bpf_iter_task_new, kernel/bpf/task_iter.c, Linux 6.7; it takes NULL for all tasks from the same
 * version on), each task's totals of the last pass in its own storage (Linux 5.11; outside of LSM programs 5.13), and
 * the results in shared memory (BPF_F_MMAPABLE, Linux 5.5). SYSCALL programs came with Linux 5.14, bpf_rcu_read_lock
 * with 6.2: the iterator decides.
 */
#include "tasks.h"

char LICENSE[] SEC("license") = "GPL";

struct bpf_iter_task {
	__u64 opaque[3];
} __attribute__((aligned(8)));

extern int bpf_iter_task_new(struct bpf_iter_task *it, struct task_struct *task, unsigned int flags) __ksym;
extern struct task_struct *bpf_iter_task_next(struct bpf_iter_task *it) __ksym;
extern void bpf_iter_task_destroy(struct bpf_iter_task *it) __ksym;
extern void bpf_rcu_read_lock(void) __ksym;
extern void bpf_rcu_read_unlock(void) __ksym;
extern void *bpf_rdonly_cast(void *address, __u32 type) __ksym; /* Linux 6.2 */

#define ALL_THREADS 1 /* BPF_TASK_ITER_ALL_THREADS, kernel/bpf/task_iter.c */

struct known {
	struct totals totals;
	__u32 met;    /* 0: this task was not met before */
	__u32 listed; /* number of the last listing that has it */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct known);
} last SEC(".maps");

/*
 * What shows that a task did not run, packed: most never do, and then their storage, three more cache lines, is not
 * touched. By the last bits of its number; of two tasks with the same bits, one is looked up in its storage.
 */
struct glance {
	__u64 task; /* its address */
	__u64 run;
};

#define GLANCES (1 << 16)
#define AHEAD 8 /* measured: 4 takes 20 % longer, 16 as long */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GLANCES);
	__type(key, __u32);
	__type(value, struct glance);
} glances SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct record);
} records SEC(".maps");

/* Returns a place for the next record; NULL if there is no more room. */
static __always_inline struct record *next_record(void)
{
	__u32 number = pass.found++;

	return number < pass.room ? bpf_map_lookup_elem(&records, &number) : 0;
}

/* Returns whether its totals are current, and reported as far as they are wanted. */
static __always_inline int look(struct task_struct *task)
{
	struct totals now = {.run = task->se.sum_exec_runtime, .wait = waited(task)};
	struct record *record;
	struct known *known;
	struct totals used;
	__u32 tid, tgid;
	__u64 sum;
	int mine;

	known = bpf_task_storage_get(&last, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!known)
		return 0; /* no memory now: it is met at the next pass */
	if (!known->met) {
		known->met = 1;
		if (task->start_boottime <= pass.since)
			known->totals = now;
	}
	if (pass.listing) {
		if (known->listed == pass.listing)
			return 0;
		used = known->totals;
	} else {
		used.run = now.run - known->totals.run;
		used.wait = now.wait - known->totals.wait;
		if (!used.run && !used.wait)
			return 1;
	}
	if (identify(task, &tid, &tgid)) {
		sum = used.run + used.wait;
		mine = bpf_map_lookup_elem(&followed, &tgid) != 0;
		if (mine && !pass.listing && sum < pass.little)
			return 0; /* nothing changes: a later pass reports it */
		if (mine || (!pass.listing && sum >= pass.much)) {
			record = next_record();
			if (!record)
				return 0; /* likewise */
			record->tid = tid;
			record->tgid = tgid;
			record->run = used.run;
			record->wait = used.wait;
			describe(record, task);
		}
	}
	if (pass.listing) {
		known->listed = pass.listing;
		return 0;
	}
	known->totals = now;
	return 1;
}

/*
 * The tasks are a linked list, and the walk would wait for memory at each link: after 100 ms of other work no cache has
 * them any more. So the link of a task that most likely comes soon is fetched now, from its address at the last pass.
 * It may be gone by now: what is there is not used, and no address can do harm (BPF_PROBE_MEM loads).
 */
static __always_inline void fetch(__u32 slot)
{
	struct glance *glance = bpf_map_lookup_elem(&glances, &slot);
	struct task_struct *task;

	if (glance && glance->task) {
		task = bpf_rdonly_cast((void *)glance->task, bpf_core_type_id_kernel(struct task_struct));
		asm volatile("" ::"r"(task->thread_node.next));
	}
}

/*
 * The kernel counts a wait when it is over (sched_info_arrive, kernel/sched/stats.h): what did not run has no new wait.
 *
 * look() is here once: with a second copy for listings the verifier follows 208,000 instructions instead of 16,000, which
 * takes 0.4 s at each start (Linux 6.18). It cannot be a function of its own: before Linux 6.9 one may not return while
 * its caller holds bpf_rcu_read_lock.
 */
static __always_inline void look_if_needed(struct task_struct *task)
{
	__u32 slot = task->pid & (GLANCES - 1);
	__u64 run = task->se.sum_exec_runtime;
	struct glance *glance = bpf_map_lookup_elem(&glances, &slot);

	fetch((slot + AHEAD) & (GLANCES - 1));
	if (!glance || (!pass.listing && glance->task == (__u64)task && glance->run == run))
		return;
	if (look(task)) {
		glance->task = (__u64)task;
		glance->run = run;
	}
}

SEC("syscall")
int walk(void *context)
{
	struct bpf_iter_task it;
	struct task_struct *task;

	pass.found = 0;
	bpf_rcu_read_lock();
	bpf_iter_task_new(&it, 0, ALL_THREADS);
	while ((task = bpf_iter_task_next(&it)))
		look_if_needed(task);
	bpf_iter_task_destroy(&it);
	bpf_rcu_read_unlock();
	return 0;
}
