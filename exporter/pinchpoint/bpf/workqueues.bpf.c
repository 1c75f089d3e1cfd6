/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * What the workers of workqueues used, by the queue that they worked for, exact at the end of every work.
 *
 * All that a worker used since its last work belongs to the work that ends: waking up is its cost too, and so the sum over
 * the queues is the sum of the workers' schedstat. The scheduler brings sum_exec_runtime up to date when it switches and at
 * ticks only (update_curr, kernel/sched/fair.c), and a work is often shorter than a tick. What is missing is the time
 * since exec_start, which is in the time of the scheduler's clock on that CPU. How far that is behind ours is learnt
 * whenever a worker begins a work just after it was given the CPU.
 *
 * A work that goes on is charged when user space asks: its worker is known since its start.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "GPL";

#define NAME_LENGTH 32         /* WQ_NAME_LEN and WORKER_DESC_LEN, include/linux/workqueue.h: 24 until Linux 6.9 */
#define WRITEBACK "writeback"  /* bdi_wq, mm/backing-dev.c */
#define FLUSH "flush-"         /* wb_workfn, fs/fs-writeback.c */
#define QUEUES 4096
#define CHARGES 8
#define RECORDS 4096
#define PF_WQ_WORKER 0x20      /* include/linux/sched.h */
#define LONGEST_TICK 10000000  /* nanoseconds: HZ=100 */
#define FORGOTTEN 900000000000 /* nanoseconds without a work; a worker too many ends after 300 s (IDLE_WORKER_TIMEOUT) */
#define MARGIN 1000000         /* nanoseconds that the end of a work takes at most to be charged */
#define YOUNG 600000000000     /* nanoseconds; less than FORGOTTEN, so that no worker is met as a new one twice */

struct sched_info {
	unsigned long long run_delay;
} __attribute__((preserve_access_index));

struct sched_entity {
	__u64 exec_start;
	__u64 sum_exec_runtime;
} __attribute__((preserve_access_index));

struct task_struct {
	unsigned int flags;
	int pid;
	unsigned long nvcsw;
	unsigned long nivcsw;
	__u64 start_boottime;
	struct sched_entity se;
	struct sched_info sched_info;
	void *worker_private;
} __attribute__((preserve_access_index));

/* Before Linux 5.17 a kernel thread's own data is where it has nothing else to keep (to_kthread, kernel/kthread.c). */
struct task_struct___before_5_17 {
	int *set_child_tid;
} __attribute__((preserve_access_index));

struct kthread {
	void *data;
} __attribute__((preserve_access_index));

struct work_struct {
	void *func;
} __attribute__((preserve_access_index));

struct delayed_work {
	struct work_struct work;
} __attribute__((preserve_access_index));

struct worker {
	struct work_struct *current_work;
	char desc[NAME_LENGTH];
} __attribute__((preserve_access_index));

struct backing_dev_info {
	char dev_name[64];
} __attribute__((preserve_access_index));

struct bdi_writeback {
	struct backing_dev_info *bdi;
	struct delayed_work bw_dwork;
} __attribute__((preserve_access_index));

struct bpf_iter__task {
	struct task_struct *task;
} __attribute__((preserve_access_index));

struct name {
	char text[NAME_LENGTH];
} __attribute__((aligned(8)));

/* What a worker used for one queue and user space has not collected. It is free when both are zero. */
struct charge {
	__u32 queue;
	__u32 unused;
	__u64 run;
	__u64 wait;
};

struct known {
	__u64 start;      /* nanoseconds from boot to its start: with its address, its identity */
	__u64 worker;     /* struct worker */
	__u64 work;       /* that it executes now; 0 between two works */
	__u64 run;        /* nanoseconds on a CPU up to which it is charged */
	__u64 wait;       /* nanoseconds runnable without a CPU up to which it is charged */
	__u64 switches;   /* how often it was given a CPU, at the last start or end of a work */
	__u64 last;       /* when its last work ended */
	__u32 pid;
	__u32 queue;      /* of its last work */
	struct name name; /* of that */
	struct charge charges[CHARGES];
};

struct record {
	__u32 worker; /* its pid, in the first PID namespace */
	__u32 queue;
	__u64 run;    /* nanoseconds on a CPU since the last record of this worker and this queue */
	__u64 wait;   /* nanoseconds runnable without a CPU */
};

struct {
	__u64 opened;  /* boot time at which every worker was known; 0 before */
	__u64 told;    /* since when the workers' charges have not been collected */
	__u32 records; /* that the last collection made */
	__u32 queues;  /* that have a number; 0 is for work of unknown name */
} state = {.queues = 1};

/* Workers by the address of their task. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, struct known);
} workers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, QUEUES);
	__type(key, struct name);
	__type(value, __u32);
} numbers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, QUEUES);
	__type(key, __u32);
	__type(value, struct name);
} names SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, RECORDS);
	__type(key, __u32);
	__type(value, struct record);
} records SEC(".maps");

/* By how much the scheduler's clock of this CPU was behind ours when it was seen last; 0 if it was not. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} behind SEC(".maps");

static const __u32 zero;
static const struct name nameless = {WRITEBACK};

static __always_inline __u64 waited(struct task_struct *task)
{
	/* Unknown without CONFIG_SCHED_INFO. */
	if (bpf_core_field_exists(task->sched_info.run_delay))
		return BPF_CORE_READ(task, sched_info.run_delay);
	return 0;
}

/* Returns the worker that a task is (current_wq_worker, kernel/workqueue_internal.h). */
static __always_inline struct worker *worker_of(struct task_struct *task)
{
	struct task_struct___before_5_17 *older = (void *)task;
	struct kthread *kthread;

	if (bpf_core_field_exists(task->worker_private))
		kthread = BPF_CORE_READ(task, worker_private);
	else
		kthread = (void *)BPF_CORE_READ(older, set_child_tid);
	return BPF_CORE_READ(kthread, data);
}

static __always_inline int equal(const struct name *one, const struct name *other)
{
	const __u64 *a = (void *)one, *b = (void *)other;

	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
}

/* Reads what a worker does, as its name in procfs says it; the rest of `name` stays zero. */
static __always_inline void read_name(struct name *name, struct worker *worker)
{
	__u32 size = bpf_core_field_size(worker->desc);

	bpf_probe_read_kernel_str(name->text, size < NAME_LENGTH ? size : NAME_LENGTH, &worker->desc);
}

/*
 * Two works of a backing device are executed by the queue "writeback". The writeback names the device itself; a work
 * that has not done so by its end is the other one, which estimates the bandwidth (wb_update_bandwidth_workfn, Linux
 * 5.16).
 */
static __always_inline void add_device(struct name *name, __u64 work)
{
	struct bdi_writeback *writeback = 0;
	struct backing_dev_info *device = 0;
	struct name full = {FLUSH};

	if (!bpf_core_field_exists(writeback->bw_dwork) || !bpf_core_field_exists(device->dev_name))
		return;
	/* The work is not released before its end (wb_shutdown, mm/backing-dev.c). */
	writeback = (void *)(work - bpf_core_field_offset(struct bdi_writeback, bw_dwork));
	device = BPF_CORE_READ(writeback, bdi);
	/* More than the byte at the end of an empty string. */
	if (bpf_probe_read_kernel_str(full.text + sizeof(FLUSH) - 1, NAME_LENGTH - sizeof(FLUSH) + 1, &device->dev_name) > 1)
		*name = full;
}

/* Returns the number of a queue; 0 if there are too many. */
static __always_inline __u32 number_of(struct name *name)
{
	__u32 number, *found;
	struct name *known;

	found = bpf_map_lookup_elem(&numbers, name);
	if (found)
		return *found;
	if (state.queues >= QUEUES)
		return 0;
	number = __sync_fetch_and_add(&state.queues, 1);
	known = bpf_map_lookup_elem(&names, &number);
	if (!known)
		return 0;
	*known = *name;
	if (!bpf_map_update_elem(&numbers, name, &number, BPF_NOEXIST))
		return number;
	found = bpf_map_lookup_elem(&numbers, name); /* another CPU was faster */
	return found ? *found : 0;
}

/*
 * Takes what was not yet charged of a total. Of two CPUs, the worker's own and the collecting one, only one gets it.
 */
static __always_inline __u64 take(__u64 *charged, __u64 total)
{
	__u64 before = *(volatile __u64 *)charged;

	if (total <= before || __sync_val_compare_and_swap(charged, before, total) != before)
		return 0;
	return total - before;
}

/* Keeps what a worker used for a queue until it is collected. */
static __always_inline void charge(struct known *known, __u32 queue, __u64 run, __u64 wait)
{
	struct charge *charge = 0;

	/* The first is for queues without a number, and for the eighth queue of a worker between two collections. */
	for (int i = CHARGES - 1; i > 0; i--) {
		struct charge *one = &known->charges[i];

		if (one->queue == queue) {
			charge = one;
			break;
		}
		if (!one->run && !one->wait)
			charge = one;
	}
	if (!queue || !charge)
		charge = &known->charges[0];
	else
		charge->queue = queue;
	__sync_fetch_and_add(&charge->wait, wait);
	__sync_fetch_and_add(&charge->run, run);
}

static __always_inline struct known *meet(__u64 key, struct task_struct *task, int with_past)
{
	struct known fresh = {};

	fresh.start = task->start_boottime;
	fresh.worker = (__u64)worker_of(task);
	fresh.pid = task->pid;
	fresh.last = bpf_ktime_get_ns();
	if (!with_past) {
		fresh.run = task->se.sum_exec_runtime;
		fresh.wait = waited(task);
	}
	bpf_map_update_elem(&workers, &key, &fresh, BPF_ANY);
	return bpf_map_lookup_elem(&workers, &key);
}

/* Returns whether all that a worker used is new. */
static __always_inline int newborn(struct task_struct *task)
{
	return state.opened && task->start_boottime > state.opened && bpf_ktime_get_boot_ns() - task->start_boottime < YOUNG;
}

SEC("tp_btf/workqueue_execute_start")
int BPF_PROG(begin, struct work_struct *work)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 key = (__u64)task, switches, *offset;
	struct worker *worker;
	struct known *known;

	if (!(task->flags & PF_WQ_WORKER))
		return 0;
	known = bpf_map_lookup_elem(&workers, &key);
	if (!known || known->start != task->start_boottime)
		known = meet(key, task, newborn(task));
	if (!known)
		return 0;
	worker = (void *)known->worker;
	if (BPF_CORE_READ(worker, current_work) != work)
		return 0; /* a softirq's (WQ_BH, Linux 6.9), on top of a worker */
	switches = task->nvcsw + task->nivcsw;
	if (known->switches != switches) {
		known->switches = switches;
		offset = bpf_map_lookup_elem(&behind, &zero);
		if (offset)
			*offset = bpf_ktime_get_ns() - task->se.exec_start;
	}
	known->work = (__u64)work;
	return 0;
}

SEC("tp_btf/workqueue_execute_end")
int BPF_PROG(end, struct work_struct *work)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 key = (__u64)task, now, run, *offset;
	struct name name = {};
	struct known *known;
	__s64 since;

	if (!(task->flags & PF_WQ_WORKER))
		return 0;
	known = bpf_map_lookup_elem(&workers, &key);
	if (!known || known->work != (__u64)work)
		return 0;
	now = bpf_ktime_get_ns();
	run = task->se.sum_exec_runtime;
	offset = bpf_map_lookup_elem(&behind, &zero);
	if (offset && *offset) {
		since = now - *offset - task->se.exec_start;
		if (since > 0)
			run += since < LONGEST_TICK ? since : LONGEST_TICK;
	}
	read_name(&name, (void *)known->worker);
	if (equal(&name, &nameless))
		add_device(&name, known->work);
	if (!equal(&name, &known->name)) {
		known->queue = number_of(&name);
		known->name = name;
	}
	charge(known, known->queue, take(&known->run, run), take(&known->wait, waited(task)));
	known->switches = task->nvcsw + task->nivcsw;
	known->last = now;
	known->work = 0;
	return 0;
}

/* Meets the workers that exist before their first event. */
SEC("iter/task")
int look(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct worker *worker;
	struct known *known;
	__u64 key;

	if (!task) {
		state.opened = bpf_ktime_get_boot_ns();
		return 0;
	}
	key = (__u64)task;
	if (!(task->flags & PF_WQ_WORKER) || bpf_map_lookup_elem(&workers, &key))
		return 0;
	known = meet(key, task, 0);
	if (!known)
		return 0;
	worker = (void *)known->worker;
	known->work = (__u64)BPF_CORE_READ(worker, current_work);
	return 0;
}

static __always_inline void tell(struct known *known, __u32 queue, __u64 run, __u64 wait)
{
	__u32 number = state.records;
	struct record *record = bpf_map_lookup_elem(&records, &number);

	if (!record)
		return;
	record->worker = known->pid;
	record->queue = queue;
	record->run = run;
	record->wait = wait;
	state.records++;
}

/* Charges what an unfinished work used until the last switch or tick. */
static __always_inline void catch_up(struct known *known, struct task_struct *task)
{
	__u64 run, wait, work = known->work;
	struct name name = {};

	/* In this order: once the work has ended more is charged than was read. */
	run = BPF_CORE_READ(task, se.sum_exec_runtime);
	wait = waited(task);
	if (BPF_CORE_READ(task, start_boottime) != known->start) {
		known->work = 0; /* the end of its last work was missed, and it is gone */
		return;
	}
	read_name(&name, (void *)known->worker);
	if (equal(&name, &nameless) || known->work != work)
		return;
	run = take(&known->run, run);
	wait = take(&known->wait, wait);
	if (run || wait)
		tell(known, number_of(&name), run, wait);
}

static long visit(void *map, __u64 *key, struct known *known, __u64 *begun)
{
	__u64 run, wait;

	/* There is room for all that one worker may have. */
	if (state.records + 1 + CHARGES > RECORDS) {
		*begun = state.told;
		return 1;
	}
	if (known->work)
		catch_up(known, (void *)*key);
	else if (known->last + MARGIN < state.told) {
		if (*begun - known->last > FORGOTTEN)
			bpf_map_delete_elem(map, key);
		return 0;
	}
	for (int i = 0; i < CHARGES; i++) {
		struct charge *charge = &known->charges[i];
		__u32 queue;

		run = charge->run;
		wait = charge->wait;
		if (!run && !wait)
			continue;
		/* It stays this queue's until both have been fetched. */
		queue = charge->queue;
		wait = wait ? __sync_lock_test_and_set(&charge->wait, 0) : 0;
		run = run ? __sync_lock_test_and_set(&charge->run, 0) : 0;
		tell(known, queue, run, wait);
	}
	return 0;
}

/* Makes the records of what was used since the last call; returns their number. */
SEC("syscall")
int collect(void *context)
{
	__u64 begun = bpf_ktime_get_ns();

	state.records = 0;
	bpf_for_each_map_elem(&workers, visit, &begun, 0);
	state.told = begun;
	return state.records;
}
