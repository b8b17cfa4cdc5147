/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Performance and Diagnostic Metrics (RFC 8250): two stages of the probe.
 *
 * pdm_mark() marks packets that leave and that a policy names; pdm_read() learns
 * delays and losses from marked packets that arrive, and pdm_strip() takes the
 * option out of them. In the order in which each builds on those before it; the
 * clock, clock.h or that of tests, comes before.
 */
#ifndef WAYMARK_PDM_H
#define WAYMARK_PDM_H

#include "match.h"
#include "mark/mark.h"
#include "pdm/work.h"
#include "pdm/policy.h"
#include "pdm/state.h"
#include "pdm/near.h"
#include "pdm/create.h"
#include "pdm/count.h"
#include "pdm/event.h"
#include "pdm/limit.h"
#include "pdm/mark.h"
#include "pdm/sequence.h"
#include "pdm/missed.h"
#include "pdm/delay.h"
#include "pdm/read.h"
#include "pdm/strip.h"

#endif
