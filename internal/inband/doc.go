// Package inband turns what PDM options (RFC 8250) say into answers: the
// server's delay, the network's round trip, and packets lost, reordered and
// duplicated. Input: options with their time, from one host's view (Endpoint) or
// from a capture anywhere on the path (Conversation). Output: histograms and counts. The datapath reads the histograms that the kernel
// filled, waymark decode computes them from a file.
//
// Endpoint, Sequence and Bucket are the reference for bpf/pdm/pdm.h: integers only,
// the same steps, the same results.
package inband
