// Package pdm reads and writes the Performance and Diagnostic Metrics option of
// IPv6 (PDM, RFC 8250). In come option bytes, Destination Options headers or
// whole IPv6 packets; out come options, delays in nanoseconds, or packets with
// one option more or less. It allocates nothing but the packets it returns, and
// depends on the standard library only; package pdmlayer joins it to gopacket.
//
// It is also the reference for the programs in bpf/: [State], [Scale],
// [Nanoseconds], [Walk] and [Insert] are the same integer functions there, and
// both are run against each other.
//
// Byte slices called pkt start at the IPv6 header.
package pdm
