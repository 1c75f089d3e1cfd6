/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * What the waits probe could have of BPF: of given threads the times, and the kernel stacks of those that ran or waited
 * since the last look. It is the least that such a program can do: its user keeps the list of threads, in the numbers of
 * the first PID namespace.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "GPL";

struct sched_info {
	unsigned long long run_delay;
} __attribute__((preserve_access_index));

struct sched_entity {
	__u64 sum_exec_runtime;
} __attribute__((preserve_access_index));

struct task_struct {
	struct sched_entity se;
	struct sched_info sched_info;
} __attribute__((preserve_access_index));

extern struct task_struct *bpf_task_from_pid(int pid) __ksym;
extern void bpf_task_release(struct task_struct *task) __ksym;

#define ROOM 1024
#define FRAMES 64 /* MAX_STACK_TRACE_DEPTH, fs/proc/base.c */
#define NAME_LENGTH 1024 /* more than KSYM_SYMBOL_LEN, include/linux/kallsyms.h */

struct thread {
	__u32 tid;   /* written by user space */
	__s32 size;  /* bytes of frames; less than 0: it has not run, or is gone */
	__u64 run;   /* sum_exec_runtime, as in schedstat */
	__u64 wait;  /* run_delay */
	__u64 frames[FRAMES]; /* innermost first */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, ROOM);
	__type(key, __u32);
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__u32 number; /* of threads */
	__u32 every;  /* have the stacks of those too that have not run */
	__u64 address;
	char name[NAME_LENGTH];
} asked;

static long look_at(__u32 number, void *context)
{
	struct thread *thread = bpf_map_lookup_elem(&threads, &number);
	struct task_struct *task;
	__u64 run, wait;

	if (!thread)
		return 1;
	thread->size = -1;
	task = bpf_task_from_pid(thread->tid);
	if (!task)
		return 0;
	run = task->se.sum_exec_runtime;
	wait = task->sched_info.run_delay;
	if (asked.every || run != thread->run || wait != thread->wait)
		thread->size = bpf_get_task_stack(task, thread->frames, sizeof(thread->frames), 0);
	thread->run = run;
	thread->wait = wait;
	bpf_task_release(task);
	return 0;
}

SEC("syscall")
int look(void *context)
{
	bpf_loop(asked.number, look_at, 0, 0);
	return 0;
}

/* Writes what /proc/PID/stack writes for an address; returns its length with the 0 at the end. */
SEC("syscall")
int name(void *context)
{
	static const char form[] = "%pB";

	return bpf_snprintf(asked.name, NAME_LENGTH, form, &asked.address, sizeof(asked.address));
}
