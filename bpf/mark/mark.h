/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What stages share that insert into packets, in the order in which each header builds on those
 * before it; the clock, clock.h or that of tests, comes before.
 */
#ifndef WAYMARK_MARK_MARK_H
#define WAYMARK_MARK_MARK_H

#include "space.h"
#include "pdm/config.h"
#include "ioam/config.h"
#include "pdm/scale.h"
#include "pdm/option.h"
#include "mark/segment.h"
#include "mark/walk.h"
#include "mark/may.h"
#include "mark/path.h"
#include "mark/guard.h"
#include "mark/tcp.h"
#include "mark/datagram.h"
#include "mark/fit.h"
#include "mark/too_big.h"

#endif
