// Package ipv6 walks the extension headers of IPv6 packets (RFC 8200 section 4),
// reads the options of Hop-by-Hop and Destination Options headers, and inserts,
// replaces and removes options with the padding, lengths and Next Header fields that
// this takes.
//
// Input: packets as byte slices that start at the IPv6 header, whole or cut short
// behind the extension headers. Output: offsets, or copies of packets. Inputs are
// never changed; reading allocates nothing but errors.
//
// Every loop is bounded ([MaxHeaders], [MaxOptions]), so that no packet takes more
// than a fixed amount of work. Packages pdm and ioam build on this one.
package ipv6
