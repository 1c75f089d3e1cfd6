/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * What a task used since the last pass, and whether to report it. Shared by the two programs that walk over
 * all tasks: tasks.bpf.c and tasks_iter.bpf.c.
 *
 * The structures name only what is read; libbpf finds where the running kernel has it (CO-RE).
 */
#ifndef PINCHPOINT_TASKS_H
#define PINCHPOINT_TASKS_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "pids.h"

#define COMM_LENGTH 16 /* TASK_COMM_LEN, include/linux/sched.h */

struct sched_info {
	unsigned long long run_delay;
} __attribute__((preserve_access_index));

struct sched_entity {
	__u64 sum_exec_runtime;
} __attribute__((preserve_access_index));

struct list_head {
	struct list_head *next;
} __attribute__((preserve_access_index));

struct task_struct {
	unsigned int flags;
	int pid;
	int tgid;
	__u64 start_boottime; /* real_start_time before Linux 5.5 */
	struct sched_entity se;
	struct sched_info sched_info;
	struct pid *thread_pid;
	struct task_struct *group_leader;
	struct list_head thread_node;
	char comm[COMM_LENGTH];
} __attribute__((preserve_access_index));

struct record {
	__u32 tid;
	__u32 tgid;
	__u64 start;  /* nanoseconds from boot to its start: with tid, its identity */
	__u64 run;    /* nanoseconds on a CPU since the last pass (sum_exec_runtime, as in schedstat); listing: until then */
	__u64 wait;   /* nanoseconds runnable without a CPU since the last pass (run_delay); listing: until then */
	__u32 flags;  /* PF_*, include/linux/sched.h */
	__u32 unused;
	char comm[COMM_LENGTH];
};

/* The totals of a task at the last pass. */
struct totals {
	__u64 run;
	__u64 wait;
};

/* What user space asks for before a pass, and what the pass says after it. */
struct {
	__u64 since;      /* boot time of the last pass in ns: a task started later is new, and all that it used */
	__u64 much;       /* an unfollowed task is reported if it used at least so many ns */
	__u64 little;     /* a followed task is reported once it has used so many ns */
	__u32 namespace;  /* inode number of the PID namespace whose numbers are wanted; 0: the first one's */
	__u32 listing;    /* if not 0: report every followed task, once for each such number, and settle nothing */
	__u32 room;       /* records that there is room for */
	__u32 level;      /* of the PID namespace; 0 until it is seen */
	__u32 found;      /* records that the pass made, or would have made with more room */
} pass;

/* tgid of every process whose tasks are followed, in the numbers of the PID namespace. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, __u32);
	__type(value, __u8);
} followed SEC(".maps");

/* Writes the task's numbers; returns whether it has any. */
static __always_inline int identify(struct task_struct *task, __u32 *tid, __u32 *tgid)
{
	if (!pass.namespace) {
		*tid = task->pid;
		*tgid = task->tgid;
	} else {
		*tid = number_in_namespace(BPF_CORE_READ(task, thread_pid), pass.namespace, &pass.level);
		*tgid = *tid ? number_in_namespace(BPF_CORE_READ(task, group_leader, thread_pid), pass.namespace, &pass.level) : 0;
	}
	return *tid && *tgid;
}

static __always_inline __u64 waited(struct task_struct *task)
{
	/* Unknown without CONFIG_SCHED_INFO. */
	if (bpf_core_field_exists(task->sched_info.run_delay))
		return task->sched_info.run_delay;
	return 0;
}

static __always_inline void describe(struct record *record, struct task_struct *task)
{
	record->start = task->start_boottime;
	record->flags = task->flags;
	__builtin_memcpy(record->comm, task->comm, COMM_LENGTH);
}

#endif
