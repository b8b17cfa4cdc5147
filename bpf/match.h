/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which packets a policy names, in addition to its prefix.
 *
 * Input: a rule, protocol and ports. Called by the stages that have policies.
 */
#ifndef WAYMARK_MATCH_H
#define WAYMARK_MATCH_H

/* Either port may be the service's: a policy reads the same at both ends. */
static __always_inline bool has_port(const struct policy_rule *rule, __u16 sport, __u16 dport)
{
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < POLICY_PORTS_MAX && i < rule->ports_len; i++) {
		const struct policy_ports *r = &rule->ports[i];

		if ((sport >= r->from && sport <= r->to) || (dport >= r->from && dport <= r->to))
			return true;
	}
	return false;
}

/* Not static: verified alone, since its loop is in the loops over rules of its callers. */
__feature(FEATURE_PDM | FEATURE_IOAM) __noinline
	int policy_matches(const struct policy_rule *rule, __u32 proto, __u32 sport, __u32 dport)
{
	if (!rule || !(rule->protos[proto >> 6 & 3] >> (proto & 63) & 1))
		return false;
	return !rule->ports_len || has_port(rule, sport, dport);
}

#endif
