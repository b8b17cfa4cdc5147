// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* No program: brings types into the debug information that those of internal/balance are made from. */
#include "prelude.h"
#include "../abi.h"

struct balance_types {
	enum feature feature;
	enum forward_size port_size;
	enum forward_flag port_flag;
	struct forward_port port;
	enum balance_size size;
	enum balance_flag flag;
	enum balance_none none;
	enum balance_state state;
	enum balance_forwarding forwarding;
	enum balance_entry entry;
	enum balance_stage stage;
	enum balance_result result;
	struct balance_key key;
	struct balance_service service;
	struct balance_ring ring;
	struct balance_backend backend;
	struct balance_bucket bucket;
	struct balance_id id;
	struct balance_source source;
	struct balance_count count;
	struct balance_load load;
	struct balance_memory memory;
	enum dry_choice dry_choice;
	struct dry_note dry_note;
	struct dry_backend dry_backend;
};
const struct balance_types *const balance_types __attribute__((unused));
