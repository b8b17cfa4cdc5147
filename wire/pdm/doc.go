// Package pdm reads and writes the Performance and Diagnostic Metrics option of
// IPv6 (PDM, RFC 8250). In come option bytes, Destination Options headers or
// whole IPv6 packets; out come options, delays in nanoseconds, or packets with
// one option more or less. It allocates nothing but packets and errors, and
// depends on package ipv6 and the standard library only; package pdmlayer joins it
// to gopacket.
//
// It is also the reference for what the kernel does: [State], [Scale],
// [Nanoseconds], [Walk] and [Insert] are integer functions of bounded length, so
// that a BPF program can take the same steps to the same results.
//
// Byte slices called pkt start at the IPv6 header.
package pdm
