// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* No program: brings types into the debug information that those of internal/forward are made from. */
#include "prelude.h"
#include "../abi.h"

struct forward_types {
	enum feature feature;
	enum forward_size size;
	enum forward_flag flag;
	enum forward_result result;
	struct forward_port port;
	struct forward_count count;
	struct forward_memory memory;
	enum forward_kind kind;
	struct forward_key key;
	struct forward_way way;
	struct forward_offload_at offload_at;
	enum dry_flag dry_flag;
	struct dry_note dry_note;
};
const struct forward_types *const forward_types __attribute__((unused));
