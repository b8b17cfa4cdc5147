/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Input: the packet of a benchmark. Output: the same with all space of its trace free. */
#ifndef WAYMARK_TEST_IOAM_AGAIN_H
#define WAYMARK_TEST_IOAM_AGAIN_H

/* NodeLen, flags and RemainingLen of an empty trace; network byte order. */
const volatile __be16 bench_lengths;

/* Behind the Hop-by-Hop header's first two bytes, a PadN and the first six bytes of the option. */
#define AT_LENGTHS \
	(sizeof(struct ethhdr) + sizeof(struct ipv6hdr) + 4 + offsetof(struct ioam_trace, lengths))

static __always_inline bool again(void *data, void *end)
{
	if (data + AT_LENGTHS + sizeof(bench_lengths) > end)
		return false;
	if (!bench_lengths) /* a packet without a trace */
		return true;
	*(__be16 *)(data + AT_LENGTHS) = bench_lengths;
	return true;
}

#endif
