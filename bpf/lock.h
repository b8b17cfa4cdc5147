/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A lock in a map value, for what several CPUs update together. The holder is not interrupted by another
 * packet on its own CPU, so it leaves soon. Input: a word that is 0. Output: whether it is held now.
 */
#ifndef WAYMARK_LOCK_H
#define WAYMARK_LOCK_H

/* Rounds that a CPU waits for another one: some 10 us. */
#define LOCK_ROUNDS 256

static __always_inline bool lock_word(__u32 *lock)
{
#pragma clang loop unroll(disable)
	for (int i = 0; i < LOCK_ROUNDS; i++)
		if (!__sync_val_compare_and_swap(lock, 0, 1))
			return true;
	return false;
}

/*
 * Other processors see the stores before it first, and those behind it afterwards. A plain store is enough where stores keep
 * their order, and saves the 7 ns of a locked instruction.
 */
static __always_inline void publish_word(__u32 *word, __u32 value)
{
	if (!cfg_stores_ordered) {
		__sync_lock_test_and_set(word, value);
		return;
	}
	asm volatile("" ::: "memory");
	*(volatile __u32 *)word = value;
	asm volatile("" ::: "memory");
}

static __always_inline void unlock_word(__u32 *lock)
{
	publish_word(lock, 0);
}

#endif
