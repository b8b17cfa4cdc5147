// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* No program: brings the types of the gate into the debug information that those of internal/gate/engine are made from. */
#include "prelude.h"
#include "../abi.h"
#include "../hints/abi.h"

struct gate_types {
	struct gate_control control;
	struct gate_table table;
	struct gate_row row;
	struct gate_page page;
	struct gate_line line;
	struct gate_node node;
	struct gate_leaf leaf;
	struct gate_wide wide;
	struct gate_rule rule;
	struct gate_iface iface;
	struct gate_count count;
	struct gate_sources sources;
	struct gate_drop drop;
	struct gate_drop_set drop_set;
	struct gate_drop_part drop_part;
	enum gate_drop_size drop_size;
	enum feature feature;
	enum gate_size size;
	enum gate_slot slot;
	enum gate_number number;
	enum gate_ref ref;
	enum gate_action action;
	enum gate_per per;
	enum gate_state state;
	enum gate_head head;
	enum gate_sub sub;
	enum gate_dscp dscp;
	enum gate_used used;
	enum gate_hook hook;
	enum gate_mark mark;
	struct gate_packet packet;
	struct gate_captured captured;
	enum gate_capture capture;
	enum hint_source hint_source;
	enum gate_has has;
};
const struct gate_types *const gate_types __attribute__((unused));
