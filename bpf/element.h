/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Elements of hash maps that are made when they are first needed.
 *
 * Input: a map, a key and the value of a new element. Output: the element; NULL: the map is full.
 * Called by what counts in maps.
 */
#ifndef WAYMARK_ELEMENT_H
#define WAYMARK_ELEMENT_H

static __always_inline void *find_or_make(void *map, const void *key, const void *fresh)
{
	void *value = bpf_map_lookup_elem(map, key);

	if (!value) {
		/* Lost races find the element that the winner made. */
		bpf_map_update_elem(map, key, fresh, BPF_NOEXIST);
		value = bpf_map_lookup_elem(map, key);
	}
	return value;
}

#endif
