/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * What it would cost to charge waits at the switches of the scheduler, exactly, instead of looking at threads now and then:
 * the least that such a program can do. It runs at every switch of the host and works at those of some processes only.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

struct task_struct {
	int pid;
	int tgid;
} __attribute__((preserve_access_index));

struct thread {
	__u64 left; /* when it left its CPU */
	__u64 off;  /* nanoseconds without one that are not charged yet */
	__u64 stack;
};

struct cell {
	__u32 tgid;
	__u32 stack;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u8);
} followed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__uint(value_size, 64 * sizeof(__u64));
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct cell);
	__type(value, __u64);
} cells SEC(".maps");

__u64 switches; /* of followed threads: how often one was blocked */

static __always_inline void charge(struct thread *thread, __u32 tgid)
{
	struct cell cell = {.tgid = tgid, .stack = thread->stack};
	__u64 *time = bpf_map_lookup_elem(&cells, &cell);

	if (time)
		__sync_fetch_and_add(time, thread->off);
	else
		bpf_map_update_elem(&cells, &cell, &thread->off, BPF_ANY);
	thread->off = 0;
}

static __always_inline int switched(void *context, _Bool preempted, struct task_struct *before, struct task_struct *after,
				    unsigned int state, int with_stacks)
{
	__u32 tgid = before->tgid;
	struct thread *thread = 0;

	if (before->pid) {
		thread = bpf_task_storage_get(&threads, before, 0, 0);
		if (!thread && bpf_map_lookup_elem(&followed, &tgid))
			thread = bpf_task_storage_get(&threads, before, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	}
	if (thread) {
		thread->left = bpf_ktime_get_ns();
		if (state && !preempted) {
			switches++;
			charge(thread, tgid);
			if (with_stacks)
				thread->stack = bpf_get_stackid(context, &stacks, BPF_F_FAST_STACK_CMP);
		}
	}
	thread = after->pid ? bpf_task_storage_get(&threads, after, 0, 0) : 0;
	if (thread && thread->left)
		thread->off += bpf_ktime_get_ns() - thread->left;
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(times, _Bool preempted, struct task_struct *before, struct task_struct *after, unsigned int state)
{
	return switched(ctx, preempted, before, after, state, 0);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(with_stack, _Bool preempted, struct task_struct *before, struct task_struct *after, unsigned int state)
{
	return switched(ctx, preempted, before, after, state, 1);
}
