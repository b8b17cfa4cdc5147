/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Performance and Diagnostic Metrics (RFC 8250): two stages of the probe.
 *
 * pdm_mark() marks packets that leave and that a policy names; pdm_read() learns
 * delays and losses from marked packets that arrive, and pdm_strip() takes the
 * option out of them. In the order in which each builds on those before it; the
 * clock, pdm_clock.h or that of tests, comes before.
 */
#ifndef WAYMARK_PDM_H
#define WAYMARK_PDM_H

#include "pdm_scale.h"
#include "pdm_option.h"
#include "pdm_walk.h"
#include "pdm_work.h"
#include "pdm_state.h"
#include "pdm_count.h"
#include "pdm_event.h"
#include "policy.h"
#include "pdm_path.h"
#include "pdm_guard.h"
#include "pdm_fit.h"
#include "pdm_mark.h"
#include "pdm_sequence.h"
#include "pdm_missed.h"
#include "pdm_delay.h"
#include "pdm_too_big.h"
#include "pdm_read.h"
#include "pdm_strip.h"

#endif
