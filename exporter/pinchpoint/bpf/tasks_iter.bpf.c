/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * One pass over all tasks for each descriptor that is read to its end: the form for older kernels (iter/task and
 * bpf_seq_write, Linux 5.8). The iterator walks over the tasks of the reader's own PID namespace (task_seq_get_next,
 * kernel/bpf/task_iter.c).
 */
#include "tasks.h"

char LICENSE[] SEC("license") = "GPL";

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} __attribute__((preserve_access_index));

struct known {
	__u64 start;
	struct totals totals;
};

/*
 * By the address of the task, which is its own as long as it lives; its number is not: a thread that calls exec takes
 * its leader's (de_thread, fs/exec.c). Tasks that ended are forgotten when room is needed.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, __u64);
	__type(value, struct known);
} last SEC(".maps");

/* Returns what is known of a task; NULL if there is no room now. */
static __always_inline struct known *remember(struct task_struct *task, struct totals *now)
{
	struct known fresh = {.start = task->start_boottime}, *known;
	__u64 key = (__u64)task;

	known = bpf_map_lookup_elem(&last, &key);
	if (known && fresh.start <= known->start) {
		/* Earlier: it took its leader's, together with the number. Another task at this address starts later. */
		known->start = fresh.start;
		return known;
	}
	if (fresh.start <= pass.since)
		fresh.totals = *now;
	if (bpf_map_update_elem(&last, &key, &fresh, BPF_ANY))
		return 0;
	return bpf_map_lookup_elem(&last, &key);
}

SEC("iter/task")
int tell(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct record record = {};
	struct known *known;
	struct totals now;
	__u64 sum;
	int mine;

	if (!task)
		return 0; /* the end */
	now.run = task->se.sum_exec_runtime;
	now.wait = waited(task);
	known = remember(task, &now);
	if (!known)
		return 0; /* it is met at the next pass */
	if (pass.listing) {
		record.run = known->totals.run;
		record.wait = known->totals.wait;
	} else {
		record.run = now.run - known->totals.run;
		record.wait = now.wait - known->totals.wait;
		if (!record.run && !record.wait)
			return 0;
	}
	if (identify(task, &record.tid, &record.tgid)) {
		sum = record.run + record.wait;
		mine = bpf_map_lookup_elem(&followed, &record.tgid) != 0;
		if (mine && !pass.listing && sum < pass.little)
			return 0; /* its totals stay: a later pass reports it */
		if (mine || (!pass.listing && sum >= pass.much)) {
			describe(&record, task);
			/* Where the reader's buffer is full the kernel calls again for the same task (bpf_seq_read). */
			if (bpf_seq_write(context->meta->seq, &record, sizeof(record)))
				return 0;
		}
	}
	if (!pass.listing)
		known->totals = now;
	return 0;
}
