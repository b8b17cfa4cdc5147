// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* No program: brings types into the debug information that those of internal/hints/service are made from. */
#include "prelude.h"
#include "../abi.h"
#include "hints/meta.h"

struct hints_abi {
	enum feature feature;
	enum hints_version version;
	enum hints_verdict verdict;
	enum hint_source source;
	enum hints_size size;
	struct hints_taker taker;
	struct hints_queue queue;
	struct hints_meta meta;
};
const struct hints_abi *const hints_abi __attribute__((unused));
