// Package ioam reads and writes the options of in-situ OAM in IPv6 (IOAM, RFC 9197,
// RFC 9486, RFC 9326): pre-allocated and incremental traces, proof of transit, edge
// to edge, and direct export. Input: option bytes or whole IPv6 packets. Output:
// options and the hops of a trace, all problems of what was read, or packets with
// options added, removed or updated. It depends on package ipv6 and the standard
// library only; package ioamlayer joins it to gopacket.
//
// It is also the reference for what the kernel does: [Node.Update] is a transit node
// whose checks have a defined order, [Share.Update] a node of proof of transit. Both
// are integer functions of bounded length, so that a BPF program can take the same
// steps to the same results.
//
// Byte slices called pkt start at the IPv6 header. Lengths are in bytes unless a
// comment names the 4-byte units of the wire.
package ioam
