// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * No program: brings the types of IOAM into the debug information that the Go
 * ones of internal/inband/ioam are made from.
 */
#include "prelude.h"
#include "../abi.h"

struct ioam_types {
	struct ioam_control control;
	struct ioam_namespace namespace;
	struct ioam_schema schema;
	struct ioam_iface iface;
	struct ioam_queue queue;
	struct ioam_port port;
	struct ioam_node node;
	struct ioam_role_key role_key;
	struct ioam_count_key count_key;
	struct ioam_insertion insertion;
	struct mark_key mark_key;
	struct mark_path_key mark_path_key;
	struct mark_path mark_path;
	struct mark_guard mark_guard;
	struct mark_totals mark_totals;
	enum mark_kind mark_kind;
	enum mark_reason mark_reason;
	enum mark_own mark_own;
	struct ioam_added added;
	struct ioam_template template;
	struct ioam_insertion_state insertion_state;
	struct ioam_sequence_key sequence_key;
	struct ioam_proof proof;
	struct policy_rule rule;
	struct policy_prefix prefix;
	struct policy_mask mask;
	struct policy_ports ports;
	enum ioam_type type;
	enum ioam_insertion_size insertion_size;
	struct count_value count_value;
	struct ioam_path_key path_key;
	struct ioam_path path;
	struct ioam_cell cell;
	struct ioam_known path_known;
	struct ioam_report report;
	struct ioam_path_totals path_totals;
	struct ioam_cpu cpu;
	struct ioam_flow_key flow_key;
	struct ioam_flow flow;
	struct ioam_edge_key edge_key;
	struct ioam_edge edge;
	struct ioam_direct_record direct_record;
	struct ioam_copy copy;
	struct ioam_direct_key direct_key;
	enum ioam_direct_size direct_size;
	enum ioam_path_size path_size;
	enum ioam_cells cells;
	enum ioam_difference difference;
	enum ioam_report_kind report_kind;
	enum feature feature;
	enum ioam_time time;
	enum ioam_role role;
	enum ioam_border border;
	enum ioam_size size;
	enum ioam_mode mode;
	enum ioam_form form;
	enum ioam_insertion_flags insertion_flags;
	enum ioam_reason reason;
	enum ioam_reason_class reason_class;
};
const struct ioam_types *const ioam_types __attribute__((unused));
