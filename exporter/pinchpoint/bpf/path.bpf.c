/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Who makes chosen processes wait: a history that travels with the wake-up. Each thread keeps a ring of who was
 * responsible for its progress up to the moment it was woken. The thread that wakes another passes its own ring on, with
 * its own time since it was itself woken. When a chosen thread is woken, its wait is read off the ring that it was given:
 * the parts sum up to the wait, and nothing has to be solved. The wait-for graph of wPerf (Zhou et al., OSDI '18) is the
 * idea; it is computed offline there.
 *
 * A history also waits at a TCP connection to another host: who is woken by the answer has that of who sent the request,
 * with the time until the answer as a part of the peer. The same on the peer's side: what it did from the arrival of the
 * request until it sends the answer is summed up for its end of the connection.
 *
 * A wake-up costs about a microsecond, so the programs are attached for windows only (path.py). The window ends by itself after a
 * number of wake-ups. Nothing leaves the kernel but sums.
 *
 * sched_switch has its argument prev_state since Linux 5.18, bpf_task_pt_regs came with 5.15: the former decides.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_endian.h>
#include "pids.h"

char LICENSE[] SEC("license") = "GPL";

#define THREADS 8192   /* that run or are woken in a window */
#define CLASSES 4096   /* names of threads; path.py has these numbers too */
#define CELLS 8192
#define OWN 4096       /* chosen threads, and ends of connections */
#define CHOSEN 1024    /* chosen processes */
#define CONNECTIONS 2048 /* TCP connections to other hosts in a window */
#define LISTENING 4096 /* ports */
#define ENDPOINTS 1024 /* ends of connections that become classes */
#define SEGMENTS 32    /* a power of 2 */
#define NAME_BYTES 16  /* TASK_COMM_LEN, include/linux/sched.h */
#define STRIDE 64      /* wake-ups of a CPU between two looks at the budget */
#define PACKETS 8      /* packets that cost as much as a wake-up */
#define SAME_WAIT 200000 /* nanoseconds: a thread that runs for less after a time-out still waits for the same */

#define PF_KTHREAD 0x00200000 /* include/linux/sched.h */
#define IFF_LOOPBACK 8        /* include/uapi/linux/if.h */
#define AF_INET 2             /* include/linux/socket.h */
#define AF_INET6 10
#define IPPROTO_TCP 6         /* include/uapi/linux/in.h */
#define TCP_ESTABLISHED 1     /* include/net/tcp_states.h */

/* Classes without a thread; those of threads and of ends of connections begin at FIRST_CLASS. */
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

/* `tgid` of classes that are the end of a connection: of a peer, or of this host. */
#define PEER 0xffffffff
#define HERE 0xfffffffe
#define OUTSIDE 0xfffffffd /* `tgid` of a process that is not in the exporter's PID namespace */

/* How a thread waits. */
#define OTHERWISE 0
#define LOCK 1   /* for a mutex: afterwards it goes on with its own work */
#define SLEEP 2  /* for a time that it chose */

/* What a thread does that is seen for the first time, and did since the start of the window. */
#define BLOCKED 0
#define READY 1
#define RUNNING 2

struct net {
	struct ns_common ns;
} __attribute__((preserve_access_index));

typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	unsigned int flags;
} __attribute__((preserve_access_index));

struct in6_addr {
	__u8 bytes[16];
};

struct sock_common {
	__u32 skc_daddr;
	__u32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
} __attribute__((preserve_access_index));

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
} __attribute__((preserve_access_index));

struct tcp_sock {
	__u32 write_seq;
} __attribute__((preserve_access_index));

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	unsigned int len;
	__u16 transport_header;
	unsigned char *head;
	unsigned char *data;
} __attribute__((preserve_access_index));

struct sched_info {
	unsigned long long run_delay;
} __attribute__((preserve_access_index));

struct task_struct {
	int pid;
	int tgid;
	struct pid *thread_pid;
	struct task_struct *group_leader;
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
	__u32 queued; /* could run and did not, in this time */
};

struct history {
	__u32 head;     /* where the next segment comes */
	__u32 count;    /* of segments */
	struct segment ring[SEGMENTS];
};

struct thread {
	__u64 epoch;    /* of the window that it belongs to */
	__u64 blocked;  /* since when; 0: it could run */
	__u64 woken;
	__u64 settled;  /* when it was woken or put on a CPU or off it, whatever came last */
	__u64 waited;   /* since it was woken: could run and did not */
	__u64 unsettled; /* what of that is in no sum yet, of a chosen thread, */
	__u64 overlap;  /* for how long of this its waker went on, */
	__u64 delay;    /* and run_delay when it began */
	__u64 timed_out; /* when the wait began that ended by a time-out and may go on; 0: none */
	__u32 class;
	__u32 own;      /* of a chosen thread: its number in `own` + 1 */
	__u32 how;      /* it waits */
	__u32 running;
	__u32 waker;    /* its tid, until the thread that it woke runs; 0: none */
	__u32 waker_class;
	struct history past;
};

/* To another host. */
struct connection {
	__u64 epoch;
	__u64 asked;    /* when the first of the requests was sent that have no answer; 0: none */
	__u64 arrived;  /* when the first of the requests came that this host has not answered; 0: none */
	__u32 ports;    /* of both ends: another connection may get the socket's memory */
	__u32 written;  /* write_seq of the last packet that was sent */
	__u32 peer;     /* class of the other end, if it is the server's */
	__u32 own_peer; /* its number in `own` + 1, */
	__u32 own_here; /* or that of this end */
	__u32 unused;
	struct history past; /* of who sent that request */
};

struct class {
	__u32 tgid;     /* 0: a kernel thread; PEER, HERE */
	__u32 port;     /* of an end of a connection */
	char name[NAME_BYTES]; /* or an IPv6 address */
};

/* What a thread did, or how long answers took: of a peer, or of this host. */
struct own {
	__u32 tid;      /* 0: the end of a connection */
	__u32 tgid;     /* of it: the class */
	__u64 run;      /* on a CPU; of a peer: from requests to their answers */
	__u64 queued;
	__u64 waits;    /* or answers */
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
	__u32 packets;
	__u64 sock;     /* whose packet is received, 0: not one of an established TCP connection */
	__u64 asked;    /* when the request was sent that the packet answers first, 0: none */
};

struct {
	__u64 epoch;    /* this and the next two: written by user space */
	__u64 start;
	__u64 budget;   /* wake-ups, or the packets that cost as much */
	__u64 open;     /* set by user space, cleared here when the budget is spent */
	__u64 end;      /* when it was cleared here */
	__u64 wakeups;  /* rounded down to STRIDE for each CPU */
	__u32 classes;  /* that have a number */
	__u32 cells;
	__u32 owned;    /* chosen threads that have a number */
	__u32 threads;
	__u64 lost;     /* time of waits that found no room in `cells` */
	__u64 full;     /* times that a thread, a class or a chosen thread found no room */
	__u32 endpoints; /* classes that are ends of connections */
	__u32 namespace; /* of PIDs, in which processes have their numbers, 0: the first; written by user space */
	__u64 spent;    /* of the budget */
	__u32 network;  /* namespace whose ports are in `listening`: written by user space */
	__u32 level;    /* of the PID namespace; 0 until it is seen */
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
	__uint(max_entries, LISTENING);
	__type(key, __u32); /* port */
	__type(value, __u32);
} listening SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, CONNECTIONS);
	__type(key, __u64); /* the address of its socket */
	__type(value, struct connection);
} connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct connection);
} unconnected SEC(".maps");

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
		cpu->device = cpu->timer = cpu->softirq = cpu->wakeups = cpu->packets = 0;
		cpu->sock = cpu->asked = 0;
	}
	return cpu;
}

static __always_inline __u64 delay_of(struct task_struct *task)
{
	return bpf_core_field_exists(task->sched_info.run_delay) ? task->sched_info.run_delay : 0;
}

/* Returns the number of a thread's process in the exporter's PID namespace. */
static __always_inline __u32 tgid_of(struct task_struct *task)
{
	__u32 number;

	if (!state.namespace)
		return task->tgid;
	number = number_in_namespace(BPF_CORE_READ(task, group_leader, thread_pid), state.namespace, &state.level);
	return number ? number : OUTSIDE;
}

/* Returns the number of a class; 0 if there is no room. */
static __always_inline __u32 number_of(struct class *key)
{
	__u32 *known = bpf_map_lookup_elem(&class_numbers, key), number;
	struct class *class;

	if (known)
		return *known;
	number = FIRST_CLASS + __sync_fetch_and_add(&state.classes, 1);
	class = bpf_map_lookup_elem(&classes, &number);
	if (!class || bpf_map_update_elem(&class_numbers, key, &number, BPF_ANY)) {
		state.full++;
		return 0;
	}
	*class = *key;
	return number;
}

/* Returns the class of a thread; BEFORE if there is no room. Workers of the kernel that differ by a number are one. */
static __always_inline __u32 class_of(struct task_struct *task, const char *name)
{
	struct class key = {};
	__u32 number;
	int at, cut = 0;

	bpf_probe_read_kernel(key.name, NAME_BYTES, name);
	if (task->flags & PF_KTHREAD) {
#pragma unroll
		for (at = 0; at < NAME_BYTES; at++) {
			cut |= key.name[at] == '/';
			key.name[at] = cut ? 0 : key.name[at];
		}
	} else {
		key.tgid = tgid_of(task);
	}
	number = number_of(&key);
	return number ? number : BEFORE;
}

/*
 * Returns which end of a connection is the server's. Somebody listens at its port. That is known of the exporter's
 * network namespace; in others it is the lower port of the two.
 */
static __always_inline __u32 server_of(struct sock *sk)
{
	struct sock_common *ends = &sk->__sk_common;
	__u32 here = BPF_CORE_READ(ends, skc_num), peer = bpf_ntohs(BPF_CORE_READ(ends, skc_dport));

	if (BPF_CORE_READ(ends, skc_net.net, ns.inum) == state.network)
		return bpf_map_lookup_elem(&listening, &here) ? HERE : PEER;
	return here < peer ? HERE : PEER;
}

/* Returns the class of one end of a connection; NETWORK if there is no room. */
static __always_inline __u32 class_of_end(struct sock *sk, __u32 side)
{
	struct sock_common *ends = &sk->__sk_common;
	struct class key = {.tgid = side};
	__u32 number;

	key.port = side == PEER ? bpf_ntohs(BPF_CORE_READ(ends, skc_dport)) : BPF_CORE_READ(ends, skc_num);
	if (BPF_CORE_READ(ends, skc_family) == AF_INET6) {
		if (side == PEER)
			bpf_core_read(key.name, NAME_BYTES, &ends->skc_v6_daddr);
		else
			bpf_core_read(key.name, NAME_BYTES, &ends->skc_v6_rcv_saddr);
	} else {
		key.name[10] = key.name[11] = 0xff;
		if (side == PEER)
			bpf_core_read(&key.name[12], 4, &ends->skc_daddr);
		else
			bpf_core_read(&key.name[12], 4, &ends->skc_rcv_saddr);
	}
	if (bpf_map_lookup_elem(&class_numbers, &key))
		return number_of(&key);
	if (state.endpoints >= ENDPOINTS)
		return NETWORK;
	__sync_fetch_and_add(&state.endpoints, 1);
	number = number_of(&key);
	return number ? number : NETWORK;
}

static __always_inline __u32 own_end(__u32 class)
{
	__u32 number;
	struct own *end;

	if (class == NETWORK || state.owned >= OWN / 2)
		return 0;
	number = __sync_fetch_and_add(&state.owned, 1);
	end = bpf_map_lookup_elem(&own, &number);
	if (!end) {
		state.full++;
		return 0;
	}
	end->tgid = class;
	return number + 1;
}

/* Returns what is known of a connection in this window. */
static __always_inline struct connection *connected(struct sock *sk)
{
	__u64 key = (__u64)sk;
	struct connection *known = bpf_map_lookup_elem(&connections, &key), *fresh;
	struct sock_common *ends = &sk->__sk_common;
	__u32 ports = BPF_CORE_READ(ends, skc_num) << 16 | BPF_CORE_READ(ends, skc_dport), zero = 0;

	if (known && known->epoch == state.epoch && known->ports == ports)
		return known;
	if (!known) {
		fresh = bpf_map_lookup_elem(&unconnected, &zero);
		if (!fresh || bpf_map_update_elem(&connections, &key, fresh, BPF_ANY))
			return 0;
		known = bpf_map_lookup_elem(&connections, &key);
		if (!known)
			return 0;
	}
	known->epoch = state.epoch;
	known->asked = known->arrived = 0;
	known->written = 0;
	known->ports = ports;
	known->past.head = known->past.count = 0;
	known->peer = NETWORK; /* clients are thousands, and no classes */
	known->own_peer = known->own_here = 0;
	if (server_of(sk) == HERE) {
		known->own_here = own_end(class_of_end(sk, HERE));
	} else {
		known->peer = class_of_end(sk, PEER);
		known->own_peer = own_end(known->peer);
	}
	return known;
}

/* Returns the number + 1 of a thread if it belongs to a chosen process. */
static __always_inline __u32 own_number(struct task_struct *task)
{
	__u32 tgid = tgid_of(task), number;
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

/* Returns what is known of a thread in this window; `since_start` is what it did if it is seen for the first time. */
static __always_inline struct thread *known(struct task_struct *task, int since_start)
{
	__u32 tid = task->pid, zero = 0;
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid), *fresh;

	if (thread && thread->epoch == state.epoch)
		return thread;
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
	thread->blocked = since_start == BLOCKED ? state.start : 0;
	thread->running = since_start == RUNNING;
	thread->woken = thread->settled = state.start;
	thread->waited = thread->unsettled = thread->overlap = thread->timed_out = 0;
	thread->delay = delay_of(task);
	thread->how = OTHERWISE;
	thread->waker = 0;
	thread->past.head = thread->past.count = 0;
	thread->class = class_of(task, task->comm);
	thread->own = own_number(task);
	return thread;
}

static __always_inline struct own *own_of(__u32 its)
{
	__u32 number = its - 1;

	return its ? bpf_map_lookup_elem(&own, &number) : 0;
}

static __always_inline void push(struct history *past, __u64 start, __u32 class, __u64 queued)
{
	struct segment *segment = &past->ring[past->head & (SEGMENTS - 1)];

	segment->start = start;
	segment->class = class;
	segment->queued = queued < 0xffffffff ? queued : 0xffffffff;
	past->head = (past->head + 1) & (SEGMENTS - 1);
	if (past->count < SEGMENTS)
		past->count++;
}

/* Adds to the sums of a number in `own` + 1. */
static __always_inline void charge(__u32 its, __u32 class, __u32 via, __u64 time, __u64 queued)
{
	__u64 key = (__u64)(its - 1) << 32 | class << 16 | via;
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
	cell->own = its - 1;
	cell->class = class;
	cell->via = via;
	cell->time += time;
	cell->queued += queued;
}

struct division {
	struct history *past;
	__u64 since;
	__u64 end;
	__u32 own;
	__u32 via;
};

static long divide_segment(__u32 at, struct division *rest)
{
	struct history *past = rest->past;
	struct segment *segment;
	__u64 start, queued, span;

	if (at >= past->count || rest->end <= rest->since)
		return 1;
	segment = &past->ring[(past->head - 1 - at) & (SEGMENTS - 1)];
	start = segment->start > rest->since ? segment->start : rest->since;
	if (rest->end <= start)
		return 0; /* it took no time */
	span = rest->end - segment->start;
	queued = segment->queued < span ? segment->queued : span;
	charge(rest->own, segment->class, rest->via, rest->end - start, queued * (rest->end - start) / span);
	if (segment->class >= FIRST_CLASS)
		rest->via = segment->class; /* a thread that slept goes on by itself */
	rest->end = start;
	return 0;
}

static __always_inline void divide_rest(struct division *rest)
{
	bpf_loop(SEGMENTS, divide_segment, rest, 0);
	if (rest->end > rest->since)
		charge(rest->own, BEFORE, rest->via, rest->end - rest->since, 0);
}

/* Divides the wait of a chosen thread among those who were responsible for it, the last one first. */
static __always_inline void divide(struct thread *thread, __u64 since, __u64 now)
{
	struct division rest = {.past = &thread->past, .own = thread->own, .since = since, .end = now, .via = NONE};

	divide_rest(&rest);
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

/* Returns for how much of the time since it woke another thread, until now, a thread has gone on without a break. */
static __always_inline __u64 went_on(__u32 tid, __u64 since, __u64 now)
{
	struct thread *waker = bpf_map_lookup_elem(&threads, &tid);

	if (!waker || waker->epoch != state.epoch)
		return 0;
	if (waker->running)
		return waker->settled <= since ? now - since : 0;
	return waker->settled > since ? waker->settled - since : 0;
}

/* A thread is put on a CPU: until now it could run and did not. */
static __always_inline void put_on(struct thread *thread, __u64 now)
{
	__u64 idle = now > thread->settled ? now - thread->settled : 0;
	struct own *mine = thread->blocked ? own_of(thread->own) : 0;

	/* Another CPU woke it after it had said that it would sleep, and before this one put it off. */
	thread->blocked = 0;
	if (mine)
		mine->blocked = 0;
	thread->waited += idle;
	if (thread->own) {
		thread->unsettled += idle;
		if (thread->waker)
			thread->overlap = went_on(thread->waker, thread->woken, now);
		thread->waker = 0;
	}
	thread->settled = now;
	thread->running = 1;
}

/*
 * A thread is put off its CPU: charges its own time, if it is chosen. It had to wait for a CPU that others had for as long
 * as the kernel says (run_delay, which counts a wait only once it is over). The rest of the time in which it could run
 * and did not is what its CPU took to hear of the wake-up, and perhaps to wake up itself: tens of microseconds in a
 * virtual machine. As long as the waker goes on meanwhile, a full server does not become faster by that: it is the
 * waker's time.
 */
static __always_inline void put_off(struct thread *thread, struct task_struct *task, struct own *mine, __u64 now)
{
	__u64 delay, queued, overlap = thread->overlap;

	if (mine) {
		delay = delay_of(task);
		queued = delay - thread->delay;
		queued = queued < thread->unsettled ? thread->unsettled - queued : 0;
		overlap = overlap < queued ? overlap : queued;
		if (overlap)
			charge(thread->own, thread->waker_class, NONE, overlap, 0);
		mine->queued += thread->unsettled - overlap;
		mine->run += now > thread->settled ? now - thread->settled : 0;
		thread->unsettled = thread->overlap = 0;
		thread->delay = delay;
	}
	thread->settled = now;
	thread->running = 0;
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
	thread = next->pid ? known(next, READY) : 0;
	if (thread)
		put_on(thread, now);
	thread = prev->pid ? known(prev, RUNNING) : 0;
	if (!thread)
		return 0;
	mine = own_of(thread->own);
	put_off(thread, prev, mine, now);
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
			charge(thread->own, TIMER, NONE, thread->woken - thread->timed_out, 0);
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
	struct history *past = &from->past;
	__u32 back = SEGMENTS - at;
	struct segment *segment;
	__u64 start, end;

	if (back > past->count)
		return 0;
	segment = &past->ring[(past->head - back) & (SEGMENTS - 1)];
	start = segment->start;
	end = back == 1 ? from->woken : past->ring[(past->head - back + 1) & (SEGMENTS - 1)].start;
	if (end <= to->blocked || end <= start)
		return 0;
	if (start >= to->blocked)
		push(&to->past, start, segment->class, segment->queued);
	else
		push(&to->past, to->blocked, segment->class, (__u64)segment->queued * (end - to->blocked) / (end - start));
	return 0;
}

/* Passes the waker's history on. */
static __always_inline void pass(struct thread *to, struct thread *from, __u64 now)
{
	struct handover pair = {.to = to, .from = from};
	__u64 queued = from->waited;

	if (to->how != LOCK) {
		__builtin_memcpy(&to->past, &from->past, sizeof(to->past));
		push(&to->past, from->woken, from->class, queued);
		return;
	}
	push(&to->past, to->woken, to->class, to->waited);
	bpf_loop(SEGMENTS, pass_segment, &pair, 0);
	if (from->woken >= to->blocked)
		push(&to->past, from->woken, from->class, queued);
	else if (now > from->woken)
		push(&to->past, to->blocked, from->class, queued * (now - to->blocked) / (now - from->woken));
}

static __always_inline void spend(void)
{
	if (__sync_fetch_and_add(&state.spent, STRIDE) + STRIDE >= state.budget && state.open) {
		state.end = bpf_ktime_get_ns();
		state.open = 0;
	}
}

static __always_inline void count_wakeup(struct cpu *cpu)
{
	if (++cpu->wakeups % STRIDE)
		return;
	__sync_fetch_and_add(&state.wakeups, STRIDE);
	spend();
}

static __always_inline void count_packets(struct cpu *cpu, __u32 packets)
{
	cpu->packets += packets;
	if (cpu->packets < STRIDE * PACKETS)
		return;
	cpu->packets -= STRIDE * PACKETS;
	spend();
}

/* It runs on the CPU of the waker; sched_wakeup may run on another one (ttwu_queue_wakelist, kernel/sched/core.c). */
SEC("tp_btf/sched_waking")
int BPF_PROG(waking, struct task_struct *task)
{
	struct task_struct *current = (struct task_struct *)bpf_get_current_task_btf();
	struct cpu *cpu = this_cpu();
	struct thread *thread, *waker;
	struct connection *from = 0;
	struct own *mine;
	__u32 by;
	__u64 now;

	if (!state.open || !cpu)
		return 0;
	thread = known(task, BLOCKED);
	if (!thread || !thread->blocked)
		return 0;
	now = bpf_ktime_get_ns();
	count_wakeup(cpu);
	by = interrupt(cpu, current);
	waker = by == NONE && current->pid && current->pid != task->pid ? known(current, RUNNING) : 0;
	if (by == NETWORK && cpu->sock)
		from = bpf_map_lookup_elem(&connections, &cpu->sock);
	mine = own_of(thread->own);
	if (waker) {
		pass(thread, waker, now);
		if (mine)
			divide(thread, thread->blocked, now);
	} else if (from && cpu->asked) {
		/* It goes on for whoever sent the request. */
		__builtin_memcpy(&thread->past, &from->past, sizeof(thread->past));
		push(&thread->past, cpu->asked, from->peer, 0);
		if (mine)
			divide(thread, thread->blocked, now);
	} else {
		by = from ? from->peer : by == NONE ? INTERRUPT : by; /* the idle thread wakes in interrupts only */
		push(&thread->past, thread->woken, thread->class, thread->waited);
		push(&thread->past, thread->blocked, by, 0);
		if (mine && by == TIMER && thread->how != SLEEP)
			thread->timed_out = thread->blocked; /* whether it waits on is known when it blocks again */
		else if (mine)
			charge(thread->own, by, NONE, now - thread->blocked, 0);
	}
	if (mine) {
		mine->waits++;
		mine->blocked = 0;
	}
	thread->woken = thread->settled = now;
	thread->waited = 0;
	thread->delay = delay_of(task);
	thread->blocked = 0;
	thread->waker = waker ? current->pid : 0;
	thread->waker_class = waker ? waker->class : NONE;
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
	thread = known(task, READY);
	parent = known(current, RUNNING);
	if (!thread || !parent)
		return 0;
	now = bpf_ktime_get_ns();
	__builtin_memcpy(&thread->past, &parent->past, sizeof(thread->past));
	push(&thread->past, parent->woken, parent->class, parent->waited);
	thread->class = class_of(task, task->comm); /* its number may have been another thread's */
	thread->own = own_number(task);
	thread->blocked = thread->timed_out = 0;
	thread->woken = thread->settled = now;
	thread->waited = thread->unsettled = thread->overlap = 0;
	thread->delay = delay_of(task);
	thread->running = thread->waker = 0;
	return 0;
}

SEC("tp_btf/task_rename")
int BPF_PROG(renamed, struct task_struct *task, const char *name)
{
	struct thread *thread = state.open ? known(task, RUNNING) : 0;
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
		cpu->sock = cpu->asked = 0;
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
	cpu->sock = cpu->asked = 0;
	return 0;
}

/* Returns the bytes that a TCP packet carries, of which `whole` are counted from `start` on. */
static __always_inline __u32 carried(__u64 header, __u64 start, __u32 whole)
{
	__u8 words = 0;
	__u32 headers;

	/* The upper half of its byte 12 is the length of the header in words of 4 bytes (RFC 9293, 3.1). */
	bpf_probe_read_kernel(&words, 1, (void *)(header + 12));
	headers = header - start + (words >> 4) * 4;
	return whole > headers ? whole - headers : 0;
}

/* A packet of an established connection arrives (tcp_rcv_established, net/ipv4/tcp_input.c): it begins at the header. */
SEC("tp_btf/tcp_probe")
int BPF_PROG(arrived, struct sock *sk, struct sk_buff *skb)
{
	struct cpu *cpu = this_cpu();
	struct connection *connection;
	struct own *peer;
	__u64 now;

	if (!state.open || !cpu || (cpu->loopback && !cpu->network))
		return 0;
	count_packets(cpu, 1);
	connection = connected(sk);
	if (!connection)
		return 0;
	cpu->sock = (__u64)sk;
	cpu->asked = 0;
	if (!carried((__u64)skb->data, (__u64)skb->data, skb->len))
		return 0;
	now = bpf_ktime_get_ns();
	if (!connection->arrived)
		connection->arrived = now;
	if (!connection->asked)
		return 0;
	peer = own_of(connection->own_peer);
	if (peer) {
		peer->run += now - connection->asked;
		peer->waits++;
	}
	cpu->asked = connection->asked;
	connection->asked = 0;
	return 0;
}

/* Sums up what happened since a request arrived, until a thread answers it now, for this end of the connection. */
static __always_inline void serve(struct connection *connection, struct thread *thread, __u64 queued, __u64 now)
{
	struct division rest = {.past = &thread->past, .own = connection->own_here, .since = connection->arrived};
	struct own *here = own_of(connection->own_here);
	__u64 span = now - thread->woken;

	if (!here || now <= rest.since)
		return;
	here->waits++;
	if (thread->woken <= rest.since) {
		queued = queued < span ? queued : span;
		charge(rest.own, thread->class, NONE, now - rest.since, queued * (now - rest.since) / span);
		return;
	}
	charge(rest.own, thread->class, NONE, span, queued);
	rest.end = thread->woken;
	rest.via = thread->class;
	divide_rest(&rest);
}

/* A packet is sent. What is sent later, when the peer acknowledged enough or a timer says so, is in a softirq. */
SEC("tp_btf/net_dev_queue")
int BPF_PROG(sent, struct sk_buff *skb)
{
	struct task_struct *current = (struct task_struct *)bpf_get_current_task_btf();
	struct cpu *cpu = this_cpu();
	struct sock *sk = skb->sk;
	struct connection *connection;
	struct thread *thread;
	__u64 now, head, queued;
	__u32 written;

	if (!state.open || !cpu || cpu->softirq || cpu->device || cpu->timer || !sk || !current->pid)
		return 0;
	count_packets(cpu, 1);
	if (BPF_CORE_READ(sk, __sk_common.skc_state) != TCP_ESTABLISHED || BPF_CORE_READ(sk, sk_protocol) != IPPROTO_TCP)
		return 0;
	head = (__u64)skb->head;
	if (skb->dev->flags & IFF_LOOPBACK || !carried(head + skb->transport_header, (__u64)skb->data, skb->len))
		return 0;
	connection = connected(sk);
	thread = connection ? known(current, RUNNING) : 0;
	written = BPF_CORE_READ((struct tcp_sock *)sk, write_seq);
	if (!thread || connection->written == written)
		return 0; /* another packet of what was sent */
	connection->written = written;
	count_packets(cpu, PACKETS); /* what follows costs as much as a wake-up */
	now = bpf_ktime_get_ns();
	queued = thread->waited;
	if (connection->arrived)
		serve(connection, thread, queued, now);
	connection->arrived = 0;
	if (connection->asked)
		return 0;
	__builtin_memcpy(&connection->past, &thread->past, sizeof(connection->past));
	push(&connection->past, thread->woken, thread->class, queued);
	connection->asked = now;
	return 0;
}
