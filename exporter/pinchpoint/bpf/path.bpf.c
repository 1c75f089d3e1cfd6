/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Who makes chosen processes wait: a history that travels with the wake-up. Each thread keeps a ring of who was
 * responsible for its progress up to the moment it was woken. The thread that wakes another passes its own ring on, with
 * its own time since it was itself woken. When a chosen thread is woken, its wait is read off the ring that it was given:
 * the parts sum up to the wait, and nothing has to be solved. The wait-for graph of wPerf (Zhou et al., OSDI '18) is the
 * idea; it is computed offline there.
 *
 * A wake-up costs 2 to 3 us, so the programs are attached for windows only (path.py). The window ends by itself after a
 * number of wake-ups. Nothing leaves the kernel but sums.
 *
 * sched_switch has its argument prev_state since Linux 5.18, bpf_task_pt_regs came with 5.15: the former decides.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

#define THREADS 8192   /* that run or are woken in a window */
#define CLASSES 4096   /* names of threads; path.py has these five numbers too */
#define CELLS 8192
#define OWN 4096       /* chosen threads */
#define CHOSEN 1024    /* chosen processes */
#define SEGMENTS 32    /* a power of 2 */
#define NAME_BYTES 16  /* TASK_COMM_LEN, include/linux/sched.h */
#define STRIDE 64      /* wake-ups of a CPU between two looks at the budget */
#define SAME_WAIT 200000 /* nanoseconds: a thread that runs for less after a time-out still waits for the same */

#define PF_KTHREAD 0x00200000 /* include/linux/sched.h */
#define IFF_LOOPBACK 8        /* include/uapi/linux/if.h */

/* Classes without a thread; those of threads begin at FIRST_CLASS. */
#define NONE 0
#define BEFORE 1  /* what happened before the window, or is older than the ring */
#define TIMER 2
#define DEVICE 3
#define NETWORK 4
#define INTERRUPT 5
#define FIRST_CLASS 8

/* enum of include/linux/interrupt.h */
#define TIMER_SOFTIRQ 1
#define NET_RX_SOFTIRQ 3
#define BLOCK_SOFTIRQ 4
#define HRTIMER_SOFTIRQ 8

/* How a thread waits. */
#define OTHERWISE 0
#define LOCK 1   /* for a mutex: afterwards it goes on with its own work */
#define SLEEP 2  /* for a time that it chose */

struct net_device {
	unsigned int flags;
} __attribute__((preserve_access_index));

struct sk_buff {
	struct net_device *dev;
} __attribute__((preserve_access_index));

struct sched_info {
	unsigned long long run_delay;
} __attribute__((preserve_access_index));

struct task_struct {
	int pid;
	int tgid;
	unsigned int flags;
	char comm[NAME_BYTES];
	struct sched_info sched_info;
} __attribute__((preserve_access_index));

struct pt_regs___x86 {
	unsigned long orig_ax;
	unsigned long si;
} __attribute__((preserve_access_index));

struct pt_regs___arm64 {
	__s32 syscallno;
	__u64 regs[31];
} __attribute__((preserve_access_index));

/* Times are nanoseconds of the monotonic clock. */
struct segment {
	__u64 start;  /* until the start of the next one */
	__u32 class;
	__u32 queued; /* for a CPU, in this time */
};

struct thread {
	__u64 epoch;    /* of the window that it belongs to */
	__u64 blocked;  /* since when; 0: it could run */
	__u64 woken;
	__u64 delay;    /* run_delay then */
	__u64 settled;  /* time up to which a chosen thread's own time is charged */
	__u64 settled_delay;
	__u64 timed_out; /* when the wait began that ended by a time-out and may go on; 0: none */
	__u64 arrived;  /* on a CPU, for the first time in the window, without having been woken in it; 0 afterwards */
	__u32 class;
	__u32 own;      /* of a chosen thread: its number in `own` + 1 */
	__u32 how;      /* it waits */
	__u32 head;     /* where the next segment comes */
	__u32 count;    /* of segments */
	__u32 unused;
	struct segment ring[SEGMENTS];
};

struct class {
	__u32 tgid;     /* 0: a kernel thread */
	__u32 unused;
	char name[NAME_BYTES];
};

struct own {
	__u32 tid;
	__u32 tgid;
	__u64 run;      /* on a CPU */
	__u64 queued;
	__u64 waits;
	__u64 blocked;  /* since when, 0: it could run */
};

struct cell {
	__u32 own;      /* number in `own` */
	__u16 class;
	__u16 via;      /* the threads that went on after it; NONE: the chosen thread */
	__u64 time;
	__u64 queued;
};

struct cpu {
	__u64 epoch;
	__u32 device;   /* inside the handler of an interrupt */
	__u32 timer;    /* inside that of a high-resolution timer */
	__u32 softirq;  /* vector + 1 */
	__u32 loopback; /* packets of this softirq that came over loopback */
	__u32 network;  /* and others */
	__u32 wakeups;
};

struct {
	__u64 epoch;    /* this and the next two: written by user space */
	__u64 start;
	__u64 budget;   /* wake-ups */
	__u64 open;     /* set by user space, cleared here when the budget is spent */
	__u64 end;      /* when it was cleared here */
	__u64 wakeups;  /* rounded down to STRIDE for each CPU */
	__u32 classes;  /* that have a number */
	__u32 cells;
	__u32 owned;    /* chosen threads that have a number */
	__u32 threads;
	__u64 lost;     /* time of waits that found no room in `cells` */
	__u64 full;     /* times that a thread, a class or a chosen thread found no room */
} state;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, THREADS);
	__type(key, __u32);
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct thread);
} empty SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, CLASSES);
	__type(key, struct class);
	__type(value, __u32);
} class_numbers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CLASSES);
	__type(key, __u32);
	__type(value, struct class);
} classes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, CHOSEN);
	__type(key, __u32);
	__type(value, __u32);
} chosen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, OWN);
	__type(key, __u32);
	__type(value, struct own);
} own SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, CELLS);
	__type(key, __u64);
	__type(value, __u32);
} cell_numbers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CELLS);
	__type(key, __u32);
	__type(value, struct cell);
} cells SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

static __always_inline struct cpu *this_cpu(void)
{
	__u32 zero = 0;
	struct cpu *cpu = bpf_map_lookup_elem(&cpus, &zero);

	if (cpu && cpu->epoch != state.epoch) {
		cpu->epoch = state.epoch; /* the last window may have ended inside an interrupt */
		cpu->device = cpu->timer = cpu->softirq = cpu->wakeups = 0;
	}
	return cpu;
}

static __always_inline __u64 delay_of(struct task_struct *task)
{
	return bpf_core_field_exists(task->sched_info.run_delay) ? task->sched_info.run_delay : 0;
}

/* Returns the class of a thread; BEFORE if there is no room. Workers of the kernel that differ by a number are one. */
static __always_inline __u32 class_of(struct task_struct *task, const char *name)
{
	struct class key = {}, *class;
	__u32 *known, number;
	int at, cut = 0;

	bpf_probe_read_kernel(key.name, NAME_BYTES, name);
	if (task->flags & PF_KTHREAD) {
#pragma unroll
		for (at = 0; at < NAME_BYTES; at++) {
			cut |= key.name[at] == '/';
			key.name[at] = cut ? 0 : key.name[at];
		}
	} else {
		key.tgid = task->tgid;
	}
	known = bpf_map_lookup_elem(&class_numbers, &key);
	if (known)
		return *known;
	number = FIRST_CLASS + __sync_fetch_and_add(&state.classes, 1);
	class = bpf_map_lookup_elem(&classes, &number);
	if (!class || bpf_map_update_elem(&class_numbers, &key, &number, BPF_ANY)) {
		state.full++;
		return BEFORE;
	}
	*class = key;
	return number;
}

/* Returns the number + 1 of a thread if it belongs to a chosen process. */
static __always_inline __u32 own_number(struct task_struct *task)
{
	__u32 tgid = task->tgid, number;
	struct own *mine;

	if (!bpf_map_lookup_elem(&chosen, &tgid))
		return 0;
	number = __sync_fetch_and_add(&state.owned, 1);
	mine = bpf_map_lookup_elem(&own, &number);
	if (!mine) {
		state.full++;
		return 0;
	}
	mine->tid = task->pid;
	mine->tgid = tgid;
	return number + 1;
}

/* Returns what is known of a thread in this window; a thread seen for the first time was `blocked` since its start. */
static __always_inline struct thread *known(struct task_struct *task, int blocked)
{
	__u32 tid = task->pid, zero = 0;
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid), *fresh;

	if (thread && thread->epoch == state.epoch) {
		if (thread->arrived) {
			/* run_delay has all of its wait for this CPU by now, also what was before the window. */
			thread->delay = thread->settled_delay = delay_of(task) - (thread->arrived - state.start);
			thread->arrived = 0;
		}
		return thread;
	}
	if (!thread) {
		fresh = bpf_map_lookup_elem(&empty, &zero);
		if (!fresh || bpf_map_update_elem(&threads, &tid, fresh, BPF_ANY)) {
			state.full++;
			return 0;
		}
		__sync_fetch_and_add(&state.threads, 1);
		thread = bpf_map_lookup_elem(&threads, &tid);
		if (!thread)
			return 0;
	}
	thread->epoch = state.epoch;
	thread->blocked = blocked ? state.start : 0;
	thread->woken = thread->settled = state.start;
	thread->delay = thread->settled_delay = delay_of(task);
	thread->timed_out = thread->arrived = 0;
	thread->how = OTHERWISE;
	thread->head = thread->count = 0;
	thread->class = class_of(task, task->comm);
	thread->own = own_number(task);
	return thread;
}

static __always_inline int is_known(struct task_struct *task)
{
	__u32 tid = task->pid;
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);

	return thread && thread->epoch == state.epoch;
}

static __always_inline struct own *own_of(struct thread *thread)
{
	__u32 number = thread->own - 1;

	return thread->own ? bpf_map_lookup_elem(&own, &number) : 0;
}

static __always_inline void push(struct thread *thread, __u64 start, __u32 class, __u64 queued)
{
	struct segment *segment = &thread->ring[thread->head & (SEGMENTS - 1)];

	segment->start = start;
	segment->class = class;
	segment->queued = queued < 0xffffffff ? queued : 0xffffffff;
	thread->head = (thread->head + 1) & (SEGMENTS - 1);
	if (thread->count < SEGMENTS)
		thread->count++;
}

static __always_inline void charge(struct thread *thread, __u32 class, __u32 via, __u64 time, __u64 queued)
{
	__u64 key = (__u64)(thread->own - 1) << 32 | class << 16 | via;
	__u32 *there = bpf_map_lookup_elem(&cell_numbers, &key), number;
	struct cell *cell;

	if (there) {
		number = *there;
	} else {
		number = __sync_fetch_and_add(&state.cells, 1);
		if (number >= CELLS || bpf_map_update_elem(&cell_numbers, &key, &number, BPF_ANY)) {
			__sync_fetch_and_add(&state.lost, time);
			return;
		}
	}
	cell = bpf_map_lookup_elem(&cells, &number);
	if (!cell)
		return;
	cell->own = thread->own - 1;
	cell->class = class;
	cell->via = via;
	cell->time += time;
	cell->queued += queued;
}

struct division {
	struct thread *thread;
	__u64 since;
	__u64 end;
	__u32 via;
};

static long divide_segment(__u32 at, struct division *rest)
{
	struct thread *thread = rest->thread;
	struct segment *segment;
	__u64 start, queued, span;

	if (at >= thread->count || rest->end <= rest->since)
		return 1;
	segment = &thread->ring[(thread->head - 1 - at) & (SEGMENTS - 1)];
	start = segment->start > rest->since ? segment->start : rest->since;
	if (rest->end <= start)
		return 0; /* it took no time */
	span = rest->end - segment->start;
	queued = segment->queued < span ? segment->queued : span;
	charge(thread, segment->class, rest->via, rest->end - start, queued * (rest->end - start) / span);
	if (segment->class >= FIRST_CLASS)
		rest->via = segment->class; /* a thread that slept goes on by itself */
	rest->end = start;
	return 0;
}

/* Divides the wait of a chosen thread among those who were responsible for it, the last one first. */
static __always_inline void divide(struct thread *thread, __u64 since, __u64 now)
{
	struct division rest = {.thread = thread, .since = since, .end = now, .via = NONE};

	bpf_loop(SEGMENTS, divide_segment, &rest, 0);
	if (rest.end > since)
		charge(thread, BEFORE, rest.via, rest.end - since, 0);
}

static __always_inline __u32 how_it_waits(struct task_struct *task)
{
	unsigned long number, operation;
	long regs;

	if (task->flags & PF_KTHREAD)
		return OTHERWISE;
	regs = bpf_task_pt_regs(task);
	if (!regs)
		return OTHERWISE;
	if (bpf_core_field_exists(((struct pt_regs___x86 *)0)->orig_ax)) {
		number = BPF_CORE_READ((struct pt_regs___x86 *)regs, orig_ax);
		operation = BPF_CORE_READ((struct pt_regs___x86 *)regs, si);
		if (number == 35 || number == 230) /* nanosleep, clock_nanosleep */
			return SLEEP;
		if (number != 202) /* futex */
			return OTHERWISE;
	} else if (bpf_core_field_exists(((struct pt_regs___arm64 *)0)->syscallno)) {
		number = BPF_CORE_READ((struct pt_regs___arm64 *)regs, syscallno);
		operation = BPF_CORE_READ((struct pt_regs___arm64 *)regs, regs[1]);
		if (number == 101 || number == 115)
			return SLEEP;
		if (number != 98)
			return OTHERWISE;
	} else {
		return OTHERWISE;
	}
	/*
	 * FUTEX_WAIT, FUTEX_LOCK_PI and FUTEX_LOCK_PI2 without flags: mutexes of glibc (lll_lock_wait). Its condition
	 * variables and semaphores wait by FUTEX_WAIT_BITSET.
	 */
	operation &= 127;
	return operation == 0 || operation == 6 || operation == 13 ? LOCK : OTHERWISE;
}

/* Charges a thread's own time up to now, if it is chosen. */
static __always_inline void settle(struct thread *thread, struct own *mine, __u64 now, __u64 delay)
{
	__u64 queued = delay - thread->settled_delay, span = now - thread->settled;

	if (mine && now > thread->settled) {
		queued = queued < span ? queued : span;
		mine->run += span - queued;
		mine->queued += queued;
	}
	thread->settled = now;
	thread->settled_delay = delay;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched, int preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	struct thread *thread;
	struct own *mine;
	__u64 now;

	if (!state.open)
		return 0;
	now = bpf_ktime_get_ns();
	if (next->pid && !is_known(next)) {
		thread = known(next, 0);
		if (thread)
			thread->arrived = now;
	}
	thread = prev->pid ? known(prev, 0) : 0;
	if (!thread)
		return 0;
	mine = own_of(thread);
	settle(thread, mine, now, delay_of(prev));
	if (preempt || !prev_state)
		return 0;
	thread->blocked = now;
	thread->how = how_it_waits(prev);
	if (!mine)
		return 0;
	if (thread->timed_out) {
		if (now - thread->woken < SAME_WAIT)
			thread->blocked = thread->timed_out;
		else
			charge(thread, TIMER, NONE, thread->woken - thread->timed_out, 0);
		thread->timed_out = 0;
	}
	mine->blocked = thread->blocked;
	return 0;
}

/* Returns who wakes: the class of an interrupt, or NONE for the current thread. */
static __always_inline __u32 interrupt(struct cpu *cpu, struct task_struct *current)
{
	if (cpu->timer)
		return TIMER;
	if (cpu->device)
		return DEVICE;
	switch (cpu->softirq) {
	case 0:
		return NONE;
	case TIMER_SOFTIRQ + 1:
	case HRTIMER_SOFTIRQ + 1:
		return TIMER;
	case BLOCK_SOFTIRQ + 1:
		return DEVICE;
	case NET_RX_SOFTIRQ + 1:
		/* What is sent over loopback is received at once, by the sender (__local_bh_enable_ip, kernel/softirq.c). */
		if (cpu->loopback && !cpu->network && !(current->flags & PF_KTHREAD))
			return NONE;
		return NETWORK;
	}
	return INTERRUPT;
}

struct handover {
	struct thread *to;
	struct thread *from;
};

/* Passes on what the holder of a lock did after another thread began to wait for it; the oldest segment comes first. */
static long pass_segment(__u32 at, struct handover *pair)
{
	struct thread *to = pair->to, *from = pair->from;
	__u32 back = SEGMENTS - at;
	struct segment *segment;
	__u64 start, end;

	if (back > from->count)
		return 0;
	segment = &from->ring[(from->head - back) & (SEGMENTS - 1)];
	start = segment->start;
	end = back == 1 ? from->woken : from->ring[(from->head - back + 1) & (SEGMENTS - 1)].start;
	if (end <= to->blocked || end <= start)
		return 0;
	if (start >= to->blocked)
		push(to, start, segment->class, segment->queued);
	else
		push(to, to->blocked, segment->class, (__u64)segment->queued * (end - to->blocked) / (end - start));
	return 0;
}

/* Passes the waker's history on. */
static __always_inline void pass(struct thread *to, struct thread *from, struct task_struct *waker, __u64 now)
{
	struct handover pair = {.to = to, .from = from};
	__u64 queued = delay_of(waker) - from->delay;

	if (to->how != LOCK) {
		__builtin_memcpy(to->ring, from->ring, sizeof(to->ring));
		to->head = from->head;
		to->count = from->count;
		push(to, from->woken, from->class, queued);
		return;
	}
	push(to, to->woken, to->class, to->settled_delay - to->delay);
	bpf_loop(SEGMENTS, pass_segment, &pair, 0);
	if (from->woken >= to->blocked)
		push(to, from->woken, from->class, queued);
	else if (now > from->woken)
		push(to, to->blocked, from->class, queued * (now - to->blocked) / (now - from->woken));
}

static __always_inline void count_wakeup(struct cpu *cpu, __u64 now)
{
	if (++cpu->wakeups % STRIDE)
		return;
	if (__sync_fetch_and_add(&state.wakeups, STRIDE) + STRIDE >= state.budget && state.open) {
		state.end = now;
		state.open = 0;
	}
}

/* It runs on the CPU of the waker; sched_wakeup may run on another one (ttwu_queue_wakelist, kernel/sched/core.c). */
SEC("tp_btf/sched_waking")
int BPF_PROG(waking, struct task_struct *task)
{
	struct task_struct *current = (struct task_struct *)bpf_get_current_task_btf();
	struct cpu *cpu = this_cpu();
	struct thread *thread, *waker;
	struct own *mine;
	__u32 by;
	__u64 now;

	if (!state.open || !cpu)
		return 0;
	thread = known(task, 1);
	if (!thread || !thread->blocked)
		return 0;
	now = bpf_ktime_get_ns();
	count_wakeup(cpu, now);
	by = interrupt(cpu, current);
	waker = by == NONE && current->pid && current->pid != task->pid ? known(current, 0) : 0;
	mine = own_of(thread);
	if (waker) {
		pass(thread, waker, current, now);
		if (mine)
			divide(thread, thread->blocked, now);
	} else {
		by = by == NONE ? INTERRUPT : by; /* the idle thread wakes in interrupts only */
		push(thread, thread->woken, thread->class, thread->settled_delay - thread->delay);
		push(thread, thread->blocked, by, 0);
		if (mine && by == TIMER && thread->how != SLEEP)
			thread->timed_out = thread->blocked; /* whether it waits on is known when it blocks again */
		else if (mine)
			charge(thread, by, NONE, now - thread->blocked, 0);
	}
	if (mine) {
		mine->waits++;
		mine->blocked = 0;
	}
	thread->woken = thread->settled = now;
	thread->delay = thread->settled_delay = delay_of(task);
	thread->blocked = 0;
	return 0;
}

/* A new thread has the history of the one that started it. */
SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(begun, struct task_struct *task)
{
	struct task_struct *current = (struct task_struct *)bpf_get_current_task_btf();
	struct thread *thread, *parent;
	__u64 now;

	if (!state.open)
		return 0;
	thread = known(task, 0);
	parent = known(current, 0);
	if (!thread || !parent)
		return 0;
	now = bpf_ktime_get_ns();
	__builtin_memcpy(thread->ring, parent->ring, sizeof(thread->ring));
	thread->head = parent->head;
	thread->count = parent->count;
	push(thread, parent->woken, parent->class, delay_of(current) - parent->delay);
	thread->class = class_of(task, task->comm); /* its number may have been another thread's */
	thread->own = own_number(task);
	thread->blocked = thread->timed_out = 0;
	thread->woken = thread->settled = now;
	thread->delay = thread->settled_delay = delay_of(task);
	return 0;
}

SEC("tp_btf/task_rename")
int BPF_PROG(renamed, struct task_struct *task, const char *name)
{
	struct thread *thread = state.open ? known(task, 0) : 0;
	char fresh[NAME_BYTES] = {};

	/* It may be longer than what the kernel keeps (__set_task_comm, fs/exec.c). */
	if (thread && bpf_probe_read_kernel_str(fresh, NAME_BYTES, name) > 0)
		thread->class = class_of(task, fresh);
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(device_begins)
{
	struct cpu *cpu = this_cpu();

	if (cpu)
		cpu->device = 1;
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(device_ends)
{
	struct cpu *cpu = this_cpu();

	if (cpu)
		cpu->device = 0;
	return 0;
}

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(timer_begins)
{
	struct cpu *cpu = this_cpu();

	if (cpu)
		cpu->timer = 1;
	return 0;
}

SEC("tp_btf/hrtimer_expire_exit")
int BPF_PROG(timer_ends)
{
	struct cpu *cpu = this_cpu();

	if (cpu)
		cpu->timer = 0;
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_begins, unsigned int vector)
{
	struct cpu *cpu = this_cpu();

	if (cpu) {
		cpu->softirq = vector + 1;
		cpu->loopback = cpu->network = 0;
	}
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_ends)
{
	struct cpu *cpu = this_cpu();

	if (cpu)
		cpu->softirq = 0;
	return 0;
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(received, struct sk_buff *skb)
{
	struct cpu *cpu = this_cpu();

	if (!cpu)
		return 0;
	if (skb->dev->flags & IFF_LOOPBACK)
		cpu->loopback = 1;
	else
		cpu->network = 1;
	return 0;
}
