/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The truth beside what the exporter says of workqueues: an event at the end of every work, with the queue's own name, and
 * one whenever a worker leaves its CPU, where the scheduler has just brought its time up to date. From both follows, later,
 * what a worker had used at the end of a work. That costs something at every switch of the host, so that nobody would do
 * it always.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "GPL";

#define PF_WQ_WORKER 0x20 /* include/linux/sched.h */

struct sched_entity {
	__u64 sum_exec_runtime;
} __attribute__((preserve_access_index));

struct task_struct {
	unsigned int flags;
	int pid;
	struct sched_entity se;
	void *worker_private;
} __attribute__((preserve_access_index));

struct kthread {
	void *data;
} __attribute__((preserve_access_index));

struct workqueue_struct {
	char name[32];
} __attribute__((preserve_access_index));

struct pool_workqueue {
	struct workqueue_struct *wq;
} __attribute__((preserve_access_index));

struct worker {
	struct work_struct *current_work;
	struct pool_workqueue *current_pwq;
} __attribute__((preserve_access_index));

struct event {
	__u64 time;
	__u64 run;
	__u32 worker;
	__u32 leaves; /* the CPU; else a work ends */
	char queue[32];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << 20);
	__type(key, __u32);
	__type(value, struct event);
} events SEC(".maps");

__u32 number;

static __always_inline struct event *record(struct task_struct *task, int leaves)
{
	__u32 mine = __sync_fetch_and_add(&number, 1);
	struct event *event = bpf_map_lookup_elem(&events, &mine);

	if (!event)
		return 0;
	event->time = bpf_ktime_get_ns();
	event->run = task->se.sum_exec_runtime;
	event->worker = task->pid;
	event->leaves = leaves;
	return event;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(leave, int preempted, struct task_struct *task)
{
	if (task->flags & PF_WQ_WORKER)
		record(task, 1);
	return 0;
}

SEC("tp_btf/workqueue_execute_end")
int BPF_PROG(end, struct work_struct *work)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct worker *worker;
	struct kthread *kthread;
	struct event *event;

	if (!(task->flags & PF_WQ_WORKER))
		return 0;
	kthread = task->worker_private;
	worker = BPF_CORE_READ(kthread, data);
	if (BPF_CORE_READ(worker, current_work) != work)
		return 0;
	event = record(task, 0);
	if (event)
		BPF_CORE_READ_STR_INTO(&event->queue, worker, current_pwq, wq, name);
	return 0;
}
