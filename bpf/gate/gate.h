/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The gate: packet rules, before all other stages at XDP, or at tc ingress where XDP cannot attach.
 * internal/gate/rules has the language, internal/gate/engine makes the tables.
 */
#ifndef WAYMARK_GATE_H
#define WAYMARK_GATE_H

#include "lock.h"
#include "config.h"
#include "read.h"
#include "find.h"
#include "count.h"
#include "limit.h"
#include "ban.h"
#include "cookie.h"
#include "detect.h"
#include "again.h"
#include "drop.h"
#include "capture.h"
#include "decide.h"

#endif
