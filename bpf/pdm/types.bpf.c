// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * No program: brings the types of PDM into the debug information that the Go
 * ones of internal/inband/pdm are made from.
 */
#include "prelude.h"
#include "../abi.h"

struct pdm_types {
	struct pdm_state state;
	struct pdm_delays_key delays_key;
	struct pdm_flow_delays delays;
	struct mark_path_key path_key;
	struct mark_path path;
	struct mark_totals mark_totals;
	enum mark_kind mark_kind;
	enum mark_reason mark_reason;
	struct pdm_near near;
	enum pdm_nears nears;
	enum pdm_word words;
	struct pdm_shared shared;
	struct pdm_cpu cpu;
	struct pdm_event event;
	struct policy_rule rule;
	struct policy_prefix prefix;
	struct policy_mask mask;
	struct policy_iface iface;
	enum feature feature;
	enum state_id state_id;
	enum delay delay;
	enum policy policy;
	enum stamp stamp;
	enum pdm_reason reason;
	enum pdm_arrival arrival;
	enum pdm_suspicion suspicion;
};
const struct pdm_types *const pdm_types __attribute__((unused));
