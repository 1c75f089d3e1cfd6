/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The numbers of tasks in a PID namespace other than the first. */
#ifndef PINCHPOINT_PIDS_H
#define PINCHPOINT_PIDS_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

struct ns_common {
	unsigned int inum;
} __attribute__((preserve_access_index));

struct pid_namespace {
	struct ns_common ns;
} __attribute__((preserve_access_index));

struct upid {
	int nr;
	struct pid_namespace *ns;
} __attribute__((preserve_access_index));

struct pid {
	unsigned int level;
	struct upid numbers[1];
} __attribute__((preserve_access_index));

/* Returns the number of a pid in a namespace, 0 if it is not in it. `seen` is its level, 0 until it is known. */
static __always_inline __u32 number_in_namespace(struct pid *pid, __u32 namespace, __u32 *seen)
{
	unsigned int level = BPF_CORE_READ(pid, level);
	struct upid *numbers = (void *)pid + bpf_core_field_offset(struct pid, numbers);
	struct upid *number;

	if (!*seen) {
		/* A task that is in the namespace itself, not in one below it, shows its level. */
		number = (void *)numbers + level * bpf_core_type_size(struct upid);
		if (BPF_CORE_READ(number, ns, ns.inum) != namespace)
			return 0;
		*seen = level;
	}
	if (level < *seen)
		return 0;
	number = (void *)numbers + *seen * bpf_core_type_size(struct upid);
	if (BPF_CORE_READ(number, ns, ns.inum) != namespace)
		return 0;
	return BPF_CORE_READ(number, nr);
}

#endif
