/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * In-situ OAM (RFC 9197, 9486), in the order in which each header builds on those before it. What
 * depends on the hook is included by the programs: ingress.h and egress.h by probe.h, xdp.h by
 * xdp.bpf.c.
 */
#ifndef WAYMARK_IOAM_IOAM_H
#define WAYMARK_IOAM_IOAM_H

#include "ioam/config.h"
#include "ioam/option.h"
#include "ioam/count.h"
#include "ioam/measure.h"
#include "ioam/node.h"
#include "ioam/stamp.h"
#include "ioam/prepared.h"
#include "ioam/proof.h"
#include "ioam/transit.h"
#include "ioam/cut.h"
#include "ioam/border.h"

#endif
