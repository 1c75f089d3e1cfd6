/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Names of the kernel's functions, from the kernel itself: one look-up where /proc/kallsyms is 5 MB of text.
 *
 * bpf_snprintf came with Linux 5.13, programs that run when they are called with 5.14.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

#define NAME_LENGTH 1024 /* more than KSYM_SYMBOL_LEN, include/linux/kallsyms.h */

struct {
	__u64 address; /* written by user space */
	char name[NAME_LENGTH];
} state;

/* Writes what /proc/PID/stack writes for an address; returns its length with the 0 at the end. */
SEC("syscall")
int name(void *context)
{
	static const char form[] = "%pB";

	return bpf_snprintf(state.name, NAME_LENGTH, form, &state.address, sizeof(state.address));
}
