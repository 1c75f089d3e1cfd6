/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * One pass over all tasks of the host, as a program that user space runs when it likes: with the task iterator that a
 * program opens itself (bpf_iter_task_new, kernel/bpf/task_iter.c, Linux 6.7; it takes NULL for all tasks from the same
 * version on), each task's totals of the last pass in its own storage (Linux 5.11; outside of LSM programs 5.13), and the
 * results in memory that both sides see (BPF_F_MMAPABLE, Linux 5.5). SYSCALL programs came with Linux 5.14,
 * bpf_rcu_read_lock with 6.2: the iterator is what decides.
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

#define ALL_THREADS 1 /* BPF_TASK_ITER_ALL_THREADS, kernel/bpf/task_iter.c */

struct known {
	struct totals totals;
	__u32 met;    /* 0: nobody has looked at this task before */
	__u32 listed; /* number of the listing that told of it last */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct known);
} last SEC(".maps");

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

static __always_inline void look(struct task_struct *task)
{
	struct totals now = {.run = task->se.sum_exec_runtime, .wait = waited(task)};
	struct record *record;
	struct known *known;
	struct totals used;
	__u32 tid, tgid;

	known = bpf_task_storage_get(&last, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!known)
		return; /* no memory now: it is met at the next pass */
	if (!known->met) {
		known->met = 1;
		if (task->start_boottime <= pass.since)
			known->totals = now;
	}
	if (pass.listing) {
		if (known->listed == pass.listing)
			return;
		used = known->totals;
	} else {
		used.run = now.run - known->totals.run;
		used.wait = now.wait - known->totals.wait;
		if (!used.run && !used.wait)
			return;
	}
	if (identify(task, &tid, &tgid) &&
	    (bpf_map_lookup_elem(&followed, &tgid) || (!pass.listing && used.run + used.wait >= pass.much))) {
		record = next_record();
		if (!record)
			return; /* all stays as it is: the next pass tells of it */
		record->tid = tid;
		record->tgid = tgid;
		record->run = used.run;
		record->wait = used.wait;
		describe(record, task);
	}
	if (pass.listing)
		known->listed = pass.listing;
	else
		known->totals = now;
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
		look(task);
	bpf_iter_task_destroy(&it);
	bpf_rcu_read_unlock();
	return 0;
}
