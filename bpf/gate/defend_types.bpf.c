// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* No program: brings the types of bans, SYN cookies and detection into the debug information that those of internal/gate are made from. */
#include "prelude.h"
#include "../abi.h"

struct defend_types {
	struct gate_ban_key key;
	struct gate_ban ban;
	struct gate_ban_count count;
	struct gate_ban_control control;
	enum gate_ban_size size;
	enum gate_ban_free free;
	enum gate_answers answers;
	enum gate_cookie_count cookie_count;
	struct gate_local_key local;
	enum gate_detect_size detect_size;
	struct gate_watch watch;
	struct gate_candidate candidate;
	struct gate_sock_offsets sock;
};
const struct defend_types *const defend_types __attribute__((unused));
