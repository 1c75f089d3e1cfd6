/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * What chosen threads do with their time, by the stacks that they are blocked in: a timer in the kernel looks at them, and
 * user space reads sums now and then. Only blocked threads that ran since their last look have another stack.
 *
 * A program at sched_switch would be exact, but it runs at every switch of the host, and a stack there takes 3 us
 * (bench/waits_cost.py). A look costs the same whatever the threads do.
 *
 * bpf_timer came with Linux 5.15, bpf_task_from_pid with 6.2: the latter decides. The kernel stops the timer when user
 * space has closed the map (array_map_free_timers_wq, kernel/bpf/arraymap.c).
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "GPL";

#define THREADS 2048   /* MAX_WATCHED_THREADS of waits.py */
#define PROCESSES 2048 /* MAX_WATCHED_PROCESSES */
#define STACKS 1024
#define CELLS 8192
#define FRAMES 64      /* MAX_STACK_TRACE_DEPTH, fs/proc/base.c */
#define STACKS_PER_LOOK 16 /* of trusted users' threads, and as many of others' */
#define LONGEST_GAP 2000000000 /* nanoseconds between two looks from which the time between them is not counted */

#define PARKED 1 /* of kinds */
#define WAITS 2

#define NOTHING 0   /* stacks: nothing is known, which is no wait */
#define UNREADABLE 1
#define FIRST_STACK 2

#define DOUBT 1 /* of cells: time of a process that is parked time if the stack turns out to be a parked one's */
#define LOOKS 2 /* looks at the main thread of an MPI rank */

#define RANK 1  /* of threads: the main thread of an MPI rank, which may spin */
#define UNTRUSTED 2

struct sched_info {
	unsigned long long run_delay;
} __attribute__((preserve_access_index));

struct sched_entity {
	__u64 sum_exec_runtime;
} __attribute__((preserve_access_index));

struct task_struct {
	unsigned int __state;
	int on_cpu;
	int exit_state;
	int tgid;
	unsigned int in_iowait : 1;
	__u64 start_boottime;
	struct sched_entity se;
	struct sched_info sched_info;
} __attribute__((preserve_access_index));

extern struct task_struct *bpf_task_from_pid(int pid) __ksym;
extern void bpf_task_release(struct task_struct *task) __ksym;

/* Times are nanoseconds. */
struct thread {
	__u32 tid;     /* 0: none. This and the next three are written by user space */
	__u32 tgid;
	__u32 process; /* its number in `processes` */
	__u32 flags;
	__u64 task;    /* its address, 0 before it was met: with its start, its identity */
	__u64 start;
	__u64 run;     /* on a CPU (sum_exec_runtime), as far as it is charged */
	__u64 wait;    /* runnable without a CPU (run_delay), as far as it is charged */
	__u32 stack;   /* that it was blocked in last */
	__u32 cell;    /* of its process and that stack, by number + 1 */
	__u32 unsure;  /* it ran since its stack was read */
	__u32 queued;  /* it had no CPU at the last look, although it could run */
};

struct process {
	__u64 span;    /* that was looked at */
	__u64 run;
	__u64 wait;
	__u64 parked;  /* time in which none of its threads did anything */
	__u64 busy;    /* run and wait of the main thread of a rank */
	__u64 active;  /* this and the next three: of the look in progress */
	__u64 unseen;  /* of threads that were never seen waiting: they may wait for anything */
	__u32 doubt;   /* a stack of yet unknown kind */
	__u32 unused;
};

struct cell {
	__u32 process;
	__u16 stack;
	__u16 kind;    /* 0, DOUBT or LOOKS */
	__u64 time;
	__u64 looks;
};

struct frames {
	__u64 address[FRAMES]; /* innermost first, then 0 */
};

struct {
	__u32 threads;   /* written by user space: one more than the highest number of a thread */
	__u32 processes; /* the same */
	__u64 period;    /* between two looks, at random 3/4 to 5/4 of it; 0: no more looks */
	__u64 since;     /* boot time of the last listing of threads: one started later is new, and all that it used */
	__u64 last;      /* time of the last look, 0 before the first */
	__u64 elapsed;   /* since the look before */
	__u64 looks;
	__u64 took;      /* by all looks */
	__u32 stacks;    /* that have a number */
	__u32 cells;     /* the same */
	__u32 full;      /* a stack or a cell found no room */
	__u32 from;      /* thread at which a look begins */
	__u32 left[2];   /* stacks that the look in progress may still read */
	struct frames seen; /* of the look in progress */
} state;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, THREADS);
	__type(key, __u32);
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, PROCESSES);
	__type(key, __u32);
	__type(value, struct process);
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, STACKS);
	__type(key, __u32);
	__type(value, struct frames);
} stacks SEC(".maps");

/* What a stack means; 0 until user space says it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, STACKS);
	__type(key, __u32);
	__type(value, __u64);
} kinds SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CELLS);
	__type(key, __u32);
	__type(value, struct cell);
} cells SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, STACKS);
	__type(key, struct frames);
	__type(value, __u32);
} stack_numbers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, CELLS);
	__type(key, __u64);
	__type(value, __u32);
} cell_numbers SEC(".maps");

struct clock {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct clock);
} clocks SEC(".maps");

/* Returns the number of a cell + 1; 0 if there is no room. */
static __always_inline __u32 cell_number(__u32 process, __u32 stack, __u32 kind)
{
	__u64 key = (__u64)process << 32 | kind << 16 | stack;
	__u32 *known = bpf_map_lookup_elem(&cell_numbers, &key), number;
	struct cell *cell;

	if (known)
		return *known + 1;
	number = state.cells;
	cell = bpf_map_lookup_elem(&cells, &number);
	if (!cell || bpf_map_update_elem(&cell_numbers, &key, &number, BPF_ANY)) {
		state.full = 1;
		return 0;
	}
	cell->process = process;
	cell->stack = stack;
	cell->kind = kind;
	state.cells = number + 1;
	return number + 1;
}

static __always_inline void charge(__u32 number, __u64 time)
{
	struct cell *cell;

	number--;
	cell = bpf_map_lookup_elem(&cells, &number);
	if (!cell)
		return;
	cell->time += time;
	cell->looks++;
}

/* Returns the number of the stack that was read. */
static __always_inline __u32 stack_number(void)
{
	__u32 *known = bpf_map_lookup_elem(&stack_numbers, &state.seen), number;
	struct frames *frames;

	if (known)
		return *known;
	number = state.stacks ? state.stacks : FIRST_STACK;
	frames = bpf_map_lookup_elem(&stacks, &number);
	if (!frames || bpf_map_update_elem(&stack_numbers, &state.seen, &number, BPF_ANY)) {
		state.full = 1;
		return UNREADABLE;
	}
	__builtin_memcpy(frames, &state.seen, sizeof(state.seen));
	state.stacks = number + 1;
	return number;
}

/* Reads the stack of a thread that is not on a CPU; returns its number, NOTHING if it was on one by then. */
static __always_inline __u32 read_stack(struct thread *thread, struct task_struct *task)
{
	__u32 *left = &state.left[thread->flags & UNTRUSTED ? 1 : 0];
	long size;

	if (!*left)
		return NOTHING;
	--*left;
	size = bpf_get_task_stack(task, &state.seen, sizeof(state.seen), 0);
	if (size < 0)
		return UNREADABLE;
	return size ? stack_number() : NOTHING;
}

/* Counts the stacks of a rank's main thread: they show whether it spins. */
static __always_inline void looked_at(struct thread *thread, __u32 stack)
{
	if (thread->flags & RANK && stack >= FIRST_STACK)
		charge(cell_number(thread->process, stack, LOOKS), 0);
}

static __always_inline void divide(struct thread *thread, struct process *process, struct task_struct *task)
{
	__u64 run = task->se.sum_exec_runtime, wait = 0, left = state.elapsed, ran, waited, *kind;
	__u32 blocked = task->__state, on_cpu = task->on_cpu, stack;
	int queued = !blocked && !on_cpu;
	/*
	 * Until it runs, a thread whose request is done has the stack that it waited in (io_schedule, kernel/sched/core.c).
	 * The interrupt that wakes an idle CPU for a look often brings the end of a request too: without this, threads
	 * that wait for a disk would seldom be seen waiting.
	 */
	int woken = queued && BPF_CORE_READ_BITFIELD(task, in_iowait);

	if (bpf_core_field_exists(task->sched_info.run_delay))
		wait = task->sched_info.run_delay;
	/* What does not fit is left for the next looks: what a thread used before it was met, and what lags by a tick. */
	ran = run > thread->run ? run - thread->run : 0;
	waited = wait > thread->wait ? wait - thread->wait : 0;
	if (ran || waited)
		thread->unsure = 1;
	else if (queued && thread->queued) {
		/* The kernel counts this wait when it is over (sched_info_arrive, kernel/sched/stats.h). */
		waited = left;
		thread->unsure = 1;
	}
	thread->queued = queued;
	ran = ran < left ? ran : left;
	left -= ran;
	waited = waited < left ? waited : left;
	left -= waited;
	thread->run += ran;
	thread->wait += waited;
	process->run += ran;
	process->wait += waited;
	process->active += ran + waited;
	if (thread->flags & RANK) {
		process->busy += ran + waited;
		if (queued)
			looked_at(thread, read_stack(thread, task));
	}
	if (task->exit_state) {
		thread->stack = NOTHING;
		thread->cell = 0;
	} else if ((blocked && !on_cpu) || woken) {
		/* It ran to get here, so nothing that it waited for is still uncounted. */
		if (!woken)
			thread->wait = thread->wait < wait ? thread->wait : wait;
		if (thread->unsure) {
			stack = read_stack(thread, task);
			if (stack != NOTHING) {
				thread->unsure = 0;
				looked_at(thread, stack);
				if (stack != thread->stack)
					thread->cell = 0;
				thread->stack = stack;
			}
		}
	}
	if (thread->stack == NOTHING && !task->exit_state)
		process->unseen += left;
	if (!left || thread->stack == NOTHING)
		return;
	if (!thread->cell)
		thread->cell = cell_number(thread->process, thread->stack, 0);
	charge(thread->cell, left);
	stack = thread->stack;
	kind = bpf_map_lookup_elem(&kinds, &stack);
	if (kind && *kind == WAITS)
		process->active += left;
	else if (kind && !*kind)
		process->doubt = stack;
}

static long look_at(__u32 index, void *context)
{
	__u32 number = state.from + index;
	struct process *process;
	struct task_struct *task;
	struct thread *thread;
	__u64 since = state.since;

	if (number >= state.threads)
		number -= state.threads;
	thread = bpf_map_lookup_elem(&threads, &number);
	if (!thread || !thread->tid)
		return 0;
	number = thread->process;
	process = bpf_map_lookup_elem(&processes, &number);
	task = bpf_task_from_pid(thread->tid);
	if (!task)
		return 0;
	if (!process || task->tgid != thread->tgid) {
		bpf_task_release(task);
		return 0; /* its number is another thread's now */
	}
	if (thread->task != (__u64)task || thread->start != task->start_boottime || !state.elapsed) {
		/* Met, or met again: a thread that calls exec takes its leader's number (de_thread, fs/exec.c). */
		if (thread->task || !since || task->start_boottime <= since) {
			thread->run = task->se.sum_exec_runtime;
			if (bpf_core_field_exists(task->sched_info.run_delay))
				thread->wait = task->sched_info.run_delay;
		}
		thread->task = (__u64)task;
		thread->start = task->start_boottime;
		thread->unsure = 1;
		thread->queued = 0;
	}
	if (state.elapsed)
		divide(thread, process, task);
	bpf_task_release(task);
	return 0;
}

static long end_look(__u32 number, void *context)
{
	struct process *process = bpf_map_lookup_elem(&processes, &number);
	__u64 elapsed = state.elapsed, parked, unseen;

	if (!process)
		return 1;
	parked = elapsed > process->active ? elapsed - process->active : 0;
	unseen = parked < process->unseen ? parked : process->unseen;
	parked -= unseen;
	elapsed -= unseen;
	if (process->doubt)
		charge(cell_number(number, process->doubt, DOUBT), parked);
	else
		process->parked += parked;
	process->span += elapsed;
	process->active = 0;
	process->unseen = 0;
	process->doubt = 0;
	return 0;
}

static int tick(void *map, int *key, struct clock *clock)
{
	__u64 now = bpf_ktime_get_ns(), last = state.last, period = state.period;

	if (!period)
		return 0;
	state.elapsed = last && now - last < LONGEST_GAP ? now - last : 0;
	state.last = now;
	state.left[0] = state.left[1] = STACKS_PER_LOOK;
	/* With many threads each look reads the stacks of some: they take turns. */
	state.from = state.from + STACKS_PER_LOOK < state.threads ? state.from + STACKS_PER_LOOK : 0;
	bpf_loop(state.threads, look_at, 0, 0);
	if (state.elapsed)
		bpf_loop(state.processes, end_look, 0, 0);
	state.looks++;
	bpf_timer_start(&clock->timer, period * 3 / 4 + bpf_get_prandom_u32() % (period / 2 + 1), 0);
	state.took += bpf_ktime_get_ns() - now;
	return 0;
}

/* Looks from now on; returns 0, or a negative number. */
SEC("syscall")
int begin(void *context)
{
	__u32 zero = 0;
	struct clock *clock = bpf_map_lookup_elem(&clocks, &zero);

	if (!clock)
		return -1;
	state.last = 0;
	bpf_timer_init(&clock->timer, &clocks, 1); /* CLOCK_MONOTONIC; it fails if that was done */
	bpf_timer_set_callback(&clock->timer, tick);
	return bpf_timer_start(&clock->timer, 0, 0);
}
